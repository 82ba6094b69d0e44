package delta

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/freshet-io/freshet/store"
)

// noteOf finds the note that tells where the rows of a file went, and which file of its From that is; nil when there is
// none that agrees with the winner's actions.
func (w *winner) noteOf(path string) (n *rewriteNote, from int) {
	if w.notes == nil {
		w.notes = map[string]noted{}
		all := parseRewriteNotes(w.info.Tags[rewriteTag])
		for i := range all {
			if n := &all[i]; n.fits(w.changes()) {
				for j := range n.From {
					w.notes[canonicalPath(n.From[j].Path)] = noted{n, j}
				}
			}
		}
	}
	at := w.notes[path]
	return at.note, at.from
}

// noted is a file of the From of a note.
type noted struct {
	note *rewriteNote
	from int
}

// moveMark finds the rows that the transaction deletes of a file in the files of a winner that rewrote it, where the
// winner's note tells of them. A note is believed if it agrees with the actions of its commit, the number of rows and the
// deletion vectors, before and after; else the rewrite is a conflict, as is one without a note.
func (c *committer) moveMark(ctx context.Context, w *winner, m *mark, f *fileChange) ([]*mark, error) {
	givesUp := func(why string) ([]*mark, error) {
		return nil, w.conflict(ConflictDelete, "it rewrote the file %s, rows of which are to be deleted: %s", m.file.Path, why)
	}
	n, from := w.noteOf(m.key)
	switch {
	case n == nil:
		return givesUp("where they went is not known")
	case f.remove.DeletionVector.id() != m.file.DeletionVector.id():
		return givesUp("other rows of it were deleted")
	}
	unread, err := c.vectorRows(ctx, n.From[from].DeletionVector)
	if err != nil && !store.Retryable(err) && ctx.Err() == nil {
		return givesUp("what it read cannot be told: " + err.Error())
	}
	var physical int64
	if err == nil {
		err = c.retry(ctx, func() (err error) {
			if physical, err = c.base.physicalRows(ctx, &m.file); err != nil {
				return err
			}
			return m.read(ctx, c.base)
		})
	}
	if err != nil {
		return nil, err
	}
	back, since := roaring64.AndNot(unread, m.gone), roaring64.AndNot(m.gone, unread)
	places, hidden := n.place(from, unread, m.rows), n.place(from, unread, since)
	if !back.IsEmpty() || physical-int64(unread.GetCardinality()) != n.From[from].Rows || places == nil || hidden == nil {
		return givesUp("what it tells of them is not so")
	}
	var moved []*mark
	for i := range n.To {
		to, why, err := c.moveTo(ctx, w, &n.To[i], places[i], hidden[i])
		if err != nil {
			return nil, err
		}
		if why != "" {
			return givesUp(why)
		}
		if to != nil {
			moved = append(moved, to)
		}
	}
	return moved, nil
}

// moveTo makes the mark of the rows that lie in a winner's file now. hidden are rows that its vector must name. It is nil
// when no rows lie there; why says what is wrong.
func (c *committer) moveTo(ctx context.Context, w *winner, file *noteFile, rows, hidden *roaring64.Bitmap,
) (m *mark, why string, err error) {
	if rows.IsEmpty() && hidden.IsEmpty() {
		return nil, "", nil
	}
	key := canonicalPath(file.Path)
	f := w.changes()[key]
	if f == nil { // a winner's file that lost all rows is not added
		if rows.IsEmpty() {
			return nil, "", nil
		}
		return nil, "they have been deleted", nil
	}
	gone, err := c.vectorRows(ctx, f.add.DeletionVector)
	if err != nil {
		return nil, "", err
	}
	switch hidden.AndNot(gone); {
	case !hidden.IsEmpty():
		return nil, "rows that had been deleted came back", nil
	case gone.Intersects(rows):
		return nil, "some of them have been deleted", nil
	case rows.IsEmpty():
		return nil, "", nil
	}
	return &mark{key: key, file: *f.add, rows: rows, gone: gone}, "", nil
}
