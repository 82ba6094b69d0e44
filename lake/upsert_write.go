package lake

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// upsertWriter puts an upsert into an edit of the table.
type upsertWriter struct {
	*upsert
	edit    *delta.Edit
	numbers map[keyindex.FileID]int // that the edit gave to files which may lose rows
	paths   map[string]int          // the same of a history's, by path
	news    indexNews
	shared  bool // the upsert is one of several in the edit

	tombs *tombstoneWriter // nil: no key was deleted yet
	ended map[int32]string // what is among tombs: commit.ended to be
	log   *logWriter       // nil: no delete was to be logged yet
}

// begin begins an edit of the snapshot, which empties the table if it is to be.
func (u *upsert) begin(ctx context.Context, meta *delta.Metadata, shared bool) (*upsertWriter, error) {
	w := &upsertWriter{upsert: u, numbers: map[keyindex.FileID]int{}, paths: map[string]int{}, shared: shared}
	w.news.unnoted = shared
	copies := u.t.opts.Key.CopyOnWrite
	opts := &delta.DMLOptions{TargetFileBytes: u.t.opts.TargetFileBytes, Buffers: &u.t.a.buffers}
	if copies {
		opts.CopyOnWrite = &copies
	}
	var err error
	if w.edit, err = u.snap.Edit(meta, opts); err != nil {
		return nil, err
	}
	if shared {
		w.edit.Unplaced()
	}
	if err := w.empty(ctx); err != nil {
		return nil, errors.Join(err, w.abort(ctx))
	}
	return w, nil
}

// abort drops what was written and no commit took.
func (w *upsertWriter) abort(ctx context.Context) error {
	w.tombs.abort(w.t)
	w.log.abort(w.t)
	return w.edit.Abort(context.WithoutCancel(ctx))
}

// putAll puts the upsert into the edit.
func (w *upsertWriter) putAll(ctx context.Context) error {
	var put, gone []int
	for i, a := range w.acts {
		if a == actUpdate || a == actDelete {
			w.number(w.at[i].File)
		}
		switch a {
		case actInsert, actUpdate:
			put = append(put, i)
		case actDelete:
			gone = append(gone, i)
		}
	}
	put = w.asTheyCame(put)
	w.news.expect(len(put))
	for len(put) > 0 {
		n := w.atOnce(put)
		if err := w.putKeys(ctx, put[:n]); err != nil {
			return err
		}
		put = put[n:]
	}
	return w.deleteKeys(ctx, gone)
}

// atOnce is how many of the keys, as they came, are written at once: of those of one batch, if they are enough, since what
// lies in one array need not be copied.
func (u *upsert) atOnce(keys []int) int {
	most := min(len(keys), writeRows)
	batch := func(n int) int32 { return u.rows.from[u.keys[keys[n]].last] }
	for n := enoughRows; n < most; n++ {
		if batch(n) != batch(n-1) {
			return n
		}
	}
	return most
}

// asTheyCame puts keys in the order of the rows that changed them last, so that what came together lies together.
func (u *upsert) asTheyCame(keys []int) []int {
	of := make([]int32, len(u.rows.kinds)) // of each row: its key, plus one
	for _, i := range keys {
		of[u.keys[i].last] = int32(i) + 1
	}
	keys = keys[:0]
	for _, i := range of {
		if i > 0 {
			keys = append(keys, int(i)-1)
		}
	}
	return keys
}

// empty takes all files out, if the table is to be emptied before the rows come.
func (w *upsertWriter) empty(ctx context.Context) error {
	if !w.rows.empties {
		return nil
	}
	w.feed = false // what is left are new rows: readers take both from the files
	for add, err := range w.snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return err
		}
		w.edit.Empty(*add)
		w.news.lose(add.Path)
	}
	return nil
}

// number gives a file its place among those that may lose rows.
func (w *upsertWriter) number(id keyindex.FileID) {
	if _, ok := w.numbers[id]; !ok {
		w.numbers[id] = w.edit.Lose(w.files[id])
		w.news.lose(w.files[id].Path)
	}
}

