package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// Originals reads the tables of a pipeline as they are in the database, to be compared with what became of them. It uses one
// connection, writes nothing, and holds no transaction longer than a chunk takes. One goroutine uses it.
type Originals struct {
	o       Options
	conn    *pgconn.PgConn
	types   *typeMap
	server  *server
	tables  []*catalogTable
	tracked bool // the server knows when transactions were committed
}

// OpenOriginals connects. The options are those of the pipeline's source. Errors: as Check; CodeBadValue where the publication is not
// there.
func OpenOriginals(ctx context.Context, address string, options *Options) (*Originals, error) {
	o := &Originals{o: options.withDefaults()}
	conn, err := dial(ctx, address, true)
	if err != nil {
		return nil, err
	}
	o.server, err = identify(ctx, conn)
	_ = conn.Close(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	if o.conn, err = dial(ctx, address, false); err != nil {
		return nil, err
	}
	if err := o.open(ctx); err != nil {
		return nil, errors.Join(err, o.Close(ctx))
	}
	return o, nil
}

func (o *Originals) open(ctx context.Context) error {
	o.types = newTypeMap(o.o.Types)
	if err := o.types.load(ctx, o.conn); err != nil {
		return err
	}
	all, err := readTables(ctx, o.conn, o.o.Tables)
	if err != nil {
		return err
	}
	p, err := readPublication(ctx, o.conn, o.o.Publication, o.server.version)
	if err != nil {
		return err
	}
	if p == nil {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: "publication " + o.o.Publication,
			Msg: "there is no such publication: the pipeline has not run", Fix: "run it first"}
	}
	for _, t := range all {
		if _, is := p.Tables[t.String()]; is {
			p.restrict(t)
			o.tables = append(o.tables, t)
		}
	}
	found, err := query(ctx, o.conn, "select current_setting('track_commit_timestamp') = 'on', pg_is_in_recovery()")
	if err != nil {
		return err
	}
	o.tracked = found[0][0][0] == 't'
	if found[0][1][0] == 't' {
		return &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: o.server.database,
			Msg: "a standby answers, and this version compares tables with a primary alone", Fix: "connect to the primary"}
	}
	return nil
}

// Close ends the connection.
func (o *Originals) Close(ctx context.Context) error { return o.conn.Close(context.WithoutCancel(ctx)) }

// Tables are the tables that the pipeline reads: schema and name.
func (o *Originals) Tables() (all [][2]string) {
	for _, t := range o.tables {
		all = append(all, [2]string{t.Schema, t.Name})
	}
	return all
}

// Lane is the log of the database.
func (o *Originals) Lane() freshet.Lane { return o.server.lane() }

// WholeHistory is the seq of the lane of a table's history that says that all of it was loaded.
const WholeHistory = wholeHistory

// Original is one of these tables.
type Original struct {
	of     *Originals
	table  *catalogTable
	shape  string
	schema *arrow.Schema // of the columns that are compared
	key    []string      // in the source
	order  []keyColumn   // by which it is read in chunks; nil: at once
	veiled bool          // a column of the key is masked: no row can be asked for by the key that its Delta table has
}

// Table is one of the tables, of which those columns are compared that known, the schema of the table that its rows go to, has. Errors:
// CodeUnavailable for one without a key, unless the options have such tables mirrored.
func (o *Originals) Table(ctx context.Context, schema, name string, known *arrow.Schema) (*Original, error) {
	r, err := o.Whole(ctx, schema, name, known, false)
	if err == nil && len(r.key) == 0 && !o.o.Alike {
		err = &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: r.table.String(),
			Msg: "the table has no key, by which its rows could be told apart", Fix: "give it a primary key"}
	}
	return r, err
}

// Whole is Table also of tables without a key; all says that columns count that are not in known, too.
func (o *Originals) Whole(ctx context.Context, schema, name string, known *arrow.Schema, all bool) (*Original, error) {
	at := slices.IndexFunc(o.tables, func(t *catalogTable) bool { return t.Schema == schema && t.Name == name })
	if at < 0 {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: schema + "." + name,
			Msg: "the pipeline does not read the table"}
	}
	t := *o.tables[at]
	found, err := readTables(ctx, o.conn, []string{schema + "." + name})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].OID != t.OID {
		return nil, &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Place: schema + "." + name,
			Msg: "the table was dropped, or made again", Fix: "compare it again"}
	}
	r := &Original{of: o, table: &t, shape: shapeOf(&found[0].Table)}
	t.Columns = slices.DeleteFunc(slices.Clone(t.Columns), func(c Column) bool { return !all && indexOf(known, columnName(c.Name)) < 0 })
	if r.schema, err = o.types.fit(&t.Table, known); err != nil {
		return nil, unfit(&t.Table, err)
	}
	if r.key = t.rowKey(); len(r.key) == 0 {
		return r, nil
	}
	r.veiled = slices.ContainsFunc(t.Columns, func(c Column) bool {
		return slices.Contains(r.key, c.Name) && o.types.hiding(&t.Table, &c).Key != nil
	})
	if r.veiled {
		return r, nil
	}
	if r.order, err = o.types.keyColumns(ctx, o.conn, &t); err != nil {
		return nil, err
	}
	if !ordered(r.order) {
		r.order = nil
	}
	return r, nil
}

