package keyindex_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/keyindex"
)

// mappedBytes is how much of mapped files the process has in memory.
func mappedBytes(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	check(t, err)
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	kb, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(rest, "kB", 2)[0]), 10, 64)
	check(t, err)
	return kb << 10
}

func TestMerge_LargeRuns_AreNotInMemoryWhole(t *testing.T) {
	x := create(t, t.TempDir(), identity(8))
	const keys, each = 1_200_000, 300_000
	before := mappedBytes(t)
	var most int64
	done := make(chan error)
	go func() {
		for first := 0; first < keys; first += each {
			c, err := x.Begin(x.Version() + 1)
			if err == nil {
				err = c.Add(strconv.Itoa(first), keysOf(first, first+each), nil, make([]byte, 8*each))
			}
			if err == nil {
				_, err = c.Commit(t.Context())
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- x.Merge(t.Context())
	}()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for over := false; !over; {
		select {
		case err := <-done:
			check(t, err)
			over = true
		case <-look.C:
			most = max(most, mappedBytes(t)-before)
		}
	}
	t.Logf("%d MiB", most>>20)
	if want := int64(keys * 24 / 2); most > want {
		t.Errorf("got %d bytes of the runs in memory, want no more than %d", most, want)
	}
	at := make([]keyindex.Position, 1)
	check(t, x.Lookup(keysOf(keys-1, keys), at, nil))
	if at[0].Row != each-1 {
		t.Errorf("got row %d, want %d", at[0].Row, each-1)
	}
}
