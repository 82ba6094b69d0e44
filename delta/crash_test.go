package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// crashCase is an operation, and the table that it is tried on: of these properties and columns, unless mapped by name.
type crashCase struct {
	run        operation
	properties map[string]string
	create     delta.CreateOptions
	before     operation // done to the table first; may be nil
}

// writing are the ways to write rows.
func writing(t *testing.T) map[string]crashCase {
	cases := map[string]crashCase{}
	for _, mode := range []delta.WriteMode{delta.WriteAppend, delta.WriteOverwrite, delta.WriteDynamic} {
		cases[string(mode)] = crashCase{create: delta.CreateOptions{PartitionBy: []string{"p"}},
			properties: map[string]string{"delta.enableChangeDataFeed": "true"},
			run: func(ctx context.Context, table *delta.Table) error {
				s := fields("id", delta.Long, "p", delta.String, "x", delta.Integer, "y", delta.Double, "s", delta.String)
				src := sourceWith(t, s, `[{"id":-1,"p":"a","x":1,"y":2,"s":"new"},{"id":-2,"p":null,"x":1,"y":2,"s":"new"}]`)
				_, err := table.Write(ctx, src.Rows(ctx), src.Schema, &delta.WriteOptions{Mode: mode,
					DMLOptions: delta.DMLOptions{Deadline: time.Nanosecond}})
				return err
			}}
	}
	return cases
}

// altering are the changes of what a table is.
func altering() map[string]crashCase {
	mapped := map[string]string{"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
	no, text := false, "'none'"
	o := &delta.AlterOptions{Upgrade: true, Deadline: time.Nanosecond}
	alter := func(change func(context.Context, *delta.Table) (delta.CommitResult, error)) crashCase {
		return crashCase{properties: mapped, run: func(ctx context.Context, t *delta.Table) error {
			_, err := change(ctx, t)
			return err
		}}
	}
	column := func(name string, change delta.ColumnChange) crashCase {
		return alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.ChangeColumn(ctx, name, change, o)
		})
	}
	properties := func(p map[string]string) crashCase {
		return alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.SetProperties(ctx, p, o)
		})
	}
	constrain := func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
		return t.AddConstraint(ctx, "known", "id IS NOT NULL", o)
	}
	drop := alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
		return t.DropConstraint(ctx, "known", false, o)
	})
	drop.before = alter(constrain).run
	unmapped := properties(map[string]string{"delta.columnMapping.mode": "name"})
	unmapped.properties = nil
	return map[string]crashCase{
		"add columns": alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.AddColumns(ctx, []delta.NewColumn{{Field: delta.Field{Name: "z", Type: delta.Long, Nullable: true}}}, o)
		}),
		"rename a column": alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.RenameColumn(ctx, "s", "text", o)
		}),
		"drop columns": alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.DropColumns(ctx, []string{"s", "y"}, o)
		}),
		"widen a column":    column("x", delta.ColumnChange{Type: delta.Long}),
		"not null":          column("id", delta.ColumnChange{Nullable: &no}),
		"default":           column("s", delta.ColumnChange{Default: &text}),
		"add a constraint":  alter(constrain),
		"drop a constraint": drop,
		"map columns":       unmapped,
		"track rows":        properties(map[string]string{"delta.enableRowTracking": "true"}),
		"commit timestamps": properties(map[string]string{"delta.enableInCommitTimestamps": "true"}),
		"unset a property": alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.UnsetProperties(ctx, []string{"delta.enableTypeWidening"}, false, o)
		}),
		"cluster": alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.ClusterBy(ctx, []string{"x", "id"}, o)
		}),
		"upgrade": alter(func(ctx context.Context, t *delta.Table) (delta.CommitResult, error) {
			return t.UpgradeProtocol(ctx, []string{"v2Checkpoint"}, o)
		}),
	}
}

// keeping are the ways to look after a table: operations, and those that need a table of their own.
func keeping() map[string]crashCase {
	optimize := operations()["optimize"]
	check := func(ctx context.Context, t *delta.Table) error {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return err
		}
		return t.Checkpoint(ctx, snap)
	}
	clean := func(ctx context.Context, t *delta.Table) error {
		_, err := t.CleanLog(ctx, &delta.CleanOptions{Now: time.Now().AddDate(1, 0, 0)})
		return err
	}
	v2 := map[string]string{"delta.checkpointPolicy": "v2"}
	cases := map[string]crashCase{
		"checkpoint":      {run: check},
		"checkpoint V2":   {run: check, properties: v2},
		"cluster files":   {run: optimize, create: delta.CreateOptions{ClusterBy: []string{"x", "id"}}},
		"clean the log":   {before: check, run: clean},
		"clean a V2 log":  {before: check, run: clean, properties: v2},
		"clean a bad log": {run: clean}, // has no checkpoint, and so nothing may go
		"vacuum lite": {before: optimize, run: func(ctx context.Context, t *delta.Table) error {
			_, err := t.Vacuum(ctx, &delta.VacuumOptions{Lite: true, Retention: -1, Force: true})
			return err
		}},
		"repack": {run: func(ctx context.Context, t *delta.Table) error {
			snap, err := t.Snapshot(ctx)
			if err != nil {
				return err
			}
			var files []delta.Add
			for a, err := range snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
				if err != nil {
					return err
				}
				files = append(files, *a)
			}
			_, err = snap.Repack(ctx, [][]delta.Add{files}, nil)
			return err
		}},
	}
	tracked := map[string]string{"delta.enableRowTracking": "true"}
	for name, run := range operations() {
		cases[name] = crashCase{run: run, create: delta.CreateOptions{PartitionBy: []string{"p"}}, properties: tracked}
	}
	cases["manifest"] = crashCase{run: operations()["manifest"], before: purge} // there are none of tables with vectors
	return cases
}

