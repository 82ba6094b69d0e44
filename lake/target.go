// Package lake puts Delta tables at the ends of a pipe. It is the only package that knows both.
//
// Target is a freshet.Target of Delta tables: it appends rows (Append), or holds one row a key (Upsert, Mirror), which it
// finds by a key index and not by scanning. Each commit holds the rows and, as one txn
// action a lane, the progress that they make; it lands only if the table's progress is exactly what the rows
// started from. So every row is in the table once, whatever crashes, freezes or runs twice. Records that
// cannot be taken are in the quarantine table before the main table moves past them.
//
//	target := lake.NewTarget(open, "bronze.orders", &lake.TargetOptions{PartitionBy: []string{"date"}})
//	p := &freshet.Pipeline{Source: src, Target: target}
//
// Beside it are what a person needs to look after such a table: its progress (ReadProgress, SetProgress,
// ImportSpark) and its quarantine (OpenQuarantine). Beside the stream tables are looked after (UpkeepOptions): small files
// are packed, deleted rows dropped, old files deleted.
package lake

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

const defaultEngine = delta.DefaultEngineInfo

// Opener returns the store whose root is the table of this name.
type Opener func(table string) (store.Store, error)

// TargetOptions tune a Target. The zero value of each field means its default.
type TargetOptions struct {
	// Mode is how rows get into the table. Default Append.
	Mode Mode
	// ModeBefore is how changes were applied to the table, as it says itself, to confirm that it is to be another mode, key or
	// order. Default: none.
	ModeBefore string
	// Dedupe has Append take no row twice. Default: it takes every row.
	Dedupe *DedupeOptions
	// Key says how rows are told apart in the other modes.
	Key KeyOptions
	// ChangeColumns are the change columns that rows get, some of ChangeColumns; in mode Append also ChangeTypeColumn.
	// Default: none.
	ChangeColumns []string
	// Periods name the columns of a history, for SCD2.
	Periods PeriodOptions
	// ChangeFeed has tables record their own changes, each in the commit that makes it, so that their change data feed is
	// the change log; one that exists begins to.
	ChangeFeed bool
	// ManyOrigins says that one table takes lanes of several origins, and so how its progress is named: then the
	// origin is part of the name. The form is the table's; a table that has the other one is brought to this
	// one.
	ManyOrigins bool
	// PartitionBy are the partition columns of a table that is made. One that exists must have these, in any order; nil
	// takes it as it is.
	PartitionBy []string
	// Properties are the properties of a table that is made.
	Properties map[string]string
	// FixedSchema forbids to add columns to a table that exists.
	FixedSchema bool
	// Quarantine names the table that holds the rejects of a table. Default QuarantineName.
	Quarantine func(table string) string
	// TargetFileBytes is the size at which a data file is full. Default 128 MiB.
	TargetFileBytes int64
	// MemoryBytes bounds what the open files of one table hold in memory, and what a table with a key gathers there of
	// rows that must be in one commit, before it moves them to the local disk. Default 64 MiB, and 32 MiB of gathered rows.
	MemoryBytes int64
	// EngineInfo names the writer in the table's history. Default "Freshet".
	EngineInfo string
	// Upkeep is how the tables are looked after beside the stream. Default: they are not.
	Upkeep *UpkeepOptions
	// Cuts has the target record cuts. nil: none.
	Cuts *CutOptions
	// Park has the target keep changes of tables that are held back. nil: none are, and none are looked for.
	Park *ParkOptions
	// Of changes the options for one table: the partition columns, properties, masks, size of files, policy for deletes, order and
	// copy on write may differ; what is of the target as a whole stays. It is asked once a table. nil: all are alike.
	Of func(table string, o *TargetOptions)
	// Masks are columns of which the table has hashes and no values: by name, what tells the key of the hash from others. Default:
	// none.
	Masks map[string]string
	// Retry is told of outages that are waited out. May be nil.
	Retry func(what string, err error)
	// Recovered is told when what Retry was told under this name is over. May be nil.
	Recovered func(what string)
}

