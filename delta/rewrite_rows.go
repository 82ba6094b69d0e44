package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// rowEdit gathers what one attempt of an operation does to a table's rows. Rows that go are noted by file and position;
// rows that come, new ones and the new form of old ones, are written. How a file loses rows is settled at the end: they
// are marked in a deletion vector, or what is left of the file is copied next to the rows that come.
type rowEdit struct {
	table  *Table
	snap   *Snapshot
	opts   *DMLOptions
	meta   *Metadata // of the version to come
	proto  *Protocol
	schema *Schema // of meta

	byVector bool // rows are marked, files are not rewritten
	feed     bool // the table records change data
	tracked  bool // rows keep their ids
	fresh    bool // rows that come were never in the table
	places   bool // where rows land is asked for

	files []Add               // that may lose rows
	gone  []*roaring64.Bitmap // of each of files, the rows that go; nil: none
	whole []Add               // files that go without being read

	given    []Add // files of rows that came before the attempt
	givenCDC []CDC // change data that tells of these

	data    *Writer // of rows that come; nil: none so far
	changes *Writer // of change data; nil: none so far

	inserted, updated, deleted, copied int64

	watch stopwatch
}

// newRowEdit begins an attempt on a version of the table; meta is the metadata to come, nil for what the version has.
// Errors: *UnsupportedError.
func newRowEdit(snap *Snapshot, opts *DMLOptions, meta *Metadata) (*rowEdit, error) {
	e := &rowEdit{table: snap.Table(), snap: snap, opts: opts, meta: snap.Metadata(), proto: snap.Protocol(),
		schema: snap.Schema(), watch: stopwatch{start: time.Now()}}
	if meta != nil {
		e.meta = meta
		var err error
		if e.schema, err = ParseSchema(meta.SchemaString); err != nil {
			return nil, err
		}
	}
	if err := checkWrite(e.proto); err != nil {
		return nil, err
	}
	vectors := e.proto.Supports("deletionVectors") && e.meta.boolean(propDeletionVectors, false)
	e.byVector = vectors
	if opts.CopyOnWrite != nil {
		e.byVector = !*opts.CopyOnWrite
	}
	if e.byVector && !vectors {
		return nil, errors.New("rows are to be marked as deleted, and the table has no deletion vectors: set " +
			"delta.enableDeletionVectors, or copy on write")
	}
	e.feed = e.proto.Supports("changeDataFeed") && e.meta.boolean("delta.enableChangeDataFeed", false)
	e.tracked = tracksRows(e.meta)
	return e, nil
}

// find notes the files that may hold rows for which where is true.
func (e *rowEdit) find(ctx context.Context, where *expr.Expr) error {
	for add, err := range e.snap.Matching(ctx, where) {
		if err != nil {
			return err
		}
		e.files = append(e.files, *add)
	}
	e.gone = make([]*roaring64.Bitmap, len(e.files))
	return nil
}

// scan reads these of the files, by their numbers, and tells progress.
func (e *rowEdit) scan(ctx context.Context, step string, which []int, opts ScanOptions, take func(FileRows) error) error {
	files := make([]Add, len(which))
	for i, n := range which {
		files[i] = e.files[n]
	}
	opts.Concurrency, opts.RowIDs = e.opts.Concurrency, opts.RowIDs && e.tracked
	last := -1
	for rows, err := range e.snap.ScanFiles(ctx, files, &opts) {
		if err != nil {
			return err
		}
		if rows.File != last {
			e.opts.progress(step, rows.File, len(files))
			last = rows.File
		}
		rows.File = which[rows.File]
		err = take(rows)
		rows.Batch.Release()
		if err != nil {
			return err
		}
	}
	e.opts.progress(step, len(files), len(files))
	return nil
}

// allFiles are the numbers of all files.
func (e *rowEdit) allFiles() []int {
	out := make([]int, len(e.files))
	for i := range out {
		out[i] = i
	}
	return out
}

// take notes rows that go.
func (e *rowEdit) take(file int, rows []int64) {
	b := e.gone[file]
	if b == nil {
		b = roaring64.New()
		e.gone[file] = b
	}
	for _, r := range rows {
		b.Add(uint64(r))
	}
}

// deleteRows takes rows out; with told, change data says so, from the rows themselves.
func (e *rowEdit) deleteRows(ctx context.Context, file int, rows []int64, told arrow.RecordBatch) error {
	e.take(file, rows)
	e.deleted += int64(len(rows))
	if told == nil {
		return nil
	}
	return e.tell(ctx, ChangeDelete, told)
}

// updateRows replaces rows: after is all that the table has of them from now on. before is needed where the table
// records change data.
func (e *rowEdit) updateRows(ctx context.Context, file int, rows []int64, before, after arrow.RecordBatch) error {
	e.take(file, rows)
	e.updated += int64(len(rows))
	after, err := e.write(ctx, after)
	if err != nil {
		return err
	}
	defer after.Release()
	if !e.feed {
		return nil
	}
	if err := e.tell(ctx, ChangePreimage, before); err != nil {
		return err
	}
	return e.tell(ctx, ChangePostimage, after)
}

