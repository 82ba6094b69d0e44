package delta

// Place is where a row that was written lies.
type Place struct {
	File int   // index into what Close returns
	Row  int64 // physical position in the file
}

// placer notes where a Writer puts rows: of each the number of its file in the order in which they were begun, and, once
// files are closed, which add that became.
type placer struct {
	files []int32 // of each row, in the order of Write: the file's number
	rows  []int64 // likewise: its position
	adds  []int   // of each number: the index of its add
	ended bool    // rows that come now are not noted
}

// begin returns the number of a file that is begun.
func (p *placer) begin() int {
	p.adds = append(p.adds, -1)
	return len(p.adds) - 1
}

// end has rows that come from now on not be noted. p may be nil.
func (p *placer) end() {
	if p != nil {
		p.ended = true
	}
}

// extend makes room for n more rows, and returns the first of them. p may be nil.
func (p *placer) extend(n int) (first int) {
	if p == nil || p.ended {
		return 0
	}
	first = len(p.files)
	p.files = append(p.files, make([]int32, n)...)
	p.rows = append(p.rows, make([]int64, n)...)
	return first
}

// put notes that these rows of the batch that begins at first lie in the file from position at on. p may be nil.
func (p *placer) put(first int, rows []int32, file int, at int64) {
	if p == nil || p.ended {
		return
	}
	for i, row := range rows {
		p.files[first+int(row)] = int32(file)
		p.rows[first+int(row)] = at + int64(i)
	}
}

// Places tells, after Close, of each row in the order of Write where it lies; nil without WriterOptions.Places.
func (w *Writer) Places() []Place {
	if w.placer == nil {
		return nil
	}
	out := make([]Place, len(w.placer.files))
	for i, f := range w.placer.files {
		out[i] = Place{w.placer.adds[f], w.placer.rows[i]}
	}
	return out
}
