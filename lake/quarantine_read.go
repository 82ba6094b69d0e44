package lake

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// Entry is a record in quarantine.
type Entry struct {
	App            string // the app whose pipeline rejected it
	Table          string // the table that it was for
	Lane           freshet.Lane
	freshet.Reject // Seq, Row, Code, Message, Step, and the Record
	QuarantinedAt  time.Time
	Open           bool // neither taken by a replay nor given up

	change []byte // of a row that waits for its key
}

// ID names the entry within its quarantine: "orders[3]@1042", or "orders[3]@1042/2" for the third row of a
// record.
func (e *Entry) ID() string {
	id := e.Lane.Position(e.Seq)
	if e.Row != 0 {
		id += "/" + strconv.Itoa(int(e.Row))
	}
	return id
}

// stands is where the entry stands among the changes of its origin.
func (e *Entry) stands() (freshet.Lane, int64) {
	if at := e.behind(); at != nil {
		l := e.Lane
		l.Name = at.Lane.Name
		return l, at.Seq
	}
	return e.Lane, e.Seq
}

// behind is where it stands if it was read, and is no change of a log; else nil.
func (e *Entry) behind() *freshet.Place {
	if c, ok := freshet.ChangeOf(e.Headers); ok {
		return c.Behind
	}
	return nil
}

// Filter chooses entries. The zero value of each field chooses all.
type Filter struct {
	IDs    []string // as Entry.ID gives them
	App    string
	Table  string
	Origin string
	Lane   string
	Code   freshet.Code
	Since  time.Time // quarantined at or after
	Closed bool      // also those that are not open any more
	Limit  int64     // how many at most

	Choose func(*Entry) bool // what they must be besides; nil: anything
}

// Quarantine is a quarantine table, for people to look into. It is safe for concurrent use.
type Quarantine struct{ q *quarantine }

// OpenQuarantine opens the quarantine table at the root of st; engine names the writer in its history, "" the default. Errors: an *freshet.Error with CodeNoTable
// when there is none, which is the case as long as nothing was rejected.
func OpenQuarantine(ctx context.Context, st store.Store, engine string) (*Quarantine, error) {
	q := newQuarantine(st.URL(), st, engine)
	snap, err := q.look(ctx)
	if err != nil {
		return nil, explain(q.name, err)
	}
	if snap == nil {
		return nil, &freshet.Error{Code: freshet.CodeNoTable, Class: freshet.ClassInput, Place: q.name,
			Msg: "there is no quarantine table", Fix: "nothing was rejected so far, unless the name is wrong"}
	}
	return &Quarantine{q}, nil
}

// IsQuarantine reports whether the table at the root of st is a quarantine table; false when there is none. Errors: as those of the table.
func IsQuarantine(ctx context.Context, st store.Store) (bool, error) {
	snap, err := newQuarantine(st.URL(), st, "").look(ctx)
	if snap == nil || err != nil {
		return false, err
	}
	for _, name := range strings.Split(quarantineStats, ",") {
		if f, _ := snap.Schema().Lookup(name); f == nil {
			return false, nil
		}
	}
	return true, nil
}

// Entries yields the entries that the filter chooses, in no order. Errors: a Filter.IDs that is no id;
// ErrCorrupt and others of the table.
func (q *Quarantine) Entries(ctx context.Context, filter *Filter) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		snap, err := q.q.look(ctx)
		if err == nil {
			err = scanEntries(ctx, snap, filter, yield)
		}
		if err != nil {
			yield(nil, explain(q.q.name, err))
		}
	}
}

// Get returns the entry of this id, closed or not. Errors: *freshet.Error with CodeBadValue when there is
// none.
func (q *Quarantine) Get(ctx context.Context, id string) (*Entry, error) { return q.GetOf(ctx, "", id) }

// GetOf is Get among the entries of one table; "": of all. A transaction of a database may have entries of one id in several.
func (q *Quarantine) GetOf(ctx context.Context, table, id string) (*Entry, error) {
	var found *Entry
	for e, err := range q.Entries(ctx, &Filter{IDs: []string{id}, Table: table, Closed: true}) {
		if err != nil {
			return nil, err
		}
		if found == nil || e.Open {
			found = e
		}
	}
	if found == nil {
		return nil, badID(id, "no such entry")
	}
	return found, nil
}

// Drop gives up the open entries that the filter chooses, and returns how many. They stay readable.
func (q *Quarantine) Drop(ctx context.Context, filter *Filter) (int, error) {
	for range maxRaces {
		n, err := q.q.drop(ctx, filter)
		if !errors.Is(err, delta.ErrConflict) {
			return n, explain(q.q.name, err)
		}
	}
	return 0, explain(q.q.name, delta.ErrConflict)
}

func (q *quarantine) drop(ctx context.Context, filter *Filter) (int, error) {
	snap, err := q.look(ctx)
	if err != nil {
		return 0, err
	}
	f := *filter
	f.Closed = false
	s := newSettlement(snap, "", "")
	defer s.release()
	err = scanEntries(ctx, snap, &f, func(e *Entry, _ error) bool {
		s.add(eventDropped, e)
		return true
	})
	if err != nil || s.rows.n == 0 {
		return 0, err
	}
	return s.rows.n, s.commit(ctx, q.st, nil)
}