// History is the lane of the table's history.
func (r *Original) History() freshet.Lane {
	l := r.of.server.lane()
	l.Name = fmt.Sprint(r.table.OID)
	return l
}

// mostColumns is how many columns a table can ever have had.
const mostColumns = 1600

// Fills are the lanes of columns that were added: of those that the table knows, one is not at WholeHistory while rows are read again for
// its column.
func (r *Original) Fills() []freshet.Lane {
	lanes := make([]freshet.Lane, mostColumns)
	for i := range lanes {
		lanes[i] = r.History()
		lanes[i].Name += fillNumber(i + 1)
	}
	return lanes
}

// Filling are the columns that rows may lack, at this progress of Fills, of what the source has in them. One is read with that of a
// greater number which was added with it.
func (r *Original) Filling(p freshet.Progress) (names []string) {
	at := make([]int64, mostColumns+1)
	for i, l := range r.Fills() {
		at[i+1] = -1
		if seq, known := p[l]; known {
			at[i+1] = seq
		}
	}
	for _, c := range r.table.Columns {
		if !c.Filled {
			continue
		}
		lacks, has := at[c.Number] >= 0 && at[c.Number] < wholeHistory, at[c.Number] == wholeHistory
		for n := c.Number + 1; n < len(at) && !lacks && !has; n++ {
			lacks, has = at[n] >= 0 && at[n] < wholeHistory, at[n] == wholeHistory
		}
		if lacks {
			names = append(names, columnName(c.Name))
		}
	}
	return names
}

// LeaveOut has these columns not be compared.
func (r *Original) LeaveOut(names []string) {
	r.schema = arrow.NewSchema(slices.DeleteFunc(slices.Clone(r.schema.Fields()),
		func(f arrow.Field) bool { return slices.Contains(names, f.Name) }), nil)
}

// Key are the columns of the key, as its Delta table has them.
func (r *Original) Key() []string {
	names := make([]string, len(r.key))
	for i, name := range r.key {
		names[i] = columnName(name)
	}
	return names
}

// Columns are the columns that are compared.
func (r *Original) Columns() []string {
	names := make([]string, r.schema.NumFields())
	for i, f := range r.schema.Fields() {
		names[i] = f.Name
	}
	return names
}

// OriginalRows are rows of a table, lent for the call. See quality.Rows.
type OriginalRows struct {
	Batch    arrow.RecordBatch
	Marks    []uint64 // the transaction that made the row what it is; without a key, what tells the row from others as long as it is as it is
	Times    []int64  // when that was committed, if the server keeps that
	Rejected []bool
}

// OriginalCoverage is what of a table was handed over. See quality.Coverage.
type OriginalCoverage struct {
	Ranges int64
	Has    func(key []string) bool
}

// Scan hands over the rows, chunk by chunk, each of a moment of its own; a table that is not read in the order of its key, in one
// transaction. See quality.Origin.
func (r *Original) Scan(ctx context.Context, share float64, seed uint64, each func(OriginalRows) error) (OriginalCoverage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.of.o.History.MaxAge, errors.New("reading the table took longer than max_age"))
	defer cancel()
	if r.order == nil {
		_, err := r.read(ctx, []string{""}, each)
		return OriginalCoverage{Ranges: 1}, err
	}
	return r.chunks(ctx, share, rand.New(rand.NewPCG(seed, 0)), each)
}