// Target is a freshet.Target of Delta tables. Its zero value is not usable: see NewTarget.
type Target struct {
	app     string
	open    Opener
	opts    TargetOptions
	tend    *tender
	care    *upkeep   // nil: none is wanted
	cuts    *recorder // nil: no cuts are recorded
	planned bool      // the plan may take effect, under mu

	lead *Target      // whose cuts show the tables of this one, too; nil: its own
	met  atomic.Int64 // tables that this target and those beside it know, for as long as they may be parked

	beside []Beside // in a group of which this is the first: the others

	buffers delta.Buffers // of the data files' writers, handed on from commit to commit

	mu     sync.Mutex
	tables map[string]*table
}

var _ freshet.Target = (*Target)(nil)

// NewTarget returns a target that opens tables by open and records its progress in them under the name app,
// which must not change as long as a table is to go on where it is. A nil opts means defaults.
func NewTarget(open Opener, app string, opts *TargetOptions) *Target {
	a := &Target{app: app, open: open, tables: map[string]*table{}}
	if opts != nil {
		a.opts = *opts
	}
	if a.opts.Quarantine == nil {
		a.opts.Quarantine = QuarantineName
	}
	if a.opts.EngineInfo == "" {
		a.opts.EngineInfo = defaultEngine
	}
	if a.opts.Retry == nil {
		a.opts.Retry = func(string, error) {}
	}
	if a.opts.Recovered == nil {
		a.opts.Recovered = func(string) {}
	}
	if a.opts.Mode == "" {
		a.opts.Mode = Append
	}
	if a.opts.Key.Deleted == nil {
		a.opts.Key.Deleted = DeletedName
	}
	if a.opts.Key.Tombstones.Table == nil {
		a.opts.Key.Tombstones.Table = TombstonesName
	}
	if a.opts.Key.Deletes == "" {
		a.opts.Key.Deletes = HardDeletes
	}
	if o := a.opts.Park; o != nil && o.Slow == nil {
		own := *o
		own.Slow = &SlowTables{}
		a.opts.Park = &own
	}
	a.opts.Periods.setDefaults()
	a.tend = newTender(func(what string, err error) {
		a.opts.Retry(what, err)
		a.opts.Recovered(what) // it is put off, and nobody waits for it
	}, a.cleaning)
	a.care = newUpkeep(a, a.opts.Upkeep)
	return a
}

// QuarantineName is where a table's rejects go unless it is said otherwise: beside it, with "_quarantine"
// behind its name.
func QuarantineName(table string) string {
	return strings.TrimRight(table, "/") + "_quarantine"
}

// Open checks what can be checked before a table is named.
func (a *Target) Open(context.Context) error {
	if a.app == "" || strings.Contains(a.app, "#") {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
			Msg: fmt.Sprintf("app: found %q, wanted a name without #", a.app)}
	}
	if err := a.opts.validate(); err != nil {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Msg: "the target's settings",
			Err: err}
	}
	if v, ok := a.opts.Properties[txnRetention]; ok {
		return txnRetentionError("properties of a new table", v)
	}
	return a.openCuts()
}

// Finish looks after the tables as far as they need it now: a run that ends when it has caught up, as one that cron begins, has no other
// time for that.
func (a *Target) Finish(ctx context.Context) { a.care.finish(ctx) }