// returning are the ways back to an earlier version: with no progress in it, and with progress to keep or to rewind.
func returning() map[string]crashCase {
	write := func(ctx context.Context, t *delta.Table) error {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return err
		}
		tx := t.Begin(snap, nil)
		tx.AddTxn("app", 7)
		_, err = tx.Commit(ctx)
		return err
	}
	back := func(progress delta.RestoreProgress) operation {
		return func(ctx context.Context, t *delta.Table) error {
			_, err := t.Restore(ctx, 1, &delta.RestoreOptions{Progress: progress, Deadline: time.Nanosecond})
			return err
		}
	}
	return map[string]crashCase{
		"restore": {run: back("")},
		"keep":    {before: write, run: back(delta.ProgressKeep)},
		"rewind":  {before: write, run: back(delta.ProgressRewind)},
	}
}

// purge leaves a table without deletion vectors.
func purge(ctx context.Context, t *delta.Table) error {
	_, err := t.UnsetProperties(ctx, []string{"delta.enableDeletionVectors"}, false, nil)
	if err == nil {
		err = operations()["optimize"](ctx, t)
	}
	return err
}

// dropping are the features that a table can lose: with files written again, with a checkpoint for older readers, and
// with neither.
func dropping() map[string]crashCase {
	o := &delta.AlterOptions{Upgrade: true, Deadline: time.Nanosecond}
	drop := func(name string, properties map[string]string, before operation) crashCase {
		return crashCase{properties: properties, before: before, run: func(ctx context.Context, t *delta.Table) error {
			_, err := t.DropFeature(ctx, name, o)
			return err
		}}
	}
	widen := func(ctx context.Context, t *delta.Table) error {
		_, err := t.ChangeColumn(ctx, "x", delta.ColumnChange{Type: delta.Long}, o)
		return err
	}
	return map[string]crashCase{
		"drop columnMapping":   drop("columnMapping", map[string]string{"delta.columnMapping.mode": "name"}, nil),
		"drop typeWidening":    drop("typeWidening", map[string]string{"delta.enableTypeWidening": "true"}, widen),
		"drop deletionVectors": drop("deletionVectors", nil, purge),
		"drop appendOnly":      drop("appendOnly", nil, nil),
	}
}

// look tells what a version is: columns, rules, features, progress and rows, without names that are made at random.
func look(t *testing.T, snap *delta.Snapshot) string {
	t.Helper()
	var b strings.Builder
	for _, f := range snap.Schema().Fields {
		fmt.Fprintln(&b, f.Name, f.Type, f.Nullable)
	}
	configuration := snap.Metadata().Configuration
	for _, key := range slices.Sorted(maps.Keys(configuration)) {
		value := configuration[key]
		if strings.Contains(key, "aterialized") || strings.HasSuffix(key, "Timestamp") {
			value = ""
		}
		fmt.Fprintln(&b, key, value)
	}
	rows := scanLines(t, snap, nil)
	slices.Sort(rows)
	p := snap.Protocol()
	progress := slices.Sorted(maps.Keys(snap.Txns()))
	fmt.Fprintln(&b, p.ReaderFeatures, p.WriterFeatures, len(snap.DomainMetadata()), progress, rows)
	return b.String()
}

// looks are those of the versions from this one on.
func looks(t *testing.T, table *delta.Table, from int64) (all []string) {
	t.Helper()
	for v := from; v <= snapshot(t, table).Version(); v++ {
		snap, err := table.SnapshotAt(context.Background(), v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, look(t, snap))
	}
	return all
}

// TestOperations_CrashAtEveryStoreCall_OldVersionOrNew lets the process die before and after each call of each operation:
// the table is what it was, or what the operation makes of it in one of its commits; it is sound, and can be written.
func TestOperations_CrashAtEveryStoreCall_OldVersionOrNew(t *testing.T) {
	seed := seedOf(t)
	for _, cases := range []map[string]crashCase{writing(t), altering(), keeping(), returning(), dropping()} {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				crashThrough(t, seed, c)
			})
		}
	}
}

// sameTable reports whether all objects of before are there, and whatever came since is outside the log: then the table is what
// it was, and need not be looked at again.
func sameTable(now, before map[string][]byte) bool {
	for key, data := range before {
		if again, ok := now[key]; !ok || !bytes.Equal(data, again) {
			return false
		}
	}
	for key := range now {
		if _, ok := before[key]; !ok && strings.HasPrefix(key, "_delta_log/") {
			return false
		}
	}
	return true
}

