package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func TestDisk_Conformance_Holds(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return newDisk(t, t.TempDir()) }, nil)
}

// uploadsAhead is a Disk whose uploads are synced by the put that comes next.
type uploadsAhead struct{ *store.Disk }

func (u uploadsAhead) Create(ctx context.Context, key string) (store.Upload, error) {
	return store.CreateAhead(ctx, u.Disk, key)
}

func TestDisk_UploadsAhead_ConformanceHolds(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return uploadsAhead{newDisk(t, t.TempDir())} }, nil)
}

func TestDisk_RootMissing_MadeByFirstWrite(t *testing.T) {
	root := filepath.Join(t.TempDir(), "new", "lake")
	d := newDisk(t, root)
	if got := keys(t, d, "", ""); len(got) != 0 {
		t.Errorf("got keys %q, want none", got)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("root before a write: got %v, want no such folder", err)
	}
	if err := d.PutIfAbsent(t.Context(), "a/k", nil); err != nil {
		t.Fatal(err)
	}
	if got, want := keys(t, d, "", ""), []string{"a/k"}; !slices.Equal(got, want) {
		t.Errorf("got keys %q, want %q", got, want)
	}
}

func TestNewDisk_RootIsFile_Error(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	writeFile(t, path, "x")
	if _, err := store.NewDisk(path); err == nil {
		t.Error("got no error")
	}
}

func TestNewDisk_OldLeftovers_RemovedYoungStay(t *testing.T) {
	root := t.TempDir()
	temp := filepath.Join(root, ".tmp-freshet")
	writeFile(t, filepath.Join(temp, "old"), "x")
	writeFile(t, filepath.Join(temp, "young"), "x")
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(temp, "old"), old, old); err != nil {
		t.Fatal(err)
	}
	d := newDisk(t, root)
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 1 || left[0].Name() != "young" {
		t.Errorf("got %v, %v, want young alone", left, err)
	}
	if got := keys(t, d, "", ""); len(got) != 0 {
		t.Errorf("temporary files are listed: %q", got)
	}
}

func TestDisk_Writes_LeaveNoTemporaryFile(t *testing.T) {
	root := t.TempDir()
	d := newDisk(t, root)
	for range 2 {
		_ = d.Put(t.Context(), "put", nil)
		_ = d.PutIfAbsent(t.Context(), "new", nil)
	}
	up, err := d.Create(t.Context(), "upload")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(up.Close(), up.Abort()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(root, ".tmp-freshet")); err != nil || len(left) != 0 {
		t.Errorf("got %v, %v, want an empty folder", left, err)
	}
}

