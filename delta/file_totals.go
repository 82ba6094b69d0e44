package delta

// fileTotals are how many files a version has, and their bytes; how many of them have a deletion vector, and how many rows
// these name.
type fileTotals struct {
	files, bytes     int64
	vectors, deleted int64 // vectors is negative when both are not known
}

// add counts a file in, or, by -1, out.
func (t *fileTotals) add(size int64, v *DeletionVector, by int64) {
	t.files, t.bytes = t.files+by, t.bytes+by*size
	if v != nil {
		t.vectors, t.deleted = t.vectors+by, t.deleted+by*v.Cardinality
	}
}

// agree reports whether they are the same as far as both are known.
func (t fileTotals) agree(with fileTotals) bool {
	if t.vectors < 0 || with.vectors < 0 {
		return t.files == with.files && t.bytes == with.bytes
	}
	return t == with
}

// fileTally adds up what the file actions of one commit do to the totals.
type fileTally struct {
	fileTotals
	removes int
	moved   int  // adds that change no data
	unsure  bool // a file was removed whose size is not told
}

func (t *fileTally) take(a *Action) {
	switch {
	case a.Add != nil:
		t.add(a.Add.Size, a.Add.DeletionVector, 1)
		if !a.Add.DataChange {
			t.moved++
		}
	case a.Remove != nil:
		t.add(deref(a.Remove.Size), a.Remove.DeletionVector, -1)
		t.removes++
		t.unsure = t.unsure || a.Remove.Size == nil
	}
}

// without takes back files that were there before and are committed anew.
func (t *fileTally) without(files []Add) {
	for i := range files {
		t.add(files[i].Size, files[i].DeletionVector, -1)
		if !files[i].DataChange {
			t.moved--
		}
	}
}

// after are the totals once the commit is there; nil when they cannot be told: before is nil, a removed file
// has no size, or the commit only adds and changes no data, so that its files may have been there.
func (t *fileTally) after(before *fileTotals) *fileTotals {
	if before == nil || t.unsure || t.moved > 0 && t.removes == 0 {
		return nil
	}
	now := &fileTotals{files: before.files + t.files, bytes: before.bytes + t.bytes, vectors: -1}
	if now.files < 0 || now.bytes < 0 {
		return nil
	}
	vectors, deleted := before.vectors+t.vectors, before.deleted+t.deleted
	if before.vectors >= 0 && vectors >= 0 && deleted >= 0 {
		now.vectors, now.deleted = vectors, deleted
	}
	return now
}
