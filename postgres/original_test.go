package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/quality"
)

type testedOrigin struct{ *Original }

func (o testedOrigin) Scan(ctx context.Context, share float64, seed uint64, each func(quality.Rows) error) (quality.Coverage, error) {
	read, err := o.Original.Scan(ctx, share, seed, func(r OriginalRows) error { return each(quality.Rows(r)) })
	return quality.Coverage(read), err
}

func (o testedOrigin) Look(ctx context.Context, keys [][]string, each func(quality.Rows) error) (int64, bool, error) {
	return o.Original.Look(ctx, keys, func(r OriginalRows) error { return each(quality.Rows(r)) })
}

type testedTable struct{ *lake.Compared }

func (c testedTable) Read(ctx context.Context, least int64, wanted func(arrow.RecordBatch) ([]bool, error), each func(quality.Rows) error) (
	quality.View, error) {
	version, at, err := c.Compared.Read(ctx, least, wanted, func(rows arrow.RecordBatch, marks []uint64, times []int64) error {
		return each(quality.Rows{Batch: rows, Marks: marks, Times: times})
	})
	return quality.View{Version: version, Position: at}, err
}

// verify compares a table of the schema public with what became of it.
func (m *mirror) verify(t *testing.T, table string, o *quality.Options) *quality.Result {
	t.Helper()
	return m.verifyWith(t, table, o, false)
}

func (m *mirror) verifyWith(t *testing.T, table string, o *quality.Options, mend bool) *quality.Result {
	t.Helper()
	r, err := m.compare(t.Context(), table, o, mend)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compare compares a table, and has what differs mended if that is wanted.
func (m *mirror) compare(ctx context.Context, table string, o *quality.Options, mend bool) (*quality.Result, error) {
	originals, err := OpenOriginals(ctx, m.address, &m.options)
	if err != nil {
		return nil, err
	}
	defer originals.Close(ctx)
	st, err := m.open("public_" + table)
	if err != nil {
		return nil, err
	}
	schema, err := lake.ComparedSchema(ctx, st)
	if err != nil {
		return nil, err
	}
	original, err := originals.Table(ctx, "public", table, schema)
	if err != nil {
		return nil, err
	}
	compared, err := lake.OpenCompared(ctx, "public_"+table, m.open, &lake.ComparedOptions{App: "test.app", Lane: originals.Lane(),
		History: original.History(), Whole: WholeHistory, Key: original.Key(), Columns: original.Columns(),
		Others: original.Fills(), LeftOut: original.Filling, Cuts: "cuts"})
	if err != nil {
		return nil, err
	}
	original.LeaveOut(compared.LeftOut())
	m.filling = compared.LeftOut()
	how := *o
	if mend {
		how.Mend = func(ctx context.Context, wrong []quality.Difference) error {
			var keys []MendKey
			var several [][]string
			for _, d := range wrong {
				keys = append(keys, MendKey{Values: d.Key, Held: d.Class != quality.Missing, Mark: d.Mark})
				if d.Class == quality.Duplicate {
					several = append(several, d.Key)
				}
			}
			return errors.Join(compared.TakeOut(ctx, several), original.Mend(ctx, keys))
		}
	}
	return quality.Verify(ctx, testedOrigin{original}, testedTable{compared}, &how)
}

// runs runs the pipeline until the end of the test.
func (m *mirror) runs(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.pipeline(m.source(t, false), lake.Mirror).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// While random transactions change the rows, over and over the same few, nothing is called wrong that is not.
func TestVerify_RandomTransactions_NoFalseAlarm(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		do(t, connect(t, address), mirroredDDL+fill)
		m := newMirror(t, address)
		m.options.History.ChunkRows = 500
		m.catchUp(t)
		m.runs(t)
		wait := churnAll(t, address, seed, 250)
		looks := 0
		churning := make(chan struct{})
		go func() { wait(); close(churning) }()
		for round := 0; ; round++ {
			select {
			case <-churning:
				if looks == 0 {
					t.Error("no key was looked at again: nothing changed meanwhile")
				}
				return
			default:
			}
			for table := range mirrored {
				r := m.verify(t, table, &quality.Options{Wait: deadline, Dir: t.TempDir()})
				looks += int(r.Rechecked)
				t.Logf("%s: %d rows, %d looked at again, %d undecided, %s", table, r.SourceRows, r.Rechecked, r.Undecided, r.Took)
				if !r.Equal() {
					t.Fatalf("round %d: %s: got %v, %v of %d rows, wanted no difference", round, table, r.Counts, r.Differences, r.SourceRows)
				}
			}
		}
	})
}