// chunks reads chunks in the order of the key, of which it skips those that are not among the share.
func (r *Original) chunks(ctx context.Context, share float64, rng *rand.Rand, each func(OriginalRows) error) (
	got OriginalCoverage, err error) {
	c, rows := chunk{}, min(r.of.o.History.ChunkRows, 50_000)
	if share < 1 {
		rows = max(100, min(rows, int64(float64(r.table.Rows)*share/16)))
	}
	var read []chunk
	skip := len(r.order) != len(r.key) || share < 1
	for {
		c.upto = nil
		found, err := query(ctx, r.of.conn, boundQuery(r.table.from(), r.order, c.after, rows))
		if err != nil {
			return got, fmt.Errorf("find the next rows of %s: %w", r.table, err)
		}
		if len(found) > 0 {
			for _, v := range found[0] {
				c.upto = append(c.upto, string(v))
			}
		}
		began := time.Now()
		if !skip || rng.Float64() < share {
			n, err := r.read(ctx, []string{c.where(r.order)}, each)
			if err != nil {
				return got, err
			}
			if err := r.slow(ctx, n, began); err != nil {
				return got, err
			}
			read = append(read, c)
		} else if err := r.slow(ctx, rows/passedRows, began); err != nil {
			return got, err
		}
		if c.upto == nil {
			break
		}
		c.after = c.upto
	}
	got.Ranges = int64(len(read))
	if skip {
		got.Has = func(key []string) bool { return r.within(read, key) }
	}
	return got, nil
}

// passedRows is how many rows of the index count as one that is read.
const passedRows = 20

// within reports whether one of the chunks has the key.
func (r *Original) within(chunks []chunk, key []string) bool {
	values := make([][]byte, len(r.order))
	for i, c := range r.order {
		values[i] = []byte(key[slices.Index(r.key, c.name)])
	}
	at, _ := slices.BinarySearchFunc(chunks, values, func(c chunk, values [][]byte) int {
		if c.upto == nil {
			return 1
		}
		return -c.upto.compare(r.order, values)
	})
	return at < len(chunks) && (chunks[at].after == nil || chunks[at].after.compare(r.order, values) > 0)
}

// slow waits as long as the bound on rows a second wants.
func (r *Original) slow(ctx context.Context, rows int64, began time.Time) error {
	most := r.of.o.History.RowsPerSecond
	if most == 0 {
		return nil
	}
	t := time.NewTimer(time.Until(began.Add(time.Duration(float64(rows) / float64(most) * float64(time.Second)))))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lookKeys is for how many keys one asks at once.
const lookKeys = 500

// Look hands over the rows of the keys as one snapshot shows them, which high is behind. It then has the pipeline bring the table to
// behind that. See quality.Origin.
func (r *Original) Look(ctx context.Context, keys [][]string, each func(OriginalRows) error) (high int64, settled bool, err error) {
	if high, settled, err = r.present(ctx, keys, each); err != nil || r.of.server.version < 140000 {
		return high, settled, err
	}
	return high, settled, emit(ctx, r.of.conn, levelPrefix, r.table.String())
}

func (r *Original) present(ctx context.Context, keys [][]string, each func(OriginalRows) error) (high int64, settled bool, err error) {
	if settled, err = settle(ctx, r.of.conn); err != nil {
		return 0, false, err
	}
	var where []string
	for part := range slices.Chunk(keys, lookKeys) {
		where = append(where, r.keysAre(part))
	}
	if len(r.key) == 0 || r.veiled {
		where = []string{""} // only who asked knows which rows these are
	}
	high, err = r.at(ctx, where, each)
	return high, settled, err
}

// Veiled reports whether a column of the key is masked: then keys that rows have here are not those of the database.
func (r *Original) Veiled() bool { return r.veiled }

// Find hands over the row of one key, as the database has it, if there is one, and returns a place of the log behind what it shows.
func (r *Original) Find(ctx context.Context, key []string, each func(OriginalRows) error) (high int64, err error) {
	return r.at(ctx, []string{r.keysAre([][]string{key})}, each)
}

// keysAre is the condition that the row has one of these keys.
func (r *Original) keysAre(keys [][]string) string {
	var b strings.Builder
	for i, name := range r.key {
		b.WriteString([]string{"(", ", "}[min(i, 1)] + quoteName(name))
	}
	b.WriteString(") in (")
	for i, key := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(bound(key).tuple())
	}
	b.WriteString(")")
	return b.String()
}

// patience is how long transactions are waited for that were under way: one that commits is in the log a moment before others see
// it.
const patience = 5 * time.Second

// settle waits until all transactions have ended that may be in the log now. One that goes on for longer is one that does not
// commit, unless commits wait for a standby.
func settle(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	began, wanted := time.Now(), uint64(0)
	for {
		found, err := query(ctx, conn, "select txid_current_snapshot(), current_setting('synchronous_standby_names') = ''")
		if err != nil {
			return false, err
		}
		v, err := parseVisibility(found[0][0])
		if err != nil {
			return false, err
		}
		if wanted == 0 {
			wanted = v.xmax
		}
		if v.xmin >= wanted {
			return true, nil
		}
		if time.Since(began) > patience {
			return found[0][1][0] == 't', nil
		}
		t := time.NewTimer(20 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false, context.Cause(ctx)
		}
	}
}