// scanEntries yields entries without an error; an error is returned. What follows a rejection is read first:
// it is little.
func scanEntries(ctx context.Context, snap *delta.Snapshot, f *Filter, yield func(*Entry, error) bool) error {
	if f == nil {
		f = &Filter{}
	}
	where, wanted, err := f.condition()
	if err != nil {
		return err
	}
	closed, err := closings(ctx, snap, where)
	if err != nil {
		return err
	}
	all, err := parseCondition(append(where, "event = 'rejected'", f.details()))
	if err != nil {
		return err
	}
	yielded := int64(0)
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Where: all}) {
		if err != nil {
			return err
		}
		more := eachEntry(rec, func(e *Entry) bool {
			if wanted != nil && !wanted[e.ID()] || f.Choose != nil && !f.Choose(e) {
				return true
			}
			e.Open = !closed[e.place()].has(e.QuarantinedAt)
			if !e.Open && !f.Closed {
				return true
			}
			yielded++
			return yield(e, nil) && (f.Limit <= 0 || yielded < f.Limit)
		})
		rec.Release()
		if !more {
			return nil
		}
	}
	return nil
}

// condition is the part of the filter that holds for all rows of an entry, and the ids that are wanted, nil
// for all.
func (f *Filter) condition() (where []string, wanted map[string]bool, err error) {
	equal := map[string]string{"table_name": f.Table, "origin": f.Origin, "lane": f.Lane, "app": f.App}
	for column, want := range equal {
		if want != "" {
			where = append(where, column+" = "+quote(want))
		}
	}
	if f.IDs == nil {
		return where, nil, nil
	}
	wanted = map[string]bool{}
	var seqs []string
	for _, id := range f.IDs {
		seq, err := seqOf(id)
		if err != nil {
			return nil, nil, err
		}
		wanted[id] = true
		seqs = append(seqs, strconv.FormatInt(seq, 10))
	}
	if len(seqs) == 0 {
		return append(where, "FALSE"), wanted, nil
	}
	return append(where, "seq IN ("+strings.Join(seqs, ", ")+")"), wanted, nil
}

// details is the part of the filter that holds for the rejection alone.
func (f *Filter) details() string {
	parts := []string{"TRUE"}
	if f.Code != "" {
		parts = append(parts, "code = "+quote(string(f.Code)))
	}
	if !f.Since.IsZero() {
		since := f.Since.UTC().Format("2006-01-02 15:04:05.999999Z07:00")
		parts = append(parts, "quarantined_at >= TIMESTAMP "+quote(since))
	}
	return strings.Join(parts, " AND ")
}

func parseCondition(parts []string) (*expr.Expr, error) {
	return expr.Parse(strings.Join(parts, " AND "))
}

func seqOf(id string) (int64, error) {
	at := strings.LastIndexByte(id, '@')
	if at < 0 {
		return 0, badID(id, "no @")
	}
	number, _, _ := strings.Cut(id[at+1:], "/")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, badID(id, "no number after the @")
	}
	return seq, nil
}

func badID(id, why string) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
		Msg: fmt.Sprintf("entry %q: %s; wanted an id like orders[3]@1042", id, why),
		Fix: "`freshet quarantine list` shows the ids"}
}

// eachEntry calls visit with the rows of a scan of all columns, as long as it returns true. What it passes is
// its own.
func eachEntry(rec arrow.RecordBatch, visit func(*Entry) bool) bool {
	column := map[string]arrow.Array{}
	for i, f := range rec.Schema().Fields() {
		column[f.Name] = rec.Column(i)
	}
	for i := range int(rec.NumRows()) {
		text := func(name string) string { return strings.Clone(column[name].(*array.String).Value(i)) }
		e := &Entry{App: text("app"), Table: text("table_name"),
			Lane: freshet.Lane{Origin: text("origin"), OriginID: text("origin_id"), Name: text("lane")},
			Reject: freshet.Reject{
				Seq: column["seq"].(*array.Int64).Value(i), Row: column["row"].(*array.Int32).Value(i),
				Code: freshet.Code(text("code")), Message: text("message"), Step: text("step"),
				Record: recordAt(column, i)},
			QuarantinedAt: moment(column["quarantined_at"], i),
		}
		if c, ok := column["change"]; ok {
			e.change = binaryAt(c, i)
		}
		if !visit(e) {
			return false
		}
	}
	return true
}

// recordAt is the record of a row. A table that an older version made has no headers.
func recordAt(column map[string]arrow.Array, i int) freshet.Record {
	r := freshet.Record{Raw: binaryAt(column["raw"], i), Key: binaryAt(column["key"], i),
		Time: moment(column["record_time"], i), TimeKind: -1}
	if kinds, ok := column["record_time_kind"].(*array.Int32); ok && kinds.IsValid(i) {
		r.TimeKind = kinds.Value(i)
	}
	lists, ok := column["headers"].(*array.List)
	if !ok || lists.IsNull(i) {
		return r
	}
	pairs := lists.ListValues().(*array.Struct)
	keys, values := pairs.Field(0).(*array.String), pairs.Field(1)
	from, to := lists.ValueOffsets(i)
	for at := int(from); at < int(to); at++ {
		r.Headers = append(r.Headers, freshet.Header{Key: strings.Clone(keys.Value(at)), Value: binaryAt(values, at)})
	}
	return r
}

func binaryAt(column arrow.Array, i int) []byte {
	if column.IsNull(i) {
		return nil
	}
	return append([]byte{}, column.(*array.Binary).Value(i)...)
}

// moment is a time, zero for null.
func moment(column arrow.Array, i int) time.Time {
	if column.IsNull(i) {
		return time.Time{}
	}
	return column.(*array.Timestamp).Value(i).ToTime(arrow.Microsecond)
}