// What somebody else does to the table is found, and named, while other rows change.
func TestVerify_TableTamperedWith_EachFoundAndNamed(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		do(t, connect(t, address), mirroredDDL+fill)
		m := newMirror(t, address)
		m.catchUp(t)
		want := m.tamper(t, rand.New(rand.NewPCG(seed, 1)))
		m.runs(t)
		change := connect(t, address)
		rng := rand.New(rand.NewPCG(seed, 2))
		ended, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for {
				select {
				case <-ended:
					return
				default:
					id := rng.IntN(3)*1000 + rng.IntN(40)
					_, _ = change.Exec(context.Background(), fmt.Sprintf(`delete from public.keyed where id = %d and random() < 0.3;
insert into public.keyed values (%d, %[1]d, 'new') on conflict (id) do update set n = excluded.n`, id, rng.IntN(1e6))).ReadAll()
				}
			}
		}()
		defer func() { close(ended); <-over }()
		r := m.verify(t, "keyed", &quality.Options{Wait: deadline})
		var got []string
		for _, d := range r.Differences {
			got = append(got, fmt.Sprintf("%s %s %s", d.Class, strings.Join(d.Key, "|"), strings.Join(d.Columns, ",")))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwanted %q", got, want)
		}
	})
}

// tamper changes rows of the table keyed that no churn changes, and returns what is wrong then.
func (m *mirror) tamper(t *testing.T, rng *rand.Rand) (wrong []string) {
	t.Helper()
	st, err := m.open("public_keyed")
	if err != nil {
		t.Fatal(err)
	}
	d, err := delta.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := d.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parse := func(format string, args ...any) *expr.Expr {
		e, err := expr.Parse(fmt.Sprintf(format, args...))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	ids := rng.Perm(500) // nothing else changes these: stirAll has those below 323, churns the first 40 of each thousand
	id := func() int { n := ids[0] + 400 + 1000*rng.IntN(3); ids = ids[1:]; return n }
	for range 5 {
		gone, changed, doubled, extra := id(), id(), id(), 5000+id()
		if _, err := d.Delete(t.Context(), parse("id = %d", gone), nil); err != nil {
			t.Fatal(err)
		}
		set := []delta.Assignment{{Column: "v", Value: parse("'forged'")}}
		if _, err := d.Update(t.Context(), set, parse("id = %d", changed), nil); err != nil {
			t.Fatal(err)
		}
		for from, to := range map[int]int{doubled: doubled, id(): extra} {
			var rows []arrow.RecordBatch
			for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Where: parse("id = %d", from)}) {
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, rec)
			}
			m.insert(t, d, rows, int64(to))
		}
		wrong = append(wrong, fmt.Sprintf("missing %d ", gone), fmt.Sprintf("different %d v", changed), fmt.Sprintf("duplicate %d ", doubled),
			fmt.Sprintf("extra %d ", extra))
	}
	return wrong
}

// insert appends rows under another id.
func (m *mirror) insert(t *testing.T, d *delta.Table, rows []arrow.RecordBatch, id int64) {
	t.Helper()
	for _, rec := range rows {
		ids := array.NewInt64Builder(memory.DefaultAllocator)
		for range rec.NumRows() {
			ids.Append(id)
		}
		other, err := rec.SetColumn(rec.Schema().FieldIndices("id")[0], ids.NewArray())
		if err != nil {
			t.Fatal(err)
		}
		one := func(yield func(arrow.RecordBatch, error) bool) { yield(other, nil) }
		if _, err := d.Write(t.Context(), one, other.Schema(), nil); err != nil {
			t.Fatal(err)
		}
		rec.Release()
	}
}