// insertRows adds rows; with tell, change data says so.
func (e *rowEdit) insertRows(ctx context.Context, rows arrow.RecordBatch, tell bool) error {
	e.inserted += rows.NumRows()
	rows, err := e.write(ctx, rows)
	if err != nil {
		return err
	}
	defer rows.Release()
	if !tell {
		return nil
	}
	return e.tell(ctx, ChangeInsert, rows)
}

// write completes and checks rows, and writes them. It returns them as the table has them, for the caller to release.
func (e *rowEdit) write(ctx context.Context, rows arrow.RecordBatch) (arrow.RecordBatch, error) {
	w, err := e.writer()
	if err != nil {
		return nil, err
	}
	if rows, err = w.Prepare(ctx, rows); err != nil {
		return nil, err
	}
	if err := w.WritePrepared(ctx, rows); err != nil {
		rows.Release()
		return nil, err
	}
	return rows, nil
}

func (e *rowEdit) writer() (w *Writer, err error) {
	if e.data != nil {
		return e.data, nil
	}
	clustered, err := e.snap.ClusteringColumns()
	if err != nil {
		return nil, err
	}
	e.data, err = NewWriter(e.table.st, e.meta, e.proto, &WriterOptions{RowIDs: e.tracked, KeepIdentity: !e.fresh,
		Places: e.places, ClusteredBy: clustered, TargetFileBytes: e.opts.TargetFileBytes,
		TruncateTimes: e.opts.TruncateTimes, Buffers: e.opts.Buffers})
	return e.data, err
}

// tell writes change data. Columns that the table does not have are left out.
func (e *rowEdit) tell(ctx context.Context, kind string, rows arrow.RecordBatch) (err error) {
	if rows.NumRows() == 0 {
		return nil
	}
	if e.changes == nil {
		e.changes, err = NewWriter(e.table.st, e.meta, e.proto,
			&WriterOptions{ChangeData: true, Trusted: true, TargetFileBytes: e.opts.TargetFileBytes})
		if err != nil {
			return err
		}
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(int(rows.NumRows()))
	for range rows.NumRows() {
		b.Append(kind)
	}
	kinds := b.NewArray()
	defer kinds.Release()
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range rows.Schema().Fields() {
		if field, _ := e.schema.Lookup(f.Name); field != nil {
			fields, columns = append(fields, f), append(columns, rows.Column(i))
		}
	}
	fields = append(fields, arrow.Field{Name: ChangeTypeColumn, Type: arrow.BinaryTypes.String})
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), append(columns, kinds), rows.NumRows())
	defer rec.Release()
	return e.changes.Write(ctx, rec)
}

// touched are the numbers of the files that lose rows.
func (e *rowEdit) touched() (which []int) {
	for i, rows := range e.gone {
		if rows != nil && !rows.IsEmpty() {
			which = append(which, i)
		}
	}
	return which
}

// copyRest writes what is left of the files that lose rows, and counts it against what their actions say.
func (e *rowEdit) copyRest(ctx context.Context) error {
	if e.byVector {
		return nil
	}
	var which []int
	for _, n := range e.touched() {
		if live, known := liveRows(&e.files[n]); known && live == int64(e.gone[n].GetCardinality()) {
			continue
		}
		which = append(which, n)
	}
	kept := make(map[int]int64)
	err := e.scan(ctx, "copy", which, ScanOptions{RowIDs: true}, func(r FileRows) error {
		spans := spansWithout(r.Rows, e.gone[r.File])
		rest := expr.TakeBatch(r.Batch, spans)
		defer rest.Release()
		kept[r.File] += rest.NumRows()
		if rest.NumRows() == 0 {
			return nil
		}
		w, err := e.writer()
		if err != nil {
			return err
		}
		w.placer.end() // nobody asks for places of what is copied, which may be all of the table
		return w.WritePrepared(ctx, rest)
	})
	if err != nil {
		return err
	}
	for _, n := range which {
		live, known := liveRows(&e.files[n])
		if gone := int64(e.gone[n].GetCardinality()); known && kept[n]+gone != live {
			return corrupt("%s has %d rows by its action, and %d were read from it: %d to keep and %d to take out; "+
				"nothing was committed", e.files[n].Path, live, kept[n]+gone, kept[n], gone)
		}
		e.copied += kept[n]
	}
	return nil
}

// spansWithout are the rows whose position is not in gone.
func spansWithout(positions []int64, gone *roaring64.Bitmap) []expr.Span {
	var spans []expr.Span
	from := 0
	for i, p := range positions {
		if !gone.Contains(uint64(p)) {
			continue
		}
		if i > from {
			spans = append(spans, expr.Span{From: from, To: i})
		}
		from = i + 1
	}
	if from < len(positions) {
		spans = append(spans, expr.Span{From: from, To: len(positions)})
	}
	return spans
}

