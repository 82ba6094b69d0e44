package lake

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// historyWriter puts a history into an edit of the table.
type historyWriter struct {
	*history
	*upsertWriter       // of the same upsert
	losing        []int // the numbers that the edit gave to the files of past
}

// keyRows are what becomes of the rows of one key.
type keyRows struct {
	put  []period // rows to write
	was  []int32  // of each of put: the stored row in whose place it comes, or noRow
	gone []int32  // stored rows that go, without one in their place
}

// put puts the history into the edit. What makes rows that the table does not accept becomes rejects.
func (h *history) put(ctx context.Context, of *upsertWriter) error {
	w := &historyWriter{history: h, upsertWriter: of}
	for _, file := range h.past.files {
		n, ok := of.paths[file.Path]
		if !ok {
			n = of.edit.Lose(file)
			of.paths[file.Path] = n
		}
		w.losing = append(w.losing, n)
	}
	var keys []int
	n := 0
	for i, periods := range h.periods {
		if periods == nil {
			continue
		}
		keys, n = append(keys, i), n+len(periods)
		if n >= writeRows {
			if err := w.putKeys(ctx, keys); err != nil {
				return err
			}
			keys, n = nil, 0
		}
	}
	return w.putKeys(ctx, keys)
}

// differs finds the rows of a key that are not as they are stored.
func (h *history) differs(i int) (k keyRows) {
	left := map[string]period{} // by when they began
	for _, p := range h.had[i] {
		left[p.from] = p
	}
	for _, p := range h.periods[i] {
		was, is := left[p.from]
		delete(left, p.from)
		says := len(p.row.rows) == 0 && p.row.stored == was.row.stored
		switch {
		case !is:
			k.put, k.was = append(k.put, p), append(k.was, noRow)
		case !says || was.to != p.to || was.last != p.last || !slices.Equal(was.also, p.also):
			k.put, k.was = append(k.put, p), append(k.was, was.row.stored)
		}
	}
	for _, p := range left {
		k.gone = append(k.gone, p.row.stored)
	}
	slices.Sort(k.gone)
	return k
}

// putKeys writes the rows of these keys that are not as they are stored.
func (w *historyWriter) putKeys(ctx context.Context, keys []int) error {
	var all keyRows
	of := []int{} // of each of put: the key
	for _, i := range keys {
		k := w.differs(i)
		all.put, all.was, all.gone = append(all.put, k.put...), append(all.was, k.was...), append(all.gone, k.gone...)
		for range k.put {
			of = append(of, i)
		}
	}
	replaced := len(all.was)
	for _, row := range all.was {
		if row == noRow {
			replaced--
		}
	}
	var whole arrow.RecordBatch
	if len(all.put) > 0 {
		rows, err := w.assemblePeriods(all.put)
		if err != nil {
			return err
		}
		whole, err = w.edit.Write(ctx, rows, replaced)
		rows.Release()
		if err != nil {
			return w.refused(ctx, keys, err)
		}
		defer whole.Release()
	}
	return w.noteRows(ctx, &all, of, whole)
}

// noteRows takes out rows that others come in the place of, or none, and tells of it.
func (w *historyWriter) noteRows(ctx context.Context, all *keyRows, of []int, whole arrow.RecordBatch) error {
	var inserted, updated, from []int32
	width := w.history.index.identity.SequenceBytes
	for n, p := range all.put {
		key := keyindex.Fingerprint{} // of a row that is not the newest
		if p.last != "" {
			key = w.ids[of[n]]
		}
		w.news.write(key, w.orderOfPeriod(of[n], &p, width))
		if all.was[n] == noRow {
			inserted = append(inserted, int32(n))
			continue
		}
		updated, from = append(updated, int32(n)), append(from, all.was[n])
	}
	stored := w.history.past
	for file, rows := range stored.places(from) {
		w.edit.Replace(w.losing[file], rows)
		w.news.lose(stored.files[file].Path)
	}
	for file, rows := range stored.places(all.gone) {
		w.edit.Delete(w.losing[file], rows)
		w.news.lose(stored.files[file].Path)
	}
	if !w.history.feed {
		return nil
	}
	for _, t := range []struct {
		kind string
		of   arrow.RecordBatch
		rows []int32
	}{{delta.ChangeInsert, whole, inserted}, {delta.ChangePreimage, stored.rows, from}, {delta.ChangePostimage, whole, updated},
		{delta.ChangeDelete, stored.rows, all.gone}} {
		if err := w.tell(ctx, t.kind, t.of, t.rows); err != nil {
			return err
		}
	}
	return nil
}

