package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/store"
)

// The variables that make a process of this test binary a racer: its root, and its name.
const (
	racerRoot = "FRESHET_TEST_RACER_ROOT"
	racerName = "FRESHET_TEST_RACER_NAME"
)

const racedKeys = 200

func TestMain(m *testing.M) {
	if root := os.Getenv(racerRoot); root != "" {
		if err := race(root, os.Getenv(racerName)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// race tries to create every key once and prints the numbers of those it won. It says "ready" and then waits
// for a line, so that all racers run at once.
func race(root, name string) error {
	d, err := store.NewDisk(root)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for k := range racedKeys {
		err := d.PutIfAbsent(context.Background(), logKey(k), racerBytes(name, k))
		switch {
		case err == nil:
			fmt.Println(k)
		case !errors.Is(err, store.ErrExists):
			return err
		}
	}
	return nil
}

func racerBytes(name string, key int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%s wrote %d\n", name, key), 50)
}

func TestDisk_ProcessesRace_OneWinsEachKey(t *testing.T) {
	const processes = 4
	root := t.TempDir()
	var racers []*racer
	for i := range processes {
		racers = append(racers, startRacer(t, root, fmt.Sprint("racer ", i)))
	}
	for _, r := range racers {
		r.awaitReady(t)
	}
	for _, r := range racers {
		fmt.Fprintln(r.stdin)
	}
	winners := map[int]string{}
	for _, r := range racers {
		for _, key := range r.finish(t) {
			if other, taken := winners[key]; taken {
				t.Errorf("key %d: both %s and %s won", key, other, r.name)
			}
			winners[key] = r.name
		}
	}
	if len(winners) != racedKeys {
		t.Errorf("%d keys have a winner, want %d", len(winners), racedKeys)
	}
	d := newDisk(t, root)
	for key, name := range winners {
		got, err := d.Get(t.Context(), logKey(key))
		if err != nil || !bytes.Equal(got, racerBytes(name, key)) {
			t.Errorf("key %d: its bytes are not those of the winner %s, %v", key, name, err)
		}
	}
}

type racer struct {
	name   string
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *bufio.Scanner
}

func startRacer(t *testing.T, root, name string) *racer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), racerRoot+"="+root, racerName+"="+name)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	t.Cleanup(func() { _ = out.Close() })
	return &racer{name: name, cmd: cmd, stdin: out, stdout: bufio.NewScanner(stdout)}
}

func (r *racer) awaitReady(t *testing.T) {
	t.Helper()
	if !r.stdout.Scan() || r.stdout.Text() != "ready" {
		t.Fatalf("%s: got %q, %v, want ready", r.name, r.stdout.Text(), r.stdout.Err())
	}
}

// finish waits for the racer's end and returns the keys it won.
func (r *racer) finish(t *testing.T) (won []int) {
	t.Helper()
	for r.stdout.Scan() {
		key, err := strconv.Atoi(strings.TrimSpace(r.stdout.Text()))
		if err != nil {
			t.Fatal(err)
		}
		won = append(won, key)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return won
}
