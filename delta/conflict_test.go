package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// race begins a transaction, lets winner commit, and then commits the transaction.
func race(t *testing.T, winner, loser func(*delta.Transaction)) (delta.CommitResult, error) {
	t.Helper()
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "old")
	tx := table.Begin(snapshot(t, table), nil)
	loser(tx)
	other := open(t, st)
	first := other.Begin(snapshot(t, other), nil)
	winner(first)
	if _, err := first.Commit(context.Background()); err != nil {
		t.Fatalf("the winner: %v", err)
	}
	return tx.Commit(context.Background())
}

func adds(name string) func(*delta.Transaction) {
	return func(tx *delta.Transaction) { tx.Add(someFile(name)) }
}

func removes(name string, dataChange bool) func(*delta.Transaction) {
	return func(tx *delta.Transaction) {
		tx.Remove(delta.Remove{Path: "day=2026-01-31/" + name, DataChange: dataChange})
	}
}

func progress(version int64) func(*delta.Transaction) {
	return func(tx *delta.Transaction) { tx.AddTxn("app", version) }
}

func changesMetadata(tx *delta.Transaction) {
	tx.SetMetadata(&delta.Metadata{ID: "x", Provider: "parquet", SchemaString: twoColumns().String(),
		PartitionColumns: []string{"day"}, Configuration: map[string]string{"owner": "me"}})
}

func changesProtocol(tx *delta.Transaction) {
	tx.SetProtocol(&delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 4})
}

func dropsFeatures(tx *delta.Transaction) {
	tx.SetProtocol(&delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 1})
}

func all(parts ...func(*delta.Transaction)) func(*delta.Transaction) {
	return func(tx *delta.Transaction) {
		for _, p := range parts {
			p(tx)
		}
	}
}

func readsAll(tx *delta.Transaction) { tx.ReadTable() }

func expects(version int64, present bool) func(*delta.Transaction) {
	return func(tx *delta.Transaction) { tx.ExpectTxn("app", version, present) }
}

func TestCommit_LostRace_RulesDecide(t *testing.T) {
	for _, c := range []struct {
		name          string
		winner, loser func(*delta.Transaction)
		want          delta.ConflictKind // "" when the loser is built upon the winner
	}{
		{"append and append", adds("a"), adds("b"), ""},
		{"append and delete", removes("old", true), adds("b"), ""},
		{"append and compaction", all(removes("old", false), adds("new")), adds("b"), ""},
		{"append and metadata", changesMetadata, adds("b"), delta.ConflictMetadata},
		{"append and harmless protocol", changesProtocol, adds("b"), ""},
		{"append and protocol", dropsFeatures, adds("b"), delta.ConflictProtocol},
		{"protocol and protocol", changesProtocol, changesProtocol, delta.ConflictProtocol},
		{"append and progress of another", progress(3), adds("b"), ""},
		{"progress of the same", progress(3), progress(4), delta.ConflictTxn},
		{"expected progress has moved", progress(3), all(expects(0, false), progress(4)), delta.ConflictTxn},
		{"expected progress came true", progress(3), all(expects(3, true), progress(4)), delta.ConflictTxn},
		{"expected progress stayed", adds("a"), all(expects(0, false), progress(4)), ""},
		{"both remove a file", removes("old", true), removes("old", true), delta.ConflictDelete},
		{"both compact a file", removes("old", false), removes("old", false), delta.ConflictDelete},
		{"removal and append", adds("a"), removes("old", true), ""},
		{"reader and append", adds("a"), all(readsAll, adds("b")), delta.ConflictAppend},
		{"reader and compaction", removes("old", false), all(readsAll, adds("b")), ""},
		{"reader and delete", removes("old", true), all(readsAll, adds("b")), delta.ConflictDelete},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := race(t, c.winner, c.loser)
			var conflict *delta.ConflictError
			switch {
			case c.want == "" && (err != nil || result.Version != 3 || result.Retries != 1):
				t.Errorf("got %+v, %v; want version 3 after one retry", result, err)
			case c.want != "" && (!errors.As(err, &conflict) || conflict.Kind != c.want):
				t.Errorf("got %v, want a conflict over %s", err, c.want)
			case c.want != "" && !errors.Is(err, delta.ErrConflict):
				t.Errorf("%v is no ErrConflict", err)
			}
		})
	}
}