func crashThrough(t *testing.T, seed uint64, c crashCase) {
	ctx, st := context.Background(), store.NewMem()
	c.create.Properties = map[string]string{"delta.enableDeletionVectors": "true"}
	maps.Copy(c.create.Properties, c.properties)
	rng := rand.New(rand.NewPCG(seed, 4))
	table := pointsTable(t, st, rng, 2, c.create)
	deletePoints(t, table, rng, 1)
	if c.before != nil {
		if err := c.before(ctx, table); err != nil {
			t.Fatal(err)
		}
	}
	base := snapshot(t, table).Version()
	whole := copyOf(t, st)
	if err := c.run(ctx, open(t, whole)); err != nil {
		t.Fatal(err)
	}
	may := looks(t, open(t, whole), base)
	untouched := contents(t, st)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			inner := copyOf(t, st)
			broken := storetest.NewFaulty(inner, storetest.CrashAt(n, after))
			handle, err := delta.Open(ctx, broken, nil)
			if err == nil {
				err = c.run(ctx, handle)
			}
			if !broken.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if n == 1 && err == nil {
				t.Errorf("crash at the first call, after %v: the operation did not notice", after)
			}
			if sameTable(contents(t, inner), untouched) {
				continue
			}
			left := open(t, inner)
			if got := look(t, snapshot(t, left)); !slices.Contains(may, got) {
				t.Fatalf("crash at call %d, after %v: got\n%s\nwant one of\n%s", n, after, got, strings.Join(may, "\n"))
			}
			if r := check(t, left, &delta.CheckOptions{Deep: true}); r.Errors > 0 {
				t.Fatalf("crash at call %d, after %v: %+v", n, after, r.Findings)
			}
			if _, err := left.Delete(ctx, parse(t, "id = 0"), nil); err != nil {
				t.Fatalf("crash at call %d, after %v: then: %v", n, after, err)
			}
		}
	}
}

// TestMakingTables_CrashAtEveryStoreCall_NoneOrWhole lets the process die while it makes a table: there is none then, and
// it can be made, or all of it is there.
func TestMakingTables_CrashAtEveryStoreCall_NoneOrWhole(t *testing.T) {
	ctx := context.Background()
	s := fields("id", delta.Long, "p", delta.String)
	rows := `[{"id":1,"p":"a"},{"id":2,"p":"b"},{"id":3,"p":null}]`
	disk, err := store.NewDisk(t.TempDir()) // shallow clones name files by their URLs, which objects in memory lack
	if err != nil {
		t.Fatal(err)
	}
	origin := tableWith(t, disk, s, rows, map[string]string{"delta.enableDeletionVectors": "true"})
	if _, err := origin.Delete(ctx, parse(t, "id = 2"), nil); err != nil { // by a vector, that goes along
		t.Fatal(err)
	}
	folder := store.NewMem()
	parquetFolder(t, folder, s, []string{"p"}, rows)
	for name, c := range map[string]struct {
		from store.Store
		make func(store.Store) error
		rows int
	}{
		"create": {store.NewMem(), func(st store.Store) error {
			_, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: s, ClusterBy: []string{"id"}})
			return err
		}, 0},
		"convert": {folder, func(st store.Store) error {
			_, err := delta.Convert(ctx, st, nil)
			return err
		}, 3},
		"deep clone": {store.NewMem(), func(st store.Store) error {
			_, err := origin.Clone(ctx, st, &delta.CloneOptions{Concurrency: 1})
			return err
		}, 2},
		"shallow clone": {store.NewMem(), func(st store.Store) error {
			_, err := origin.Clone(ctx, st, &delta.CloneOptions{Shallow: true})
			return err
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			crashMaking(t, c.from, c.make, func(st store.Store) int {
				table, err := delta.Open(ctx, st, &delta.OpenOptions{
					Outside: func(context.Context, string) (store.Store, error) { return disk, nil }})
				if errors.Is(err, delta.ErrNoTable) {
					return -1
				}
				if err != nil {
					t.Fatal(err)
				}
				return len(scanLines(t, snapshot(t, table), nil))
			}, c.rows)
		})
	}
}

// crashMaking crashes at each call; count is the rows of the table in a store, -1 where there is none.
func crashMaking(t *testing.T, from store.Store, make func(store.Store) error, count func(store.Store) int, want int) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			inner := copyOf(t, from)
			broken := storetest.NewFaulty(inner, storetest.CrashAt(n, after))
			err := make(broken)
			if !broken.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			got := count(inner)
			if got < 0 {
				if err := make(inner); err != nil {
					t.Fatalf("crash at call %d, after %v: then: %v", n, after, err)
				}
				got = count(inner)
			}
			if got != want {
				t.Fatalf("crash at call %d, after %v: got %d rows, want %d", n, after, got, want)
			}
		}
	}
}
