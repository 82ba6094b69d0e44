package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const (
	pairs     = "    format: json\n    changes: {op: op}"
	vectors   = "    mode: mirror"
	rewritten = "    mode: mirror\n    compatibility: broad"
)

// newPairs is a topic of accounts with the columns that other engines write, id and s.
func newPairs(t *testing.T, b *broker) *accounts {
	t.Helper()
	a := newAccounts(t, b, seeded(t), asPairs)
	delete(a.types, "n")
	delete(a.types, "at")
	return a
}

// add puts the rows of another engine beside those of the topic.
func (a *accounts) add(other *rival) {
	for id, s := range other.mine {
		a.rows[id] = account{ID: id, S: &s}
	}
}

// TestKeyed_OthersWriteMeanwhile_TableIsWhatBothSay has another engine append, update, delete and merge rows of its own in a table
// that is mirrored. Spark compacts it, too; delta-rs would not see what was deleted meanwhile (README.md).
func TestKeyed_OthersWriteMeanwhile_TableIsWhatBothSay(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		name   string
		engine *engine
		target string
		every  string // Spark, which takes seconds, loses to each of our commits that falls into its own
		turns  int
		ops    []string
	}{
		{"delta-rs on vectors", deltaRs, vectors, "100ms", 16, []string{"append", "merge", "update", "delete"}},
		{"delta-rs on rewritten files", deltaRs, rewritten, "100ms", 16, []string{"append", "merge", "update", "delete"}},
		{"spark on vectors", spark, vectors, "4s", 10, []string{"append", "merge", "optimize", "update", "delete"}},
		{"spark on rewritten files", spark, rewritten, "4s", 5, []string{"append", "merge", "optimize", "update", "delete"}},
	} {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			b := needBroker(t)
			needReaders(t)
			a := newPairs(t, b)
			a.every = with.every
			table, index := filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "index")
			file := a.keyedPipeline(t, table, index, pairs, with.target)
			stop := a.feed(5)
			p := start(t, nil, "run", file, "--progress", "off")
			waitUntil(t, patience, "our first commit is there", func() bool {
				_, err := os.Stat(filepath.Join(table, "_delta_log", fmt.Sprintf("%020d.json", 2)))
				return err == nil || ended(p)
			})
			other := newRival(t, with.engine, table, table)
			for turn := range rounds(t, with.turns) {
				other.do(with.ops[turn%len(with.ops)])
			}
			stop()
			if ended(p) {
				t.Fatalf("freshet ended by itself: %v\n%s", p.err, tail(p.out.String(), 8000))
			}
			p.signal(syscall.SIGTERM)
			p.mustEnd(patience)
			start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
			t.Logf("%s: %d commits, %d failures, %d rows", with.engine.name, other.commits, other.failures, len(other.mine))
			a.add(other)
			a.want(t, table, a.state(), false)
		})
	}
}

// TestKeyed_OthersChangeOurRowsBetweenRuns_TheIndexFollows has another engine merge, delete and compact between runs, also the
// rows that the topic is of: what it leaves is what the next changes change.
func TestKeyed_OthersChangeOurRowsBetweenRuns_TheIndexFollows(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		engine *engine
		turns  int
	}{{deltaRs, 6}, {spark, 3}} {
		t.Run(with.engine.name, func(t *testing.T) {
			t.Parallel()
			b := needBroker(t)
			needReaders(t)
			a := newPairs(t, b)
			table, index := filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "index")
			file := a.keyedPipeline(t, table, index, pairs, "    mode: mirror")
			mirror := func() {
				a.some(150)
				start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
			}
			mirror()
			other := newRival(t, with.engine, table, table)
			other.next = 300 // the topic has those below
			for turn := range rounds(t, with.turns) {
				other.mine = map[int64]string{}
				for id, row := range a.state() {
					other.mine[id] = *row.S
				}
				other.do([]string{"merge", "delete", "optimize", "update"}[turn%4])
				clear(a.rows)
				a.add(other)
				mirror()
			}
			a.want(t, table, a.state(), false)
		})
	}
}
