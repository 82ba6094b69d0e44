package delta_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

func TestChanges_RangesThatAreNone_AreErrorsThatSayWhatThereIs(t *testing.T) {
	table, _ := unpack(t, "plain", nil)
	for _, c := range []struct {
		from, to int64
		want     string
	}{
		{-1, 5, "versions are numbered from 0"},
		{math.MinInt64, math.MinInt64, "versions are numbered from 0"},
		{0, -2, "versions are numbered from 0"},
		{7, 3, "found 7 to 3"},
		{0, math.MaxInt64, "version 9223372036854775807 of the Delta table is not available: the log holds version 0"},
		{math.MaxInt64, -1, "version 9223372036854775807 of the Delta table is not available"},
		{18, 18, "to version 17"},
	} {
		got, err := readChanges(table, c.from, c.to, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(got) > 0 {
			t.Errorf("%d to %d: got %d changes and %v, want an error with %q", c.from, c.to, len(got), err, c.want)
		}
	}
}

func TestChanges_OptionsThatDoNotFit_AreErrors(t *testing.T) {
	table, _ := unpack(t, "plain", nil)
	for want, opts := range map[string]*delta.ChangesOptions{
		`method "best": wanted feed`:             {Method: "best"},
		`column "idd": the table has no`:         {Columns: []string{"idd"}},
		`key column "idd": the table has no`:     {Key: []string{"idd"}},
		`unknown column "idd"`:                   {Where: where(t, "idd = 1")},
		"delta.enableRowTracking is not true":    {Method: delta.MethodRowTracking},
		"the change data feed was off at versio": {Method: delta.MethodFeed},
	} {
		if _, err := readChanges(table, 3, 5, opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestChanges_CommitsOrFilesGone_ErrorNamesTheFirstWholeVersion(t *testing.T) {
	named := func(part string) func(string) bool {
		return func(name string) bool { return strings.Contains(name, part) }
	}
	for name, c := range map[string]struct {
		setting        string
		gone           func(string) bool
		from, to       int64
		version, first int64
		before         int64 // the last version that is yielded
		missing        string
	}{
		"change files": {setting: "feed", gone: named("_change_data/"), to: -1, version: 3, first: 14,
			before: 2, missing: "_change_data"},
		"change files, to the last one": {setting: "feed", gone: named("_change_data/"), from: 5, to: 13, version: 5,
			first: -1, before: -1, missing: "_change_data"},
		"a commit": {setting: "plain", gone: named("0004.json"), from: 1, to: -1, version: 4, first: 5,
			before: 3, missing: "its commit"},
	} {
		t.Run(name, func(t *testing.T) {
			table, st := unpack(t, c.setting, nil)
			for o, err := range st.List(context.Background(), "", "") {
				if err != nil {
					t.Fatal(err)
				}
				if c.gone(o.Key) {
					if err := st.Delete(context.Background(), o.Key); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, err := readChanges(table, c.from, c.to, nil)
			var gap *delta.GapError
			if !errors.As(err, &gap) || gap.Version != c.version || gap.First != c.first ||
				!strings.Contains(gap.Missing, c.missing) {
				t.Fatalf("got %#v, %v", gap, err)
			}
			last := int64(-1)
			if len(got) > 0 {
				last = got[len(got)-1].version
			}
			if last != c.before {
				t.Errorf("the last version yielded is %d, want %d", last, c.before)
			}
			if gap.First >= 0 && c.setting == "feed" {
				mustChanges(t, table, gap.First, c.to, nil)
			}
		})
	}
}

func TestChanges_LogCleaned_NamesTheFirstVersionLeft(t *testing.T) {
	ctx, st := context.Background(), store.NewMem()
	s := fields("id", delta.Long)
	snap := tableOf(t, st, s, nil, batchOf(t, s, `[{"id":1}]`), batchOf(t, s, `[{"id":2}]`), batchOf(t, s, `[{"id":3}]`))
	at2, err := snap.Table().SnapshotAt(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Table().Checkpoint(ctx, at2); err != nil {
		t.Fatal(err)
	}
	for v := range 2 {
		if err := st.Delete(ctx, fmt.Sprintf("_delta_log/%020d.json", v)); err != nil {
			t.Fatal(err)
		}
	}
	table := open(t, st)
	_, err = readChanges(table, 0, -1, nil)
	var gap *delta.GapError
	if !errors.As(err, &gap) || gap.Version != 0 || gap.First != 2 {
		t.Fatalf("got %v, want a gap at 0, whole from 2 on", err)
	}
	if got := sorted(mustChanges(t, table, gap.First, -1, nil)); len(got) != 2 || got[0] != `2 insert {"id":2}` {
		t.Errorf("got %v", got)
	}
}

// newTable creates a table and appends rows to it, a commit each.
func newTable(t *testing.T, s *delta.Schema, properties map[string]string, rows ...string) *delta.Table {
	t.Helper()
	table, err := delta.Create(context.Background(), store.NewMem(), &delta.CreateOptions{Schema: s,
		Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		appendJSON(t, table, r)
	}
	return table
}

// setMetadata commits a change of the metadata.
func setMetadata(t *testing.T, table *delta.Table, change func(m *delta.Metadata)) {
	t.Helper()
	snap := snapshot(t, table)
	m := snap.Metadata().Clone()
	change(m)
	tx := table.Begin(snap, nil)
	tx.SetMetadata(m)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestChanges_ColumnAddedAndTypeWidened_ReadByTheLastSchema(t *testing.T) {
	table := newTable(t, fields("id", delta.Integer), map[string]string{"delta.feature.typeWidening": "supported"},
		`[{"id":1}]`)
	setMetadata(t, table, func(m *delta.Metadata) {
		m.SchemaString = fields("note", delta.String, "ID", delta.Long).String()
	})
	appendJSON(t, table, `[{"ID":5000000000,"note":"x"}]`)
	got := sorted(mustChanges(t, table, 0, -1, nil))
	want := []string{`1 insert {"ID":1,"note":null}`, `3 insert {"ID":5000000000,"note":"x"}`}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := sorted(mustChanges(t, table, 0, 1, nil)); !slices.Equal(got, []string{`1 insert {"id":1}`}) {
		t.Errorf("before the change: got %v", got)
	}
}

func TestChanges_SchemaThatHoldsNotAllRows_NamesVersionAndChange(t *testing.T) {
	mapped := map[string]string{"delta.columnMapping.mode": "name"}
	for name, c := range map[string]struct {
		properties map[string]string
		schema     func(m *delta.Metadata) string
		want       string
	}{
		"dropped": {want: `column "b" was dropped`,
			schema: func(*delta.Metadata) string { return fields("id", delta.Long).String() }},
		"type": {want: `column "b" was long and is string`,
			schema: func(*delta.Metadata) string { return fields("id", delta.Long, "b", delta.String).String() }},
		"narrower": {want: `column "b" was long and is integer`,
			schema: func(*delta.Metadata) string { return fields("id", delta.Long, "b", delta.Integer).String() }},
		"renamed": {properties: mapped, want: `column "id" was renamed to "renamed"`,
			schema: func(m *delta.Metadata) string { return strings.Replace(m.SchemaString, `"id"`, `"renamed"`, 1) }},
		"dropped and added": {properties: mapped, want: `column "id" was dropped and another of its name added`,
			schema: func(m *delta.Metadata) string {
				at := strings.Index(m.SchemaString, "col-")
				return m.SchemaString[:at] + "col-x" + m.SchemaString[at+5:]
			}},
	} {
		t.Run(name, func(t *testing.T) {
			table := newTable(t, fields("id", delta.Long, "b", delta.Long), c.properties, `[{"id":1}]`)
			setMetadata(t, table, func(m *delta.Metadata) { m.SchemaString = c.schema(m) })
			got, err := readChanges(table, 0, -1, nil)
			var changed *delta.SchemaChangeError
			if !errors.As(err, &changed) || changed.Version != 2 || !strings.Contains(err.Error(), c.want) || len(got) > 0 {
				t.Fatalf("got %d changes, %v, want version 2 and %q", len(got), err, c.want)
			}
			if got := mustChanges(t, table, 0, 1, nil); len(got) != 1 {
				t.Errorf("before the change: got %v", got)
			}
			mustChanges(t, table, 2, -1, nil)
		})
	}
}

func TestChanges_FeedSwitchedOff_NamesTheVersionAfterWhatIsBefore(t *testing.T) {
	on := map[string]string{"delta.enableChangeDataFeed": "true"}
	table := newTable(t, fields("id", delta.Long), on, `[{"id":1}]`, `[{"id":2}]`)
	setMetadata(t, table, func(m *delta.Metadata) { m.Configuration["delta.enableChangeDataFeed"] = "false" })
	appendJSON(t, table, `[{"id":3}]`)
	got, err := readChanges(table, 1, -1, &delta.ChangesOptions{Method: delta.MethodFeed})
	var off *delta.FeedError
	if !errors.As(err, &off) || off.Version != 3 || len(got) != 2 {
		t.Errorf("got %d changes, %v, want two and version 3", len(got), err)
	}
	auto := mustChanges(t, table, 0, -1, nil)
	if len(auto) != 3 || auto[0].method != delta.MethodFeed || auto[2].method != delta.MethodVectors {
		t.Errorf("got %v", auto)
	}
}

func TestChanges_WhereAndColumns_ApplyToWhatIsYielded(t *testing.T) {
	table, _ := unpack(t, "plain", nil)
	for _, c := range []struct {
		where   string
		columns []string
		key     []string
		want    []string
	}{
		{"_change_type = 'update_postimage' AND id = 4", []string{"amount", "id"}, []string{"id"},
			[]string{`3 update_postimage {"amount":"6.00","id":4}`}},
		{"_commit_version = 3 AND id = 3", []string{"Name"}, nil,
			[]string{`3 delete {"name":"row 3"}`, `3 insert {"name":"changed"}`}},
		{"name = 'changed' AND id < 5", []string{}, []string{"id"},
			[]string{`3 update_postimage {}`, `3 update_postimage {}`}},
		{"_commit_timestamp < TIMESTAMP '2020-01-01 00:00:00'", nil, nil, nil},
	} {
		got := sorted(mustChanges(t, table, 3, 4, &delta.ChangesOptions{Where: where(t, c.where), Columns: c.columns,
			Key: c.key}))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.where, got, c.want)
		}
	}
}

// A table may have columns of the names that changes need, as long as they are not asked for; and columns whose values do not
// count.
func TestChanges_ColumnsThatDoNotCount_MakeNoChange(t *testing.T) {
	table := newTable(t, fields("id", delta.Long, "note", delta.String, "_commit_version", delta.Long), nil,
		`[{"id":1,"note":"a","_commit_version":5},{"id":2,"note":"b","_commit_version":6}]`)
	set := func(assign, cond string) {
		t.Helper()
		name, value, _ := strings.Cut(assign, " = ")
		_, err := table.Update(context.Background(), []delta.Assignment{{Column: name, Value: where(t, value)}}, where(t, cond), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	set("_commit_version = 7", "TRUE")
	set("note = 'c'", "id = 2")
	opts := &delta.ChangesOptions{Method: delta.MethodDiff, Key: []string{"id"}, Columns: []string{"id", "note"},
		Where: where(t, "_commit_version > 1")}
	for ignore, want := range map[string][]string{
		"": {`2 update_postimage {"id":1,"note":"a"}`, `2 update_postimage {"id":2,"note":"b"}`,
			`2 update_preimage {"id":1,"note":"a"}`, `2 update_preimage {"id":2,"note":"b"}`,
			`3 update_postimage {"id":2,"note":"c"}`, `3 update_preimage {"id":2,"note":"b"}`},
		"_Commit_Version": {`3 update_postimage {"id":2,"note":"c"}`, `3 update_preimage {"id":2,"note":"b"}`},
	} {
		opts.Ignore = []string{ignore}
		if got := sorted(mustChanges(t, table, 1, -1, opts)); !slices.Equal(got, want) {
			t.Errorf("without %q: got %v, want %v", ignore, got, want)
		}
	}
	opts.Columns = nil
	if _, err := readChanges(table, 1, -1, opts); err == nil || !strings.Contains(err.Error(), "ask for other columns") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestChanges_LittleMemory_SameChanges(t *testing.T) {
	for _, method := range []delta.ChangeMethod{delta.MethodDiff, delta.MethodRowTracking} {
		table, _ := unpack(t, "row-tracking", nil)
		want := sorted(mustChanges(t, table, 1, -1, &delta.ChangesOptions{Method: method}))
		got := sorted(mustChanges(t, table, 1, -1, &delta.ChangesOptions{Method: method, MemoryBytes: 1, BatchRows: 3,
			Concurrency: 1, TempDir: t.TempDir()}))
		if d := diffLines(got, want); d != "" {
			t.Error(d)
		}
	}
}

func TestChanges_EarlyStop_EndsCleanly(t *testing.T) {
	table, _ := unpack(t, "feed", nil)
	for c, err := range table.Changes(context.Background(), 0, -1, &delta.ChangesOptions{BatchRows: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		c.Batch.Release()
		break
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range table.Changes(ctx, 0, -1, nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
}

// rewriteCommit changes the text of a commit.
func rewriteCommit(t *testing.T, st store.Store, version int64, edit func(string) string) {
	t.Helper()
	key := fmt.Sprintf("_delta_log/%020d.json", version)
	data, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Put(context.Background(), key, []byte(edit(string(data)))); err != nil {
		t.Fatal(err)
	}
}

func TestChanges_RemoveWithoutSizeAndPartition_LookedUp(t *testing.T) {
	table, st := unpack(t, "plain", nil)
	want := sorted(mustChanges(t, table, 3, 3, nil))
	rewriteCommit(t, st, 3, func(s string) string {
		var lines []string
		for line := range strings.Lines(s) {
			if at := strings.Index(line, `,"extendedFileMetadata"`); at >= 0 {
				line = line[:at] + "}}\n"
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "")
	})
	if d := diffLines(sorted(mustChanges(t, open(t, st), 3, 3, nil)), want); d != "" || len(want) == 0 {
		t.Error(d)
	}
}

func TestChanges_CommitBroken_ErrorAfterTheVersionsBefore(t *testing.T) {
	table, st := unpack(t, "plain", nil)
	rewriteCommit(t, st, 4, func(s string) string { return s[:len(s)/2] })
	got, err := readChanges(table, 1, -1, nil)
	if !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), "4.json") || got[len(got)-1].version != 3 {
		t.Errorf("got %d changes and %v", len(got), err)
	}
}

func TestChanges_TimesOfFiles_AreMadeToIncrease(t *testing.T) {
	mem := store.NewMem()
	s := fields("id", delta.Long)
	tableOf(t, mem, s, nil, batchOf(t, s, `[{"id":1}]`), batchOf(t, s, `[{"id":2}]`))
	base := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	table := open(t, &fixedTimes{Store: mem, at: []time.Time{base, base.Add(-time.Hour), base}})
	var got []time.Time
	for c, err := range table.Changes(context.Background(), 0, -1, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, c.Time)
		c.Batch.Release()
	}
	want := []time.Time{base.Add(time.Millisecond), base.Add(2 * time.Millisecond)}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestVersionSince_BetweenCommits_IsTheLaterOne(t *testing.T) {
	mem := store.NewMem()
	s := fields("id", delta.Long)
	tableOf(t, mem, s, nil, batchOf(t, s, `[{"id":1}]`), batchOf(t, s, `[{"id":2}]`))
	base := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return base.Add(time.Duration(n) * time.Hour) }
	table := open(t, &fixedTimes{Store: mem, at: []time.Time{hour(0), hour(1), hour(2)}})
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{hour(-5), 0}, {hour(0), 0}, {hour(0).Add(time.Nanosecond), 1}, {hour(1).Add(-time.Millisecond), 1}, {hour(1), 1},
		{hour(1).Add(time.Minute), 2}, {hour(2), 2},
	} {
		if got, err := table.VersionSince(context.Background(), c.at); err != nil || got != c.want {
			t.Errorf("since %v: got %d, %v, want %d", c.at, got, err, c.want)
		}
	}
	_, err := table.VersionSince(context.Background(), hour(2).Add(time.Nanosecond))
	if !errors.Is(err, delta.ErrVersionNotFound) || !strings.Contains(err.Error(), "since 2026-01-31T14:00:00.001Z") {
		t.Errorf("after the last: got %v", err)
	}
	if got, err := table.VersionAsOf(context.Background(), hour(1).Add(time.Minute)); err != nil || got != 1 {
		t.Errorf("as of: got %d, %v", got, err)
	}
}

// fixedTimes is a store whose commits have the given times.
type fixedTimes struct {
	store.Store
	at []time.Time
}

func (f *fixedTimes) move(o store.Object) store.Object {
	var version int
	if _, err := fmt.Sscanf(o.Key, "_delta_log/%020d.json", &version); err == nil {
		o.Modified = f.at[version]
	}
	return o
}

func (f *fixedTimes) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		for o, err := range f.Store.List(ctx, prefix, after) {
			if !yield(f.move(o), err) {
				return
			}
		}
	}
}

func (f *fixedTimes) Stat(ctx context.Context, key string) (store.Object, error) {
	o, err := f.Store.Stat(ctx, key)
	return f.move(o), err
}