func TestExpectTxn_FirstTry_ComparesWithTheBase(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	commit := func(version int64, present bool, next int64) error {
		tx := table.Begin(snapshot(t, table), nil)
		tx.ExpectTxn("app", version, present)
		tx.AddTxn("app", next)
		_, err := tx.Commit(context.Background())
		return err
	}
	if err := commit(0, true, 1); !errors.Is(err, delta.ErrConflict) {
		t.Errorf("absent, wanted 0: got %v, want a conflict", err)
	}
	if err := commit(0, false, 1); err != nil {
		t.Errorf("absent, wanted absent: %v", err)
	}
	if err := commit(0, false, 2); !errors.Is(err, delta.ErrConflict) {
		t.Errorf("1, wanted absent: got %v, want a conflict", err)
	}
	if err := commit(1, true, 2); err != nil {
		t.Errorf("1, wanted 1: %v", err)
	}
	if got, ok := snapshot(t, open(t, st)).Txn("app"); !ok || got != 2 {
		t.Errorf("progress: got %d, %v, want 2", got, ok)
	}
}

func TestCommit_ManyAppenders_EachLandsOnce(t *testing.T) {
	const writers, commits = 32, 4
	st := store.NewMem()
	create(t, st, nil)
	var group sync.WaitGroup
	var mu sync.Mutex
	versions := map[int64]string{}
	for w := range writers {
		group.Go(func() {
			table, err := delta.Open(context.Background(), st, nil)
			if err != nil {
				t.Error(err)
				return
			}
			snap, err := table.Snapshot(context.Background())
			for c := range commits {
				if err != nil {
					t.Error(err)
					return
				}
				name := fmt.Sprintf("%d-%d", w, c)
				tx := table.Begin(snap, nil)
				tx.Add(someFile(name))
				tx.ExpectTxn(fmt.Sprint("app-", w), int64(c-1), c > 0)
				tx.AddTxn(fmt.Sprint("app-", w), int64(c))
				var result delta.CommitResult
				result, err = tx.Commit(context.Background())
				snap = result.Snapshot
				mu.Lock()
				versions[result.Version] = name
				mu.Unlock()
			}
		})
	}
	group.Wait()
	snap := snapshot(t, open(t, st))
	if snap.Version() != writers*commits || len(versions) != writers*commits {
		t.Errorf("got version %d and %d results, want %d", snap.Version(), len(versions), writers*commits)
	}
	var want []string
	for _, name := range versions {
		want = append(want, name)
	}
	expectNames(t, snap, want...)
}

// faultOnce makes the n-th conditional put of a commit fail as kind says.
func faultOnce(kind storetest.Kind, err error) storetest.Rule {
	done := false
	return func(op storetest.Op, key string, _ int) storetest.Fault {
		if done || op != storetest.OpPutIfAbsent || !strings.HasSuffix(key, "1.json") {
			return storetest.Fault{}
		}
		done = true
		return storetest.Fault{Kind: kind, Err: err}
	}
}

func TestCommit_PutFails_IsResolved(t *testing.T) {
	for _, c := range []struct {
		name string
		kind storetest.Kind
		err  error
	}{
		{"ambiguous, landed", storetest.ErrorAfter, nil},
		{"ambiguous, not landed", storetest.ErrorBefore, store.ErrAmbiguous},
		{"unavailable", storetest.ErrorBefore, nil},
		{"full", storetest.ErrorBefore, store.ErrFull},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := store.NewMem()
				create(t, inner, nil)
				table := open(t, storetest.NewFaulty(inner, faultOnce(c.kind, c.err)))
				result := appendFiles(t, table, "a")
				if result.Version != 1 || result.Retries != 0 {
					t.Errorf("got version %d after %d retries, want 1 after 0", result.Version, result.Retries)
				}
				expectNames(t, snapshot(t, open(t, inner)), "a")
				appendFiles(t, table, "b")
				expectNames(t, snapshot(t, open(t, inner)), "a", "b")
			})
		})
	}
}

func TestCommit_AmbiguousAndAnotherWon_IsBuiltUponIt(t *testing.T) {
	inner := store.NewMem()
	create(t, inner, nil)
	other := open(t, inner)
	rule := func(op storetest.Op, key string, _ int) storetest.Fault {
		if op == storetest.OpPutIfAbsent && strings.HasSuffix(key, "1.json") && snapshot(t, other).Version() == 0 {
			appendFiles(t, other, "theirs")
			return storetest.Fault{Kind: storetest.ErrorBefore, Err: store.ErrAmbiguous}
		}
		return storetest.Fault{}
	}
	result := appendFiles(t, open(t, storetest.NewFaulty(inner, rule)), "ours")
	if result.Version != 2 || result.Retries != 1 {
		t.Errorf("got version %d after %d retries, want 2 after 1", result.Version, result.Retries)
	}
	expectNames(t, snapshot(t, open(t, inner)), "ours", "theirs")
}