// putKeys writes the rows of these keys. A row that the table refuses is found by halves.
func (w *upsertWriter) putKeys(ctx context.Context, keys []int) error {
	rows, err := w.assemble(w.puts(keys))
	if err != nil {
		return err
	}
	defer rows.Release()
	updated := 0
	for _, i := range keys {
		if w.acts[i] == actUpdate {
			updated++
		}
	}
	whole, err := w.edit.Write(ctx, rows, updated)
	code, why, refused := refusedRow(err)
	switch {
	case err == nil:
		defer whole.Release()
		return w.put(ctx, keys, whole)
	case !refused:
		return err
	case len(keys) > 1:
		if err := w.putKeys(ctx, keys[:len(keys)/2]); err != nil {
			return err
		}
		return w.putKeys(ctx, keys[len(keys)/2:])
	}
	act, err := w.refuse(ctx, keys[0], code, why)
	if err != nil {
		return err
	}
	switch act {
	case actInsert, actUpdate:
		return w.putKeys(ctx, keys)
	case actDelete:
		return w.deleteKeys(ctx, keys)
	}
	return nil
}

// put takes note of rows that were written, and takes out those whose place they take.
func (w *upsertWriter) put(ctx context.Context, keys []int, whole arrow.RecordBatch) error {
	var inserted, updated []int32
	var of []int
	for n, i := range keys {
		w.news.write(w.entry(i), w.keys[i].order)
		if w.acts[i] == actInsert {
			inserted = append(inserted, int32(n))
			continue
		}
		updated, of = append(updated, int32(n)), append(of, i)
	}
	for file, rows := range w.places(of) {
		w.edit.Replace(file, rows)
	}
	if !w.feed {
		return nil
	}
	if err := w.tell(ctx, delta.ChangeInsert, whole, inserted); err != nil {
		return err
	}
	if err := w.tell(ctx, delta.ChangePreimage, w.storedBatch(), w.storedOf(of)); err != nil {
		return err
	}
	return w.tell(ctx, delta.ChangePostimage, whole, updated)
}

// deleteKeys takes the rows of these keys out.
func (w *upsertWriter) deleteKeys(ctx context.Context, keys []int) error {
	for file, rows := range w.places(keys) {
		w.edit.Delete(file, rows)
	}
	for _, i := range keys {
		w.news.remove(w.keys[i].key)
	}
	if !w.feed || len(keys) == 0 {
		return nil
	}
	return w.tell(ctx, delta.ChangeDelete, w.storedBatch(), w.storedOf(keys))
}

// places are the rows in which these keys lie, by the number of their file.
func (w *upsertWriter) places(keys []int) map[int][]int64 {
	rows := map[int][]int64{}
	for _, i := range keys {
		file := w.numbers[w.at[i].File]
		rows[file] = append(rows[file], w.at[i].Row)
	}
	return rows
}

func (w *upsertWriter) storedBatch() arrow.RecordBatch {
	if w.stored == nil {
		return nil
	}
	return w.stored.rows
}

// storedOf are the stored rows of these keys.
func (u *upsert) storedOf(keys []int) []int32 {
	out := make([]int32, len(keys))
	for n, i := range keys {
		out[n] = u.stored.of[i]
	}
	return out
}

// tell records change data of these rows of a batch.
func (w *upsertWriter) tell(ctx context.Context, kind string, batch arrow.RecordBatch, rows []int32) error {
	if len(rows) == 0 {
		return nil
	}
	some := expr.TakeBatch(batch, expr.SpansOf(rows))
	defer some.Release()
	return w.edit.Tell(ctx, kind, some)
}

// put is a row of the table in the making: what the changes of a key make of the row that is stored, or noRow.
type put struct {
	*keyChange
	stored int32
}

// puts are the rows that the table is to have under these keys.
func (u *upsert) puts(keys []int) []put {
	all := make([]put, len(keys))
	for n, i := range keys {
		all[n] = put{&u.keys[i], noRow}
		if row, ok := u.storedRow(i); ok {
			all[n].stored = row
		}
	}
	return all
}

// assemble makes the rows: of each cell what the last change that sent it says, else what is stored.
func (u *upsert) assemble(puts []put) (arrow.RecordBatch, error) {
	whole := u.wholeRows(puts)
	return u.tableRows(len(puts), func(_ int, f *delta.Field) (arrow.Array, error) {
		return u.assembleColumn(f, puts, whole)
	})
}

// tableRows makes so many rows of the table, column by column: nil for one that the writer fills in.
func (u *upsert) tableRows(rows int, column func(i int, f *delta.Field) (arrow.Array, error)) (arrow.RecordBatch, error) {
	var fields []arrow.Field
	var columns []arrow.Array
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i := range u.schema.Fields {
		f := &u.schema.Fields[i]
		made, err := column(i, f)
		if err != nil {
			return nil, err
		}
		if made != nil {
			fields = append(fields, arrow.Field{Name: f.Name, Type: made.DataType(), Nullable: true})
			columns = append(columns, made)
		}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(rows)), nil
}

