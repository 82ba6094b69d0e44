package store

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// The first attempt gives the file its name and cannot sync the folder. The second one finds its own file there, and
// must not let anybody rely on it before it is synced.
func TestDisk_FolderSyncFailed_RepeatedPutSyncsBeforeItAnswers(t *testing.T) {
	for name, put := range map[string]func(d *Disk) error{
		"PutIfAbsent": func(d *Disk) error { return d.PutIfAbsent(t.Context(), "log/1", []byte("mine")) },
		"Put":         func(d *Disk) error { return d.Put(t.Context(), "log/1", []byte("mine")) },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := NewDisk(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Put(t.Context(), "log/0", nil); err != nil {
				t.Fatal(err)
			}
			failing, synced := true, 0
			d.syncDir = func(dir string) error {
				if filepath.Base(dir) != "log" {
					return syncDir(dir)
				}
				if failing {
					return syscall.EIO
				}
				synced++
				return syncDir(dir)
			}
			for range 2 {
				if err := put(d); !errors.Is(err, ErrAmbiguous) {
					t.Fatalf("got %v while the folder cannot be synced, want ErrAmbiguous", err)
				}
			}
			failing = false
			if err := put(d); err != nil && !errors.Is(err, ErrExists) {
				t.Fatal(err)
			}
			if synced != 1 {
				t.Errorf("the folder was synced %d times before the answer, want once", synced)
			}
		})
	}
}
