package delta_test

import (
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

// keeping are the rest of what looks after tables: operations has those that rewrite files.
func keeping() map[string]crashCase {
	optimize := func(ctx context.Context, t *delta.Table) error {
		_, err := t.Optimize(ctx, &delta.OptimizeOptions{Deadline: time.Nanosecond, Concurrency: 1})
		return err
	}
	check := func(ctx context.Context, t *delta.Table) error {
		snap, err := t.Snapshot(ctx)
		if err != nil {
			return err
		}
		return t.Checkpoint(ctx, snap)
	}
	return map[string]crashCase{
		"checkpoint":    {run: check},
		"cluster files": {run: optimize, create: delta.CreateOptions{ClusterBy: []string{"x", "id"}}},
		"clean the log": {before: check, run: func(ctx context.Context, t *delta.Table) error {
			_, err := t.CleanLog(ctx, &delta.CleanOptions{Now: time.Now().AddDate(1, 0, 0)})
			return err
		}},
		"vacuum lite": {before: optimize, run: func(ctx context.Context, t *delta.Table) error {
			_, err := t.Vacuum(ctx, &delta.VacuumOptions{Lite: true, Retention: -1, Force: true})
			return err
		}},
		"rewind": {before: func(ctx context.Context, t *delta.Table) error {
			snap, err := t.Snapshot(ctx)
			if err != nil {
				return err
			}
			tx := t.Begin(snap, nil)
			tx.AddTxn("app", 7)
			_, err = tx.Commit(ctx)
			return err
		}, run: func(ctx context.Context, t *delta.Table) error {
			_, err := t.Restore(ctx, 1, &delta.RestoreOptions{Progress: delta.ProgressRewind, Deadline: time.Nanosecond})
			return err
		}},
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
	for _, cases := range []map[string]crashCase{writing(t), altering(), keeping()} {
		for name, c := range cases {
			t.Run(name, func(t *testing.T) { crashThrough(t, seed, c) })
		}
	}
}

func crashThrough(t *testing.T, seed uint64, c crashCase) {
	ctx, st := context.Background(), store.NewMem()
	c.create.Properties = map[string]string{"delta.enableDeletionVectors": "true"}
	maps.Copy(c.create.Properties, c.properties)
	table := pointsTable(t, st, rand.New(rand.NewPCG(seed, 4)), 3, c.create)
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
		}, 3},
		"shallow clone": {store.NewMem(), func(st store.Store) error {
			_, err := origin.Clone(ctx, st, &delta.CloneOptions{Shallow: true})
			return err
		}, 3},
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