func TestDisk_NewFile_ReadableByOthersAsUmaskSays(t *testing.T) {
	root := t.TempDir()
	d := newDisk(t, root)
	if err := d.PutIfAbsent(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "plain"), "")
	got, err := os.Stat(filepath.Join(root, "k"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(filepath.Join(root, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Mode() != want.Mode() {
		t.Errorf("got mode %v, want %v as of any new file", got.Mode(), want.Mode())
	}
}

func TestDisk_FolderRemovedMeanwhile_MadeAgain(t *testing.T) {
	root := t.TempDir()
	d := newDisk(t, root)
	for range 2 {
		if err := d.PutIfAbsent(t.Context(), "a/b/k", nil); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(root, "a")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), "a/b/k", nil); err != nil {
		t.Fatal(err)
	}
}

func TestDisk_KeyIsFolderOrBelowObject_PlainError(t *testing.T) {
	d := newDisk(t, t.TempDir())
	if err := d.Put(t.Context(), "a/b", nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "a/b/c"} {
		for call, err := range map[string]error{
			"Put": d.Put(t.Context(), key, nil), "PutIfAbsent": d.PutIfAbsent(t.Context(), key, nil),
		} {
			if err == nil || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s(%q): got %v, want an error that says why", call, key, err)
			}
		}
	}
}

func TestDisk_KeyInTemporaryFolder_Refused(t *testing.T) {
	d := newDisk(t, t.TempDir())
	if err := d.Put(t.Context(), ".tmp-freshet/k", nil); err == nil {
		t.Error("got no error")
	}
}

func TestDisk_ListAfter_ReadsNoOtherFolder(t *testing.T) {
	root := t.TempDir()
	d := newDisk(t, root)
	for _, key := range []string{logKey(1), logKey(2)} {
		if err := d.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	// A folder that fails when it is read, on either side of the log.
	for _, dir := range []string{"_a", "data", "_delta_log/_a"} {
		loop := filepath.Join(root, dir)
		if err := os.MkdirAll(loop, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("loop", filepath.Join(loop, "loop")); err != nil {
			t.Fatal(err)
		}
	}
	got := keys(t, d, "_delta_log/0", "_delta_log/00000000000000000001.json")
	if want := []string{"_delta_log/00000000000000000002.json"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	var err error
	for _, err = range d.List(t.Context(), "data/", "") {
		break
	}
	if !errors.Is(err, syscall.ELOOP) {
		t.Errorf("listing of the broken folder: got %v, want ELOOP", err)
	}
}

func TestDisk_List_FollowsLinksAndSkipsDanglingOnes(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	d := newDisk(t, root)
	writeFile(t, filepath.Join(other, "k"), "x")
	for name, to := range map[string]string{"dir": other, "file": other + "/k", "gone": other + "/gone"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := keys(t, d, "", ""), []string{"dir/k", "file"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDisk_NoPermission_ErrPermission(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may do everything: run the tests as another user")
	}
	root := t.TempDir()
	d := newDisk(t, root)
	if err := d.Put(t.Context(), "a/k", nil); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "a")
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o777)
	_, getErr := d.Get(t.Context(), "a/k")
	for call, err := range map[string]error{"Get": getErr, "Put": d.Put(t.Context(), "a/l", nil)} {
		if !errors.Is(err, store.ErrPermission) {
			t.Errorf("%s: got %v, want ErrPermission", call, err)
		}
	}
}

func BenchmarkDisk_PutIfAbsent_Commit(b *testing.B) {
	d := newDisk(b, b.TempDir())
	data := make([]byte, 2000)
	for i := 0; b.Loop(); i++ {
		if err := d.PutIfAbsent(b.Context(), logKey(i), data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDisk_ListAfter_LogOf100kFiles(b *testing.B) {
	root := b.TempDir()
	d := newDisk(b, root)
	if err := os.Mkdir(filepath.Join(root, "_delta_log"), 0o777); err != nil {
		b.Fatal(err)
	}
	const n = 100_000
	for i := range n {
		writeFile(b, filepath.Join(root, logKey(i)), "")
	}
	for b.Loop() {
		if got := len(keys(b, d, "_delta_log/", logKey(n-10))); got != 9 {
			b.Fatalf("got %d keys, want 9", got)
		}
	}
}

func logKey(version int) string { return fmt.Sprintf("_delta_log/%020d.json", version) }

func upload(t *testing.T, s store.Store, key string, data []byte) error {
	t.Helper()
	up, err := s.Create(t.Context(), key)
	if err != nil {
		return err
	}
	if _, err := up.Write(data); err != nil {
		return errors.Join(err, up.Abort())
	}
	return up.Close()
}

func newDisk(t testing.TB, root string) *store.Disk {
	t.Helper()
	d, err := store.NewDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func keys(t testing.TB, s store.Store, prefix, after string) (found []string) {
	t.Helper()
	for o, err := range s.List(context.Background(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, o.Key)
	}
	return found
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestGetInto_BufferOfAnySize_HoldsTheObject(t *testing.T) {
	disk, err := store.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []store.Store{disk, store.NewMem()} {
		if err := st.Put(t.Context(), "k", []byte("object")); err != nil {
			t.Fatal(err)
		}
		for _, buffer := range [][]byte{nil, make([]byte, 2), make([]byte, 6), make([]byte, 0, 100), []byte("a longer one")} {
			got, err := store.GetInto(t.Context(), st, "k", buffer)
			if err != nil || string(got) != "object" {
				t.Errorf("%s, buffer of %d: got %q, %v", st.URL(), cap(buffer), got, err)
			}
			if st == disk && cap(buffer) >= len(got) && &got[0] != &buffer[:1][0] {
				t.Errorf("buffer of %d: it was not used", cap(buffer))
			}
		}
		if _, err := store.GetInto(t.Context(), st, "none", nil); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", st.URL(), err)
		}
	}
}
