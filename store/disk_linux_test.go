package store_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/store"
)

func TestDisk_DiskFull_ErrFullAndNothingVisible(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs the right to mount a small tmpfs: %v", err)
	}
	defer syscall.Unmount(root, 0)
	d := newDisk(t, root)
	big := make([]byte, 1<<20)
	for call, err := range map[string]error{
		"Put": d.Put(t.Context(), "k", big), "PutIfAbsent": d.PutIfAbsent(t.Context(), "k", big),
		"Upload": upload(t, d, "k", big),
	} {
		if !errors.Is(err, store.ErrFull) || !store.Retryable(err) {
			t.Errorf("%s: got %v, want ErrFull", call, err)
		}
	}
	if got := keys(t, d, "", ""); len(got) != 0 {
		t.Errorf("got keys %q, want none", got)
	}
	if err := d.PutIfAbsent(t.Context(), "k", []byte("small")); err != nil {
		t.Errorf("a small object after the failures: %v", err)
	}
}
