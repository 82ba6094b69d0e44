package delta

import (
	"encoding/json"
	"math"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// rewriteTag is the key of commitInfo.tags under which a commit keeps the notes of its rewrites: no engine shows tags, and
// only commits that lost a race to this one read them, which they do from the commit itself.
const rewriteTag = "freshet.rewrites"

// rewriteNote tells where the rows of rewritten files went: those of From, one file after another, are those of To, one
// file after another.
//
//	From  a: 0 1 – 3   b: 0 1    – is a row that a's vector names
//	To    c: 0 1 2 3   d: 0
type rewriteNote struct {
	From []noteFile `json:"from"`
	To   []noteFile `json:"to"`
}

// noteFile is a file of a note.
type noteFile struct {
	Path string `json:"path"` // as its action has it
	Rows int64  `json:"rows"` // of From: that were read; of To: all
	// DeletionVector names the rows of a file of From that were not read. The remove action may have a later one, of which
	// the rest hides rows of To.
	DeletionVector *DeletionVector `json:"deletionVector"`
}

// note is nil where the rows of a file did not stay together, in their order, or where they went is not known.
func (r *Rewrite) note() *rewriteNote {
	if r.Origins == nil {
		return nil
	}
	n := &rewriteNote{}
	begun := make([]bool, len(r.Removed))
	file, next := -1, int64(0) // where the rows before came from
	for j, runs := range r.Origins {
		to := noteFile{Path: r.Added[j].Path}
		for _, o := range runs {
			if o.Rows == 0 {
				continue
			}
			if o.File != file {
				if begun[o.File] {
					return nil
				}
				old := &r.Removed[o.File]
				n.From = append(n.From, noteFile{Path: old.Path, DeletionVector: old.DeletionVector})
				begun[o.File], file, next = true, o.File, 0
			}
			if o.First < next {
				return nil
			}
			next = o.First + o.Rows
			n.From[len(n.From)-1].Rows += o.Rows
			to.Rows += o.Rows
		}
		n.To = append(n.To, to)
	}
	return n
}

func (n *rewriteNote) write(o *objectWriter) {
	list := func(files []noteFile) func(int, *objectWriter) {
		return func(i int, o *objectWriter) {
			o.str("path", files[i].Path)
			o.int("rows", files[i].Rows)
			files[i].DeletionVector.write(o)
		}
	}
	o.objects("from", len(n.From), list(n.From))
	o.objects("to", len(n.To), list(n.To))
}

// rewriteNotes is the tag of the commit; "" when it has no notes, or when no rows could be deleted of its files so that
// anybody would ask.
func (tx *Transaction) rewriteNotes(base *Snapshot) string {
	if !tx.allowsVectors(base) {
		return ""
	}
	var notes []*rewriteNote
	for _, r := range tx.rewrites {
		if n := r.note; n != nil {
			notes = append(notes, n)
		}
	}
	if len(notes) == 0 {
		return ""
	}
	o := &objectWriter{}
	o.objects("rewrites", len(notes), func(i int, o *objectWriter) { notes[i].write(o) })
	return string(o.end())
}

// parseRewriteNotes reads a tag. One that is no such thing has no notes: it is a help, and nothing else depends on it.
func parseRewriteNotes(tag string) []rewriteNote {
	var notes struct {
		Rewrites []rewriteNote `json:"rewrites"`
	}
	if json.Unmarshal([]byte(tag), &notes) != nil {
		return nil
	}
	return notes.Rewrites
}

// fits holds the note against the file actions of its commit: the files of From were rewritten, those of To hold as many
// rows as it says. One of From that another writer had removed by then has no action, nor one of To that has no row left.
func (n *rewriteNote) fits(changes map[string]*fileChange) bool {
	var from, to int64
	for i := range n.From {
		if f := changes[canonicalPath(n.From[i].Path)]; f != nil && (f.add != nil || f.remove.DataChange) {
			return false
		}
		if !addRows(&from, n.From[i].Rows) {
			return false
		}
	}
	for i := range n.To {
		if f := changes[canonicalPath(n.To[i].Path)]; f != nil {
			if f.remove != nil || f.add.DataChange {
				return false
			}
			if rows, known := recordCount(f.add.Stats); !known || rows != n.To[i].Rows {
				return false
			}
		}
		if !addRows(&to, n.To[i].Rows) {
			return false
		}
	}
	return from == to
}

// addRows adds to a sum, and reports whether that is a number of rows.
func addRows(sum *int64, rows int64) bool {
	if rows < 0 || rows > math.MaxInt64-*sum {
		return false
	}
	*sum += rows
	return true
}

// place finds rows of the i-th file of From in the files of To, one bitmap each. unread are the rows that the file's vector
// named, none of which is looked for. It is nil when a row would lie beyond the last file.
func (n *rewriteNote) place(i int, unread, rows *roaring64.Bitmap) []*roaring64.Bitmap {
	places := make([]*roaring64.Bitmap, len(n.To))
	for j := range places {
		places[j] = roaring64.New()
	}
	var before uint64 // rows of From before the file
	for _, f := range n.From[:i] {
		before += uint64(f.Rows)
	}
	to, first := 0, uint64(0) // the file of To, and how many rows there are before it
	gone, skipped := unread.Iterator(), uint64(0)
	for it := rows.Iterator(); it.HasNext(); {
		row := it.Next()
		for gone.HasNext() && gone.PeekNext() < row {
			gone.Next()
			skipped++
		}
		at := before + row - skipped
		for to < len(n.To) && at >= first+uint64(n.To[to].Rows) {
			first += uint64(n.To[to].Rows)
			to++
		}
		if to == len(n.To) {
			return nil
		}
		places[to].Add(at - first)
	}
	return places
}
