package delta

// fileTotals are how many files a version has, and their bytes.
type fileTotals struct{ files, bytes int64 }

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
		t.files, t.bytes = t.files+1, t.bytes+a.Add.Size
		if !a.Add.DataChange {
			t.moved++
		}
	case a.Remove != nil:
		t.files, t.bytes = t.files-1, t.bytes-deref(a.Remove.Size)
		t.removes++
		t.unsure = t.unsure || a.Remove.Size == nil
	}
}

// without takes back files that were there before and are committed anew.
func (t *fileTally) without(files []Add) {
	for i := range files {
		t.files, t.bytes = t.files-1, t.bytes-files[i].Size
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
	now := &fileTotals{before.files + t.files, before.bytes + t.bytes}
	if now.files < 0 || now.bytes < 0 {
		return nil
	}
	return now
}