// liveRows is how many rows the file has that no deletion vector names, when its statistics tell.
func liveRows(a *Add) (rows int64, known bool) {
	rows, known = recordCount(a.Stats)
	if a.DeletionVector != nil {
		rows -= a.DeletionVector.Cardinality
	}
	return rows, known
}

// conserve makes sure, before anything is committed, that no row was lost or doubled on the way: what was taken out of
// files is what was deleted and updated, and what was written is what was inserted, updated and copied.
func (e *rowEdit) conserve(adds []Add) error {
	var gone, came int64
	for _, rows := range e.gone {
		if rows != nil {
			gone += int64(rows.GetCardinality())
		}
	}
	for i := range adds {
		n, known := recordCount(adds[i].Stats)
		if !known {
			return fmt.Errorf("the new file %s does not tell its rows; nothing was committed", adds[i].Path)
		}
		came += n
	}
	if read := e.deleted + e.updated; gone != read {
		return fmt.Errorf("%d rows were to leave their files, %d did; nothing was committed", read, gone)
	}
	if written := e.inserted + e.updated + e.copied; came != written {
		return fmt.Errorf("%d rows were to be written, the new files hold %d; nothing was committed", written, came)
	}
	return nil
}

// editCommit is how an edit appears in the log.
type editCommit struct {
	operation string
	params    map[string]string
	metrics   func(r *DMLResult, m map[string]string) // adds the operation's own
	reads     func(tx *Transaction)                   // says what the operation depends on; nil: nothing
	always    bool                                    // also when nothing has changed
}

// commit finishes the edit and writes it as one version. When nothing has changed and there is no progress to record
// nothing is written.
func (e *rowEdit) commit(ctx context.Context, deadline time.Time, c editCommit) (_ *DMLResult, err error) {
	defer func() { err = dropped(ctx, err, e.data, e.changes) }()
	e.watch.scanned = time.Now()
	if err := e.copyRest(ctx); err != nil {
		return nil, err
	}
	adds, changes, err := e.close(ctx)
	if err != nil {
		return nil, err
	}
	adds, changes = slices.Concat(e.given, adds), slices.Concat(e.givenCDC, changes)
	if err := e.conserve(adds); err != nil {
		return nil, err
	}
	tx := e.table.begin(e.snap, e.opts, deadline)
	r := &DMLResult{Version: e.snap.Version(), Snapshot: e.snap, Inserted: e.inserted, Updated: e.updated,
		Deleted: e.deleted, Copied: e.copied, FilesAdded: len(adds), ChangeFiles: len(changes)}
	e.fill(tx, r, adds, changes)
	if c.reads != nil {
		c.reads(tx)
	}
	m := map[string]string{}
	c.metrics(r, m)
	e.watch.metrics(m)
	r.Metrics = m
	tx.Operation(c.operation, c.params, maps.Clone(m))
	if !c.always && r.FilesAdded+r.FilesRemoved+r.FilesMarked == 0 && e.meta == e.snap.Metadata() && len(e.opts.Txns) == 0 {
		return r, nil
	}
	done, err := tx.Commit(ctx)
	if err != nil {
		return nil, err
	}
	r.Version, r.Snapshot, r.Retries, r.Committed = done.Version, done.Snapshot, done.Retries, true
	r.Moved = done.Moved
	return r, nil
}

func (e *rowEdit) close(ctx context.Context) (adds []Add, changes []CDC, err error) {
	if e.data != nil {
		if adds, err = e.data.Close(ctx); err != nil {
			return nil, nil, err
		}
		if marks := e.data.IdentityHighWater(); len(marks) > 0 {
			if e.meta, err = e.meta.WithHighWater(marks); err != nil {
				return nil, nil, err
			}
		}
	}
	if e.changes != nil {
		if _, err = e.changes.Close(ctx); err != nil {
			return nil, nil, err
		}
		changes = e.changes.Changes()
	}
	return adds, changes, nil
}

// fill puts the edit's files into the transaction, and counts them.
func (e *rowEdit) fill(tx *Transaction, r *DMLResult, adds []Add, changes []CDC) {
	tx.Add(adds...)
	tx.AddCDC(changes...)
	for i := range adds {
		r.BytesAdded += adds[i].Size
	}
	for i := range e.whole {
		e.remove(tx, r, &e.whole[i])
		rows, _ := liveRows(&e.whole[i])
		r.Deleted += rows
	}
	for _, n := range e.touched() {
		file := &e.files[n]
		if !e.byVector {
			e.remove(tx, r, file)
			continue
		}
		tx.DeleteRows(*file, e.gone[n])
		if live, known := liveRows(file); known && live == int64(e.gone[n].GetCardinality()) {
			r.FilesRemoved++
			r.BytesRemoved += file.Size
			continue
		}
		r.FilesMarked++
	}
	if e.meta != e.snap.Metadata() {
		tx.SetMetadata(e.meta)
	}
	if e.tracked {
		tx.RowIDsKept(true)
	}
}

func (e *rowEdit) remove(tx *Transaction, r *DMLResult, file *Add) {
	tx.Remove(file.Remove())
	r.FilesRemoved++
	r.BytesRemoved += file.Size
}
