package delta_test

import (
	"bytes"
	"context"
	"path"
	"testing"

	"github.com/freshet-io/freshet/store"
)

// overtaken is a store in which another writer puts its object under a key as soon as ours is there.
type overtaken struct {
	*store.Mem
	key    string
	theirs []byte
}

type overtakenUpload struct {
	store.Upload
	in *overtaken
}

func (o *overtaken) Create(ctx context.Context, key string) (store.Upload, error) {
	u, err := o.Mem.Create(ctx, key)
	if key != o.key {
		return u, err
	}
	return overtakenUpload{u, o}, err
}

func (u overtakenUpload) Close() error {
	if err := u.Upload.Close(); err != nil {
		return err
	}
	return u.in.Put(context.Background(), u.in.key, u.in.theirs)
}

func TestCheckpoint_AnotherWriterPutsItsOwn_ItStays(t *testing.T) {
	const key = "_delta_log/00000000000000000003.checkpoint.parquet"
	st := &overtaken{Mem: store.NewMem(), key: key}
	table := create(t, st, nil)
	for _, name := range []string{"a", "b", "c"} {
		appendFiles(t, table, name)
	}
	theirs := store.NewMem() // the same version, with a removal more, which a reader may have or not
	for o, err := range st.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if path.Ext(o.Key) == ".crc" { // they know what was committed
			continue
		}
		data, err := st.Get(context.Background(), o.Key)
		if err != nil {
			t.Fatal(err)
		}
		if o.Key == "_delta_log/00000000000000000003.json" {
			data = append(data, `{"remove":{"path":"long-gone","deletionTimestamp":4102444800000,"dataChange":true}}`+"\n"...)
		}
		if err := theirs.Put(context.Background(), o.Key, data); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint(t, open(t, theirs))
	var err error
	if st.theirs, err = theirs.Get(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, table)
	if got, err := st.Get(context.Background(), key); err != nil || !bytes.Equal(got, st.theirs) {
		t.Errorf("got %d bytes, %v, want the other writer's checkpoint of %d", len(got), err, len(st.theirs))
	}
	snap := snapshot(t, open(t, st))
	if snap.CheckpointVersion() != 3 {
		t.Errorf("opened from checkpoint %d, want 3", snap.CheckpointVersion())
	}
	expectNames(t, snap, "a", "b", "c")

	st.theirs = []byte("no checkpoint")
	appendFiles(t, table, "d")
	st.key = "_delta_log/00000000000000000004.checkpoint.parquet"
	if err := table.Checkpoint(context.Background(), snapshot(t, table)); err == nil {
		t.Error("got no error for another writer's checkpoint that cannot be read")
	}
	if _, err := st.Stat(context.Background(), st.key); err != nil {
		t.Errorf("the other writer's checkpoint was deleted: %v", err)
	}
}

var _ store.Store = (*overtaken)(nil)