// places are the rows by file.
func (s *storedPeriods) places(rows []int32) map[int][]int64 {
	out := map[int][]int64{}
	for _, row := range rows {
		at := s.spots[row]
		out[at.file] = append(out[at.file], at.row)
	}
	return out
}

// orderOfPeriod is what the index keeps of the newest period of a key; nothing of others.
func (h *history) orderOfPeriod(i int, p *period, width int) []byte {
	switch {
	case p.last == "":
		return make([]byte, width)
	case p.by != noRow:
		return newOrder([]byte(p.last), h.rows.lane(p.by), h.rows.seq(p.by))
	case h.there(i) && p.last == h.lastSaid(i):
		return h.index.orderOf(h.known, i)
	}
	return append([]byte(p.last), make([]byte, orderTail)...)
}

// assemblePeriods makes rows of periods.
func (h *history) assemblePeriods(periods []period) (arrow.RecordBatch, error) {
	return h.tableRows(len(periods), func(i int, f *delta.Field) (arrow.Array, error) {
		return h.periodColumn(i, f, periods)
	})
}

// periodColumn is one column of assemblePeriods; nil for one that the writer fills in.
func (h *history) periodColumn(i int, f *delta.Field, periods []period) (arrow.Array, error) {
	names := h.t.opts.Periods
	typ := delta.ArrowType(f.Type)
	moments := func(of func(*period) string) arrow.Array {
		b := array.NewBuilder(memory.DefaultAllocator, typ)
		defer b.Release()
		for n := range periods {
			appendMoment(b, of(&periods[n]))
		}
		return b.NewArray()
	}
	is := func(name string) bool { return containsFold([]string{name}, f.Name) }
	switch {
	case is(names.From), containsFold(h.t.opts.Key.SequenceBy, f.Name):
		return moments(func(p *period) string { return p.from }), nil
	case is(names.To):
		return moments(func(p *period) string { return p.to }), nil
	case is(LastSaidColumn):
		return moments(func(p *period) string { return p.last }), nil
	case is(names.Current):
		b := array.NewBooleanBuilder(memory.DefaultAllocator)
		defer b.Release()
		for n := range periods {
			b.Append(periods[n].to == "")
		}
		return b.NewArray(), nil
	case is(AlsoSaidColumn):
		return alsoSaid(typ, periods), nil
	case f.Generated():
		return nil, nil
	}
	if ours, is := fillNamed(h.t.fills, f.Name); is {
		return h.fillPeriods(i, f, ours, periods)
	}
	cells := make([]cell, len(periods))
	for n := range periods {
		cells[n] = h.cells.cell(periods[n].row, i)
	}
	fresh, stored, err := h.sources(i)
	if err != nil {
		return nil, err
	}
	return takeCells(f, fresh, stored, cells)
}

// sources are the column as it came and as it is stored; nil where it is not.
func (h *history) sources(column int) (fresh, stored arrow.Array, err error) {
	at := h.cells.columns[column]
	if at.fresh >= 0 {
		fresh, err = h.rows.column(at.fresh)
	}
	if at.stored >= 0 {
		stored = h.cells.stored.Column(at.stored)
	}
	return fresh, stored, err
}

// fillPeriods is a column that the target fills: from the change that the period began with, or as it is stored.
func (h *history) fillPeriods(column int, f *delta.Field, ours fill, periods []period) (arrow.Array, error) {
	var began []int32
	cells := make([]cell, len(periods))
	for n := range periods {
		row := periods[n].row
		switch {
		case len(row.rows) > 0:
			cells[n] = cell{fromRows, int32(len(began))}
			began = append(began, row.rows[0])
		case h.cells.columns[column].stored >= 0:
			cells[n] = cell{fromStored, row.stored}
		default:
			cells[n] = cell{from: fromNowhere}
		}
	}
	fresh := ours.column(len(began), func(i int) cause { return h.cause(began[i]) })
	defer fresh.Release()
	var stored arrow.Array
	if at := h.cells.columns[column].stored; at >= 0 {
		stored = h.cells.stored.Column(at)
	}
	return takeCells(f, fresh, stored, cells)
}

func alsoSaid(typ arrow.DataType, periods []period) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, typ).(*array.ListBuilder)
	defer b.Release()
	for n := range periods {
		b.Append(len(periods[n].also) > 0)
		for _, at := range periods[n].also {
			appendMoment(b.ValueBuilder(), at)
		}
	}
	return b.NewArray()
}

// appendMoment appends the value of which a sequencer of one column made the text; null for "".
func appendMoment(b array.Builder, text string) {
	if text == "" {
		b.AppendNull()
		return
	}
	appendSequence(b, []byte(text))
}