// read hands over the rows that fulfil the conditions, and returns how many there were.
func (r *Original) read(ctx context.Context, where []string, each func(OriginalRows) error) (n int64, err error) {
	_, err = r.at(ctx, where, func(rows OriginalRows) error {
		n += rows.Batch.NumRows()
		return each(rows)
	})
	return n, err
}

// at hands over the rows that fulfil one of the conditions, as one snapshot shows them, and returns a place of the log behind all that it
// shows.
func (r *Original) at(ctx context.Context, where []string, each func(OriginalRows) error) (high int64, err error) {
	conn := r.of.conn
	defer func() {
		if err != nil && conn.TxStatus() != 'I' {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "rollback").ReadAll()
		}
	}()
	mark, err := openWindow(ctx, conn, r.table, r.shape, 0)
	if errors.Is(err, errReshaped) {
		return 0, &freshet.Error{Code: freshet.CodeTableChanged, Class: freshet.ClassInput, Place: r.table.String(),
			Msg: "the table was altered meanwhile", Fix: "compare it again"}
	}
	if err != nil {
		return 0, err
	}
	for _, condition := range where {
		if f := r.table.Filter; f != "" && condition != "" {
			condition += " and (" + f + ")"
		} else if f != "" {
			condition = f
		}
		if err := r.copy(ctx, condition, each); err != nil {
			return 0, err
		}
	}
	_, err = conn.Exec(ctx, "commit").ReadAll()
	return int64(mark.high), err
}

// copy hands over the rows that fulfil a condition.
func (r *Original) copy(ctx context.Context, where string, each func(OriginalRows) error) error {
	marked := r.table.Table
	marked.Columns = append([]Column{{Name: "xmin", Type: oidInt8, Modifier: -1}, {Name: "cmin", Type: oidInt8, Modifier: -1}},
		r.table.Columns...)
	fields := append([]arrow.Field{{Name: "xmin", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "cmin", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, r.schema.Fields()...)
	made, err := newRows(r.of.types, &marked, arrow.NewSchema(fields, nil))
	if err != nil {
		return unfit(&marked, err)
	}
	rejected := map[int]bool{}
	full := func() error {
		batch, _ := made.take()
		defer batch.Release()
		rows := OriginalRows{Batch: array.NewRecordBatch(r.schema, batch.Columns()[2:], batch.NumRows())}
		defer rows.Batch.Release()
		xmin, at := batch.Column(0).(*array.Int64), batch.Column(1).(*array.Int64)
		for i := range int(batch.NumRows()) {
			rows.Marks, rows.Times = append(rows.Marks, uint64(xmin.Value(i))), append(rows.Times, at.Value(i))
			rows.Rejected = append(rows.Rejected, rejected[i])
		}
		clear(rejected)
		return each(rows)
	}
	reject := func(line []byte, _ *freshet.RejectError) error {
		if r.keyAlone(made, &marked, line) {
			rejected[made.len()-1] = true
		}
		return nil
	}
	times := "0"
	if r.of.tracked {
		times = "(extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::int8"
	}
	sql := strings.Replace(selectOf(&marked, r.table.from(), where), `"cmin"`, times, 1)
	if len(r.key) == 0 { // a transaction may have made several rows that are alike
		sql = strings.Replace(sql, `"xmin"`, "hashtextextended(tableoid::text || ctid::text || xmin::text, 0)", 1)
	}
	return copyRows(ctx, r.of.conn, sql, made, partBytes, full, reject)
}

// oidInt8 is the type bigint.
const oidInt8 = 20

// keyAlone takes of a row that cannot be taken the key alone, and reports whether that can.
func (r *Original) keyAlone(made *rows, t *Table, line []byte) bool {
	for i, v := range bytes.Split(line, []byte{'\t'}) {
		if len(r.key) == 0 {
			made.undo()
			return false
		}
		if !slices.Contains(r.key, t.Columns[i].Name) {
			made.null(i)
			continue
		}
		if made.text(i, unescape(nil, v)) != nil {
			made.undo()
			return false
		}
	}
	made.end()
	return true
}

// levelPrefix is the prefix of messages in the log that ask a pipeline to bring a table to where they stand.
const levelPrefix = "freshet.level"
