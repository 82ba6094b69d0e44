package store

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
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

// What a put names must not be there, after a loss of power, without what was uploaded before it.
func TestDisk_UploadsThenPut_FoldersSyncedBeforeItsName(t *testing.T) {
	root := t.TempDir()
	d, err := NewDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), "log/0", nil); err != nil {
		t.Fatal(err)
	}
	upload := func(key string) {
		t.Helper()
		u, err := d.Create(t.Context(), key)
		if err == nil {
			err = u.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"p=1/a", "p=1/b", "p=2/c"} {
		upload(key)
	}
	synced, failing := map[string]int{}, true
	var mu sync.Mutex
	d.syncDir = func(dir string) error {
		mu.Lock()
		defer mu.Unlock()
		synced[filepath.Base(dir)]++
		if filepath.Base(dir) == "log" {
			return nil
		}
		if _, err := os.Stat(filepath.Join(root, "log", "1")); err == nil {
			t.Errorf("%s is synced after what names its files is there", dir)
		}
		if failing && filepath.Base(dir) == "p=2" {
			return syscall.EIO
		}
		return nil
	}
	if err := d.PutIfAbsent(t.Context(), "log/1", nil); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v while a folder cannot be synced, want ErrUnavailable", err)
	}
	failing = false
	for _, key := range []string{"log/1", "log/2"} {
		if err := d.PutIfAbsent(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"p=1": 1, "p=2": 2, "log": 2}; !maps.Equal(synced, want) {
		t.Errorf("got syncs %v, want %v", synced, want)
	}
}