// wholeRows are the rows of the last changes; nil when one of them does not say all that the source has.
func (u *upsert) wholeRows(puts []put) *picked {
	rows := make([]int32, len(puts))
	for n, k := range puts {
		if k.delete || u.rows.unsent.Any(int(k.last)) {
			return nil
		}
		rows[n] = k.last
	}
	return u.rows.pick(rows)
}

// assembleColumn is one column of assemble; nil for one that the writer fills in. whole is wholeRows.
func (u *upsert) assembleColumn(f *delta.Field, puts []put, whole *picked) (arrow.Array, error) {
	at := columnNamed(u.rows.schema, f.Name)
	if ours, is := fillNamed(u.t.fills, f.Name); is {
		return u.fill(ours, puts), nil
	}
	switch {
	case at < 0 && (u.stored == nil || f.Generated() || f.Name == DeletedAtColumn):
		return nil, nil
	case at >= 0 && whole != nil:
		return u.rows.take(at, whole)
	}
	var fresh arrow.Array
	if at >= 0 {
		var err error
		if fresh, err = u.rows.column(at); err != nil {
			return nil, err
		}
	}
	stored := u.stored.column(f.Name)
	cells := make([]cell, len(puts))
	for n, k := range puts {
		row, sent := u.sentBy(k.keyChange, at)
		switch {
		case sent:
			cells[n] = cell{fromRows, row}
		case k.stored != noRow && stored != nil:
			cells[n] = cell{fromStored, k.stored}
		default:
			cells[n] = cell{from: fromNowhere}
		}
	}
	return takeCells(f, fresh, stored, cells)
}

// cell is where the value of a cell of a column is.
type cell struct {
	from cellFrom
	row  int32
}

type cellFrom int32

const (
	fromRows    cellFrom = iota // the commit's
	fromStored                  // as they are in the table
	fromNowhere                 // null
)

// takeCells makes a column of the table of cells. A source that no cell is in may be nil.
func takeCells(f *delta.Field, fresh, stored arrow.Array, cells []cell) (arrow.Array, error) {
	null := array.MakeArrayOfNull(memory.DefaultAllocator, delta.ArrowType(f.Type), 1)
	defer null.Release()
	used := [3]expr.Span{} // of each source, from the first row that a cell is in to the last
	for _, c := range cells {
		s := &used[c.from]
		if s.To == 0 {
			s.From = int(c.row)
		}
		s.From, s.To = min(s.From, int(c.row)), max(s.To, int(c.row)+1)
	}
	base := [3]int32{}
	var parts []arrow.Array
	var n int32
	for i, source := range []arrow.Array{fresh, stored, null} {
		if s := used[i]; s.To > 0 {
			part := array.NewSlice(source, int64(s.From), int64(s.To))
			defer part.Release()
			parts = append(parts, part)
			base[i] = n - int32(s.From)
			n += int32(part.Len())
		}
	}
	rows := make([]int32, len(cells))
	for i, c := range cells {
		rows[i] = base[c.from] + c.row
	}
	switch len(parts) {
	case 0:
		return array.NewSlice(null, 0, 0), nil
	case 1:
		return expr.Take(parts[0], expr.SpansOf(rows)), nil
	}
	all, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	defer all.Release()
	return expr.Take(all, expr.SpansOf(rows)), nil
}

// sentBy is the row of the last change of the key that sent the column.
func (u *upsert) sentBy(k *keyChange, column int) (row int32, sent bool) {
	switch {
	case column < 0:
		return 0, false
	case k.delete && k.moved != noRow && u.orders(column):
		return k.moved, true
	case !k.delete && !u.rows.unsent.Has(int(k.last), column):
		return k.last, true
	}
	for _, row := range k.rest().older {
		if !u.rows.unsent.Has(int(row), column) {
			return row, true
		}
	}
	return 0, false
}

// storedRow is the row that is stored under the key, as far as the row that comes in its place keeps what it says.
func (u *upsert) storedRow(i int) (row int32, ok bool) {
	if u.stored == nil || !u.keys[i].based {
		return 0, false
	}
	row, ok = u.stored.of[i]
	return row, ok
}

// fill is a column that the target fills.
func (u *upsert) fill(f fill, puts []put) arrow.Array {
	return f.column(len(puts), func(n int) cause {
		c := u.cause(puts[n].last)
		if puts[n].delete {
			c.kind = freshet.Delete
		}
		return c
	})
}

// cause is the change that a row of the gathered ones says.
func (u *upsert) cause(row int32) cause {
	from := u.rows.from[row]
	if u.causes[from] == nil {
		u.causes[from] = newCauses(u.rows.batches[from])
	}
	return u.causes[from].at(int(u.rows.row[row]))
}
