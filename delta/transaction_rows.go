package delta

import (
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// mark is the rows that a transaction deletes of one file.
type mark struct {
	key  string            // canonical path
	file Add               // as it stands in the version that is built upon
	rows *roaring64.Bitmap // what the transaction deletes
	gone *roaring64.Bitmap // what file.DeletionVector names; nil until it is read
}

// DeleteRows marks rows, by their physical positions from 0 on, of a live file as deleted; file is as the snapshot
// gave it, with its statistics. At Commit its vector in the version that is built upon and rows become one new
// vector; all vectors of a commit lie in one object. A file that loses its last row is removed, one that loses none
// is left alone. Deleting rows of one file twice adds up. A winner that deleted other rows of the file is merged
// with, and the rows are found again in the files of one that packed it together with others (Rewrite with Origins, by
// this package); if it deleted one of these rows too, or put them where that cannot be told, that is a conflict of kind
// ConflictDelete. rows belongs to tx afterwards. The table must have delta.enableDeletionVectors, unless no file keeps rows.
//
// A DELETE or an UPDATE that found the rows by a condition says ReadWhere besides, and does not say ReadFiles:
// otherwise no winner that deleted other rows of the file could be merged with. A row that the file has lost already in
// the version that file shows makes Commit fail with ErrRowGone. Spec: "Deletion Vectors".
func (tx *Transaction) DeleteRows(file Add, rows *roaring64.Bitmap) {
	tx.mark(&mark{key: canonicalPath(file.Path), file: file, rows: rows})
}

// mark adds a mark, or its rows to the one that its file has.
func (tx *Transaction) mark(m *mark) {
	if old := tx.marked[m.key]; old != nil {
		old.rows.Or(m.rows)
		return
	}
	tx.marks = append(tx.marks, m)
	if tx.marked == nil {
		tx.marked = map[string]*mark{}
	}
	tx.marked[m.key] = m
}

// Rewrite replaces files by others that hold the same rows, as OPTIMIZE does.
type Rewrite struct {
	Removed []Add // as the snapshot gave them
	Added   []Add
	// Origins tell for each of Added, in the order of its rows, where they came from; nil when it is not known.
	Origins [][]Origin
}

// Origin is a run of rows of a new file that lay one after another in an old one. Rows that the old file's
// deletion vector named are no part of it: a run ends before them.
type Origin struct {
	File  int   // index into Rewrite.Removed
	First int64 // physical position of the first row in the old file
	Rows  int64
}

// rewrite is a Rewrite and what winners did to its rows.
type rewrite struct {
	Rewrite
	gone  []*roaring64.Bitmap // of each of Removed, what its vector names; nil until it is read
	taken []bool              // of each of Removed, whether a winner has removed it
	lost  []*roaring64.Bitmap // of each of Added, the rows that winners have deleted; nil: none
	note  *rewriteNote        // of what was read, whatever winners did; nil: there is none
}

// Rewrite replaces files by others that hold the same rows. DataChange of all its actions becomes false, so that
// nobody takes them for changes. A winner that deleted rows of a removed file, or all of it, is made good for: their
// places in the new files are found through Origins, and a vector hides them there. Without Origins, or where the
// table has no delta.enableDeletionVectors, or when the winner rewrote the file too, the rewrite gives way with a
// conflict of kind ConflictDelete. Where Origins keep the rows of each file together and in their order, the commit notes
// where they went, so that others who lose a race to it can go on with rows that they delete. A rewrite says neither
// ReadFiles nor ReadWhere.
func (tx *Transaction) Rewrite(r Rewrite) {
	r.Removed = slices.Clone(r.Removed)
	tx.rewrites = append(tx.rewrites, &rewrite{Rewrite: r, taken: make([]bool, len(r.Removed)),
		gone: make([]*roaring64.Bitmap, len(r.Removed)), lost: make([]*roaring64.Bitmap, len(r.Added))})
}

// check finds what is wrong with a rewrite whatever it is built upon.
func (r *rewrite) check() error {
	if r.Origins == nil {
		return nil
	}
	if len(r.Origins) != len(r.Added) {
		return fmt.Errorf("a rewrite has origins of %d files, and adds %d", len(r.Origins), len(r.Added))
	}
	bad := func(o Origin) bool {
		return o.File < 0 || o.File >= len(r.Removed) || o.First < 0 || o.Rows < 0
	}
	for _, runs := range r.Origins {
		if i := slices.IndexFunc(runs, bad); i >= 0 {
			return fmt.Errorf("a rewrite of %d files has an origin that is none: %+v", len(r.Removed), runs[i])
		}
	}
	return nil
}