// Close waits for what goes on in the background, as long as ctx lasts, and drops what is not committed.
func (a *Target) Close(ctx context.Context) error {
	a.care.close()
	for _, t := range a.known() {
		t.park.stopDrain()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tables {
		t.discard()
	}
	a.tend.close(ctx)
	var faults []error
	for _, t := range a.tables {
		if t.index != nil {
			faults = append(faults, t.index.close())
		}
	}
	return errors.Join(faults...)
}

// table is what a Target knows of one table. The first half is for all, under mu; the second is the write
// half, which only the goroutine that writes touches.
type table struct {
	a     *Target
	opts  TargetOptions // the target's, with what is other for this table
	fills []fill        // of opts
	name  string
	st    store.Store

	mu         sync.Mutex
	delta      *delta.Table // nil until the table exists
	snap       *delta.Snapshot
	absent     bool             // the last that was told of its schema is that there is no table
	starts     freshet.Progress // of our lanes, to be recorded with the table's creation
	quarantine *quarantine
	held       map[freshet.Lane]*heldLane // what quarantine has of each lane
	stands     freshet.Progress           // of each lane when it was resumed, or as this process committed it last

	tombstones *tombstones // nil: deleted keys need none
	deleted    *deleteLog  // nil: deleted rows go nowhere
	park       *park       // nil: nothing is parked

	resynced *int64                  // how often the table was loaded again when its lanes were resumed, under mu; nil: not known
	folded   map[freshet.Lane]folded // what cuts say of lanes beyond their txns, under mu

	index *rowIndex // of a keyed table, used by whoever has the turn; nil: not opened
	waits *waiting  // of a keyed table, used by whoever commits to it: rows in quarantine whose key may come; nil: not read

	waitsStale atomic.Bool // waits is to be read anew

	turn  chan struct{} // holds one while somebody of this process changes rows of a keyed table
	wards []*ward       // of it and its quarantine, for upkeep

	epoch atomic.Int64 // commits of this process
	fails atomic.Int64 // since when files of it fail, in nanoseconds since 1970; 0: its last commit landed
	writing
}

// table returns the table of this name.
func (a *Target) table(name string) (*table, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.tables[name]; ok {
		return t, nil
	}
	st, err := a.open(name)
	if err != nil {
		return nil, err
	}
	beside := a.opts.Quarantine(name)
	qst, err := a.open(beside)
	if err != nil {
		return nil, err
	}
	t := &table{a: a, opts: a.opts, name: name, st: st, held: map[freshet.Lane]*heldLane{}, turn: make(chan struct{}, 1),
		quarantine: newQuarantine(beside, qst, a.opts.EngineInfo)}
	if a.opts.Of != nil {
		a.opts.Of(name, &t.opts)
		if err := t.opts.validate(); err != nil {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: name, Msg: "the table's settings", Err: err}
		}
	}
	t.fills = t.opts.fills()
	if t.tombstones, err = t.openTombstones(); err != nil {
		return nil, err
	}
	if t.deleted, err = t.openDeleteLog(); err != nil {
		return nil, err
	}
	if err = t.openPark(); err != nil {
		return nil, err
	}
	a.tables[name] = t
	if t.park != nil {
		a.first().met.Add(1)
	}
	return t, nil
}

// look returns the table's newest snapshot, nil when there is no table; while it is slow, the newest that was seen. It
// refuses a table that would forget progress, and one that is partitioned otherwise than it should be.
func (t *table) look(ctx context.Context) (snap *delta.Snapshot, err error) {
	if snap, slow := t.park.isSlow(); slow {
		return snap, nil
	}
	err = t.within(ctx, 0, "read its log", func(ctx context.Context) error {
		snap, err = t.ask(ctx)
		return err
	})
	if seen, slow := t.park.isSlow(); slow {
		return seen, nil
	}
	return snap, err
}

// ask is look at a table that answers.
func (t *table) ask(ctx context.Context) (*delta.Snapshot, error) {
	d, err := t.opened(ctx)
	if errors.Is(err, delta.ErrNoTable) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(t.name, err)
	}
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return nil, explain(t.name, err)
	}
	if v := snap.Property(txnRetention); v != "" {
		return nil, txnRetentionError(t.name, v)
	}
	if err := t.checkFeed(snap); err != nil {
		return nil, err
	}
	if want := t.opts.PartitionBy; len(want) > 0 && !sameSet(want, snap.PartitionColumns()) {
		return nil, partitionError(t.name, snap.PartitionColumns(), want)
	}
	t.saw(snap)
	return snap, nil
}

