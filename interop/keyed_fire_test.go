package interop_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// takenAs are the ways in which these tests take a topic of accounts.
var takenAs = []struct {
	name, formatted, target string
	write                   func(*accounts, int64) []*kgo.Record
}{
	{"json upsert", "    format: json\n    changes: {op: op, absent: keep}", "    mode: upsert\n    sequence_by: [at]\n" + withFeed, asJSON},
	{"debezium mirror", "    format: debezium", "    mode: mirror\n" + withFeed, asDebezium},
	{"debezium mirror broad", "    format: debezium", "    mode: mirror\n    compatibility: broad\n" + withFeed, asDebezium},
}

const withFeed = "    properties: {delta.enableChangeDataFeed: \"true\"}"

// TestKeyed_KilledWithTheIndexDamaged_TableIsWhatTheTopicSays kills the process again and again, and does something to its
// index each time.
func TestKeyed_KilledWithTheIndexDamaged_TableIsWhatTheTopicSays(t *testing.T) {
	t.Parallel()
	for _, taken := range takenAs {
		t.Run(taken.name, func(t *testing.T) {
			t.Parallel()
			b := needBroker(t)
			needReaders(t)
			random := seeded(t)
			a := newAccounts(t, b, rand.New(rand.NewPCG(random.Uint64(), 1)), taken.write)
			table, index := filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "index")
			file := a.keyedPipeline(t, table, index, taken.formatted, taken.target)
			older := filepath.Join(t.TempDir(), "older")
			stop := a.feed(10)
			for round := range rounds(t, 10) {
				p := start(t, nil, "run", file, "--progress", "off")
				pause(time.Duration(200+random.IntN(1000))*time.Millisecond, p.done)
				if ended(p) {
					t.Fatalf("round %d: freshet ended by itself: %v\n%s", round, p.err, tail(p.out.String(), 8000))
				}
				p.kill()
				t.Logf("round %d: the index is %s", round, damageIndex(t, random, index, older))
			}
			stop()
			start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
			a.want(t, table, a.state(), true)
		})
	}
}

// damageIndex leaves the index as it is, or does to it what can happen to files. older is where a copy of it lies for a while.
func damageIndex(t *testing.T, random *rand.Rand, index, older string) string {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	switch random.IntN(6) {
	case 0:
		check(os.RemoveAll(index))
		return "deleted"
	case 1:
		check(os.RemoveAll(older))
		if _, err := os.Stat(index); err == nil {
			check(os.CopyFS(older, os.DirFS(index)))
		}
		return "copied"
	case 2:
		if _, err := os.Stat(older); err != nil {
			return "left alone"
		}
		check(os.RemoveAll(index))
		check(os.CopyFS(index, os.DirFS(older)))
		return "that of an older version"
	case 3, 4:
		return damageFile(t, random, index)
	}
	return "left alone"
}

// damageFile cuts one of the index's files short or flips a bit of it.
func damageFile(t *testing.T, random *rand.Rand, index string) string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(index, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		return fmt.Sprintf("left alone (%d files, %v)", len(files), err)
	}
	path := files[random.IntN(len(files))]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) == 0 {
		return "left alone"
	}
	at := random.IntN(len(data))
	how := "bit-flipped"
	if random.IntN(2) == 0 {
		data, how = data[:at], "truncated"
	} else {
		data[at] ^= 1 << random.IntN(8)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s: %s at %d", how, filepath.Base(path), at)
}

// TestKeyed_TwoCopiesFrozenInTurn_TableIsWhatTheTopicSays runs two processes of one app that both read everything into one
// table, each with an index of its own, and freezes them in turn.
func TestKeyed_TwoCopiesFrozenInTurn_TableIsWhatTheTopicSays(t *testing.T) {
	t.Parallel()
	for _, taken := range takenAs[:2] {
		t.Run(taken.name, func(t *testing.T) {
			t.Parallel()
			b := needBroker(t)
			needReaders(t)
			random := seeded(t)
			a := newAccounts(t, b, rand.New(rand.NewPCG(random.Uint64(), 1)), taken.write)
			table := filepath.Join(t.TempDir(), "t")
			var files []string
			var copies []*process
			stop := a.feed(10)
			for n := range 2 {
				index := filepath.Join(t.TempDir(), fmt.Sprint(n), "index")
				files = append(files, a.keyedPipeline(t, table, index, taken.formatted, taken.target))
				copies = append(copies, start(t, nil, "run", files[n], "--progress", "off"))
			}
			for range rounds(t, 12) {
				m := copies[random.IntN(2)]
				m.signal(syscall.SIGSTOP)
				pause(time.Duration(50+random.IntN(600))*time.Millisecond, nil)
				m.signal(syscall.SIGCONT)
				pause(time.Duration(random.IntN(300))*time.Millisecond, nil)
			}
			stop()
			for _, m := range copies {
				if ended(m) {
					t.Errorf("a copy ended by itself: %v\n%s", m.err, tail(m.out.String(), 6000))
				}
				m.signal(syscall.SIGTERM)
				m.mustEnd(patience)
			}
			start(t, nil, "run", files[0], "--until-caught-up", "--progress", "off").mustEnd(patience)
			a.want(t, table, a.state(), true)
		})
	}
}
