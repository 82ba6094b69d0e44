package keyindex_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/keyindex"
)

const crashDir = "FRESHET_KEYINDEX_CRASH"

// crashKeys are the keys of a version of the index that is killed: each version has its own file, and all
// keys but a third of them lie in it.
func crashKeys(version int64) (keys []keyindex.Fingerprint) {
	for n := range 600 {
		if int64(n)%3 != version%3 {
			keys = append(keys, key(n))
		}
	}
	return keys
}

// TestIndex_Killed_Child is the process that is killed: it commits and tells each version once it is durable.
func TestIndex_Killed_Child(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("the process that TestIndex_Killed_OldOrNew kills")
	}
	x, err := keyindex.Open(dir, identity(0))
	check(t, err)
	for v := x.Version() + 1; ; v++ {
		c, err := x.Begin(v)
		check(t, err)
		c.Remove(fmt.Sprint("part-", v-2))
		check(t, c.Add(fmt.Sprint("part-", v), crashKeys(v), nil, nil))
		_, err = c.Commit(context.Background())
		check(t, err)
		fmt.Println("committed", v)
	}
}

// SIGKILL at any moment leaves the index at the last version that was told, or the one after it, whole.
func TestIndex_Killed_OldOrNew(t *testing.T) {
	r := newRand(t)
	dir := t.TempDir()
	check(t, create(t, dir, identity(0)).Close())
	for range 8 {
		told := runAndKill(t, dir, 1+r.IntN(25))
		x, err := keyindex.Open(dir, identity(0))
		check(t, err)
		v := x.Version()
		if v != told && v != told+1 {
			t.Fatalf("got version %d, want %d or the next", v, told)
		}
		for n, p := range look(t, x, keysOf(0, 600)...) {
			want := v
			if int64(n)%3 == v%3 {
				want = v - 1
			}
			path, row := pathOf(x, p), p.Row
			if want >= 0 && (path != fmt.Sprint("part-", want) || crashKeys(want)[row] != key(n)) {
				t.Fatalf("version %d: key %d: got %q row %d, want part-%d", v, n, path, row, want)
			}
		}
		_, err = x.Check(context.Background())
		check(t, err)
		check(t, x.Close())
	}
}

// runAndKill lets the child commit so many versions and kills it; it returns the last version that was told.
func runAndKill(t *testing.T, dir string, commits int) int64 {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestIndex_Killed_Child$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	told := int64(-1)
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); {
		v, ok := strings.CutPrefix(lines.Text(), "committed ")
		if !ok {
			continue
		}
		told, err = strconv.ParseInt(v, 10, 64)
		check(t, err)
		if n++; n == commits {
			check(t, cmd.Process.Kill()) // what it has told meanwhile is still read
		}
	}
	if err := cmd.Wait(); err == nil || told < 0 {
		t.Fatalf("the child told version %d and ended: %v", told, err)
	}
	return told
}
