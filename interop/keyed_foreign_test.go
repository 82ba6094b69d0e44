package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const pairs = "    format: json\n    changes: {op: op}"

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

// TestKeyed_DeltaRsWritesMeanwhile_TableIsWhatBothSay has delta-rs append, update, delete and merge rows of its own in a table
// that is mirrored. It never compacts meanwhile: it would not see what was deleted since (README.md).
func TestKeyed_DeltaRsWritesMeanwhile_TableIsWhatBothSay(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"    mode: mirror", "    mode: mirror\n    compatibility: broad"} {
		t.Run(map[bool]string{true: "vectors", false: "broad"}[len(target) < 20], func(t *testing.T) {
			t.Parallel()
			b := needBroker(t)
			needReaders(t)
			a := newPairs(t, b)
			table, index := filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "index")
			file := a.keyedPipeline(t, table, index, pairs, target)
			stop := a.feed(5)
			p := start(t, nil, "run", file, "--progress", "off")
			waitUntil(t, patience, "our first commit is there", func() bool {
				_, err := os.Stat(filepath.Join(table, "_delta_log", fmt.Sprintf("%020d.json", 2)))
				return err == nil || ended(p)
			})
			other := newRival(t, deltaRs, table, table)
			for turn := range rounds(t, 16) {
				other.do([]string{"append", "merge", "update", "delete"}[turn%4])
			}
			stop()
			if ended(p) {
				t.Fatalf("freshet ended by itself: %v\n%s", p.err, tail(p.out.String(), 8000))
			}
			p.signal(syscall.SIGTERM)
			p.mustEnd(patience)
			start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
			t.Logf("delta-rs: %d commits, %d failures, %d rows", other.commits, other.failures, len(other.mine))
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
