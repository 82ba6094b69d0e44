package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
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
	for _, key := range []string{"p=1/a", "p=1/b", "p=2/c"} {
		uploadBy(t, d.Create, key, "x")
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

func uploadBy(t *testing.T, create func(context.Context, string) (Upload, error), key, text string) {
	t.Helper()
	u, err := create(t.Context(), key)
	if err == nil {
		_, err = u.Write([]byte(text))
	}
	if err = errors.Join(err, u.Close()); err != nil {
		t.Fatal(err)
	}
}

// aheadDisk is a Disk in a new folder that tells syncFile which of the objects a and b it syncs; "" is another.
func aheadDisk(t *testing.T, syncFile func(name string) error) *Disk {
	t.Helper()
	d, err := NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d.syncFile = func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		for _, key := range []string{"a", "b"} {
			if there, err := os.Stat(filepath.Join(d.root, key)); err == nil && os.SameFile(info, there) {
				return syncFile(key)
			}
		}
		return syncFile("")
	}
	return d
}

// What a put names must not be there, after a loss of power, with other bytes than were uploaded before it.
func TestDisk_UploadsAheadThenPut_BytesSyncedBeforeItsName(t *testing.T) {
	var mu sync.Mutex
	var d *Disk
	synced := map[string]int{}
	d = aheadDisk(t, func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		synced[name]++
		if _, err := os.Stat(filepath.Join(d.root, "log", "1")); name != "" && err == nil {
			t.Errorf("%s is synced after what names it is there", name)
		}
		return nil
	})
	for _, key := range []string{"a", "b"} {
		uploadBy(t, d.CreateAhead, key, "text of "+key)
		if got, err := d.Get(t.Context(), key); err != nil || string(got) != "text of "+key {
			t.Errorf("got %q, %v after the upload", got, err)
		}
	}
	if len(synced) > 0 {
		t.Fatalf("got syncs %v before a put", synced)
	}
	for _, key := range []string{"log/1", "log/2"} {
		if err := d.PutIfAbsent(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int{"a": 1, "b": 1, "": 2}; !maps.Equal(synced, want) {
		t.Errorf("got syncs %v, want %v", synced, want)
	}
}

// The system may give up what it could not write, and tells only once: nothing may name it, however often it is tried.
func TestDisk_UploadAheadNotSynced_PutsFailUntilItIsDeleted(t *testing.T) {
	d := aheadDisk(t, func(name string) error {
		if name == "a" {
			return syscall.EIO
		}
		return nil
	})
	uploadBy(t, d.CreateAhead, "a", "lost")
	uploadBy(t, d.CreateAhead, "b", "kept")
	for range 2 {
		if err := d.PutIfAbsent(t.Context(), "log/1", nil); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		if _, err := d.Stat(t.Context(), "log/1"); !errors.Is(err, ErrNotFound) {
			t.Fatalf("the object is there: %v", err)
		}
	}
	if err := d.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := d.PutIfAbsent(t.Context(), "log/1", nil); err != nil {
		t.Error(err)
	}
}

func TestDisk_UploadAheadDeleted_NothingIsOwed(t *testing.T) {
	d := aheadDisk(t, func(name string) error {
		if name != "" {
			t.Errorf("%s is synced", name)
		}
		return nil
	})
	uploadBy(t, d.CreateAhead, "a", "x")
	if err := errors.Join(d.Delete(t.Context(), "a"), d.Put(t.Context(), "log/1", nil)); err != nil {
		t.Fatal(err)
	}
	if len(d.ahead) > 0 {
		t.Errorf("%d files are held open", len(d.ahead))
	}
}

func TestDisk_UploadsAheadTooManyOrLarge_SyncedAtOnce(t *testing.T) {
	d, err := NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synced := 0
	d.syncFile = func(*os.File) error {
		synced++
		return nil
	}
	uploadBy(t, d.CreateAhead, "large", strings.Repeat("x", maxAheadBytes+1))
	if synced != 1 || len(d.ahead) != 0 {
		t.Errorf("got %d syncs of a large file, %d files that wait, want one and none", synced, len(d.ahead))
	}
	for i := range maxAhead + 3 {
		uploadBy(t, d.CreateAhead, fmt.Sprint(i), "x")
	}
	if synced != 4 || len(d.ahead) != maxAhead {
		t.Errorf("got %d syncs, %d files that wait, want 4 and %d", synced, len(d.ahead), maxAhead)
	}
}