func TestCommit_AmbiguousForEver_SaysSo(t *testing.T) {
	inner := store.NewMem()
	create(t, inner, nil)
	rule := func(op storetest.Op, key string, _ int) storetest.Fault {
		if op == storetest.OpPutIfAbsent {
			return storetest.Fault{Kind: storetest.ErrorBefore, Err: store.ErrAmbiguous}
		}
		return storetest.Fault{}
	}
	table := open(t, storetest.NewFaulty(inner, rule))
	tx := table.Begin(snapshot(t, table), &delta.TransactionOptions{Deadline: time.Millisecond})
	tx.Add(someFile("a"))
	if _, err := tx.Commit(context.Background()); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

func TestCommit_Forbidden_IsNotRetried(t *testing.T) {
	inner := store.NewMem()
	create(t, inner, nil)
	faulty := storetest.NewFaulty(inner, func(op storetest.Op, _ string, _ int) storetest.Fault {
		if op == storetest.OpPutIfAbsent {
			return storetest.Fault{Kind: storetest.ErrorBefore, Err: store.ErrPermission}
		}
		return storetest.Fault{}
	})
	table := open(t, faulty)
	tx := table.Begin(snapshot(t, table), nil)
	tx.Add(someFile("a"))
	_, err := tx.Commit(context.Background())
	if !errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrPermission alone", err)
	}
	if n := faulty.Count(storetest.OpPutIfAbsent); n != 1 {
		t.Errorf("got %d puts, want 1", n)
	}
}

func TestCommit_SeededFaults_EachFileLandsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			seededFaults(t, seed)
		}
	})
}

func seededFaults(t *testing.T, seed uint64) {
	inner := store.NewMem()
	create(t, inner, nil)
	var want []string
	table := open(t, inner)
	var faulty *delta.Table
	for i := range 15 {
		name := fmt.Sprint(i)
		if i%5 == 0 {
			faulty = openStubbornly(storetest.NewFaulty(inner, storetest.Seeded(seed*100+uint64(i), 0.2)))
		}
		tx := faulty.Begin(snapshot(t, table), nil)
		tx.Add(someFile(name))
		if i%3 == 0 {
			appendFiles(t, table, "other"+name)
			want = append(want, "other"+name)
		}
		if _, err := tx.Commit(context.Background()); err != nil {
			t.Fatalf("seed %d, commit %d: %v", seed, i, err)
		}
		want = append(want, name)
	}
	expectNames(t, snapshot(t, open(t, inner)), want...)
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

// openStubbornly opens a table in a store that fails now and then.
func openStubbornly(st store.Store) *delta.Table {
	for {
		if table, err := delta.Open(context.Background(), st, nil); err == nil {
			return table
		}
	}
}

func TestCommit_Twice_IsRefused(t *testing.T) {
	table := create(t, store.NewMem(), nil)
	tx := table.Begin(snapshot(t, table), nil)
	tx.Add(someFile("a"))
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(context.Background()); err == nil {
		t.Error("the second commit succeeded")
	}
}

func TestCommit_FileTwice_IsRefused(t *testing.T) {
	table := create(t, store.NewMem(), nil)
	tx := table.Begin(snapshot(t, table), nil)
	tx.Add(delta.Add{Path: "a%20b"}, delta.Add{Path: "a b"})
	if _, err := tx.Commit(context.Background()); err == nil || !strings.Contains(err.Error(), "a b") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestCreate_ManyAtOnce_OneWins(t *testing.T) {
	st := store.NewMem()
	var group sync.WaitGroup
	var mu sync.Mutex
	var won int
	var others []error
	for range 16 {
		group.Go(func() {
			_, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: twoColumns()})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else {
				others = append(others, err)
			}
		})
	}
	group.Wait()
	other := func(err error) bool { return !errors.Is(err, delta.ErrTableExists) }
	if won != 1 || slices.ContainsFunc(others, other) {
		t.Errorf("%d won, the others: %v", won, others)
	}
}
