package lake

import (
	"context"
	"errors"
	"slices"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// indexNews is what a commit of ours does to the index.
type indexNews struct {
	written []keyindex.Fingerprint // in the order of their places
	orders  []byte                 // of written
	gone    []keyindex.Fingerprint
	losing  map[string]bool // paths of files that rows were taken out of
	buried  []keyindex.Fingerprint
	ends    []byte // orders of buried
	note    string // which tombstones the index has then; "": not known, or as before
	unnoted bool   // keys are not noted, as there are too many: the index reads the commit as one of others, but
	tail    order  // that of all rows is this; nil: not known
}

// write notes that the row of a key was written.
func (n *indexNews) write(key keyindex.Fingerprint, at order) {
	if !n.unnoted {
		n.written, n.orders = append(n.written, key), append(n.orders, at...)
	}
}

// expect makes room for so many rows more.
func (n *indexNews) expect(rows int) {
	if !n.unnoted {
		n.written = slices.Grow(n.written, rows)
	}
}

// remove notes that the row of a key was taken out, and none came in its place.
func (n *indexNews) remove(key keyindex.Fingerprint) {
	if !n.unnoted {
		n.gone = append(n.gone, key)
	}
}

// bury notes that a key was deleted and has no row.
func (n *indexNews) bury(key keyindex.Fingerprint, end order) {
	if !n.unnoted {
		n.buried, n.ends = append(n.buried, key), append(n.ends, end...)
	}
}

// emptied are the files that lost all their rows, if none were copied: those that lost rows and that the table does not
// have with another deletion vector.
func (n *indexNews) emptied(done *delta.EditResult) []string {
	marked := make(map[string]bool, len(done.Marked))
	for i := range done.Marked {
		marked[done.Marked[i].Path] = true
	}
	var gone []string
	for path := range n.losing {
		if !marked[path] {
			gone = append(gone, path)
		}
	}
	return gone
}

// lose notes that rows were taken out of a file.
func (n *indexNews) lose(path string) {
	if n.losing == nil {
		n.losing = map[string]bool{}
	}
	n.losing[path] = true
}

// landed brings the index forward by our own commit, and by those of others that it went behind.
func (r *rowIndex) landed(ctx context.Context, done *delta.EditResult, news *indexNews) error {
	if news.unnoted {
		r.tails = map[string]order{}
		for i := range done.Added {
			r.tails[done.Added[i].Path] = news.tail
		}
		defer func() { r.tails = nil }()
	}
	if news.unnoted || done.Version != r.x.Version()+1 && r.forward(ctx, done.Snapshot, done.Version-1) != nil {
		return r.bring(ctx, done.Snapshot)
	}
	emptied := news.emptied(done)
	switch {
	case done.Copied > 0, len(emptied) != done.FilesRemoved:
		return r.copied(ctx, done, news)
	}
	c, err := r.x.Begin(done.Version)
	if err != nil {
		return err
	}
	if err := r.tell(c, done, news); err != nil {
		return errors.Join(err, c.Discard())
	}
	return r.commit(ctx, c)
}

// copied brings the index forward by our own commit, which rewrote files: it reads their keys, and knows which of them have no
// row any more.
func (r *rowIndex) copied(ctx context.Context, done *delta.EditResult, news *indexNews) error {
	if r.t.tombstones == nil || news.note == "" && !r.showsTombstones() {
		return r.bring(ctx, done.Snapshot)
	}
	c, err := r.begin(done.Version)
	if err != nil {
		return err
	}
	err = r.readCommits(ctx, done.Snapshot, c, done.Version)
	if err == nil {
		err = c.Bury(news.buried, news.ends)
	}
	if err != nil {
		return errors.Join(err, c.Discard())
	}
	if news.note != "" {
		c.Note(news.note)
	}
	return r.commit(ctx, c.Change)
}

func (r *rowIndex) tell(c *keyindex.Change, done *delta.EditResult, news *indexNews) error {
	if err := r.addPlaced(c, done, news.written, news.orders); err != nil {
		return err
	}
	if err := c.Delete(news.gone); err != nil {
		return err
	}
	for _, path := range news.emptied(done) {
		c.Remove(path)
		r.files.drop(path)
	}
	switch {
	case news.note != "":
		c.Note(news.note)
	case r.numbers():
		c.Note(r.noteOf(done.Snapshot))
	}
	if r.window != nil {
		for i := range news.written {
			r.window.newest = max(r.window.newest, timeOf(r.orderOf(news.orders, i)))
		}
	}
	return c.Bury(news.buried, news.ends)
}

// addPlaced adds rows by the file in which they lie, but for those with the zero key.
func (r *rowIndex) addPlaced(c *keyindex.Change, done *delta.EditResult, keys []keyindex.Fingerprint,
	seqs []byte) error {
	width := r.identity.SequenceBytes
	for f, add := range done.Added {
		in, rows := make([]keyindex.Fingerprint, 0, len(keys)), make([]int64, 0, len(keys))
		var order []byte
		for i, p := range done.Places {
			if p.File == f && keys[i] != (keyindex.Fingerprint{}) {
				in, rows = append(in, keys[i]), append(rows, p.Row)
				order = append(order, seqs[i*width:(i+1)*width]...)
			}
		}
		if err := c.Add(add.Path, in, rows, order); err != nil {
			return err
		}
		r.files.put(add)
	}
	for _, add := range done.Marked {
		r.files.put(add)
	}
	return nil
}