// opened is the table's log. Errors: delta.ErrNoTable.
func (t *table) opened(ctx context.Context) (*delta.Table, error) {
	t.mu.Lock()
	d := t.delta
	t.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d, err := delta.Open(ctx, t.st, &delta.OpenOptions{EngineInfo: t.opts.EngineInfo})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.delta == nil {
		t.delta = d
	}
	return t.delta, nil
}

// Schema returns the table's columns, but for those that the target fills; nil when there is no table.
func (a *Target) Schema(ctx context.Context, table string) (*arrow.Schema, error) {
	t, err := a.table(table)
	if err != nil {
		return nil, err
	}
	snap, err := t.look(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.absent = snap == nil; t.absent {
		return nil, nil
	}
	return withoutFills(t.fills, snap.Schema().Arrow()), nil
}

// Ensure creates the table with these columns, or checks that the present one can take them.
func (a *Target) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	t, err := a.table(table)
	if err != nil {
		return err
	}
	return t.unlessSlow(ctx, "make it ready for its rows", func(ctx context.Context) error { return t.ensure(ctx, schema) })
}

func (t *table) ensure(ctx context.Context, schema *arrow.Schema) error {
	a := t.a
	if t.opts.Mode == SCD2 {
		schema = nullable(schema) // a key of which nothing is known but that it was deleted has a row
	}
	wanted, err := delta.SchemaFromArrow(schema)
	if err != nil {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.name,
			Msg: "the rows do not fit a Delta table", Err: err}
	}
	if wanted, err = t.withFills(wanted); err != nil {
		return err
	}
	snap, err := t.look(ctx)
	if err != nil {
		return err
	}
	if err := t.suitsHistory(ctx, snap); err != nil {
		return err
	}
	if snap != nil {
		if snap, err = t.settlePolicies(ctx, snap); err != nil {
			return err
		}
	}
	k := &keptStarts{}
	if snap == nil {
		if k, err = t.kept(ctx); err != nil {
			return err
		}
		created, err := t.create(ctx, wanted, t.toRecord(k))
		if err != nil {
			return err
		}
		if created {
			t.drop(ctx, k)
			return nil
		}
	}
	starts := t.toRecord(k)
	t.mu.Lock()
	lost := snap == nil || t.absent
	t.starts = nil
	t.mu.Unlock()
	if len(starts) > 0 {
		if _, err := a.Start(ctx, t.name, starts); err != nil {
			return err
		}
		t.drop(ctx, k)
	}
	if lost {
		return nil // another was first: what it made is asked for next
	}
	if _, _, err = t.fit(snap.Schema(), wanted); errors.Is(t.failed(ctx, err), freshet.ErrStale) {
		return nil // and its rows are parked
	}
	return err
}

// create makes the table, with these starts. It returns false when another was first.
func (t *table) create(ctx context.Context, schema *delta.Schema, starts freshet.Progress) (bool, error) {
	if err := t.opts.checkKey(t.name, schema); err != nil {
		return false, err
	}
	for _, column := range t.opts.PartitionBy {
		if f, _ := schema.Lookup(column); f == nil {
			return false, &freshet.Error{Code: freshet.CodeUnknownColumn, Class: freshet.ClassInput, Place: t.name,
				Msg: fmt.Sprintf("partition column %q: found the columns %s", column, columnNames(schema)),
				Fix: "derive it in a step, or partition by a column that is there"}
		}
	}
	d, err := delta.Create(ctx, t.st, &delta.CreateOptions{
		Schema: schema, PartitionBy: t.opts.PartitionBy, Properties: t.opts.properties(t.name),
		Name: path.Base(t.name), EngineInfo: t.opts.EngineInfo, Txns: t.a.form().startTxns(starts),
	})
	if errors.Is(err, delta.ErrTableExists) {
		return false, nil
	}
	if err != nil {
		return false, explain(t.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delta, t.absent, t.starts = d, false, nil
	return true, nil
}

func columnNames(s *delta.Schema) string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}
