package delta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/store"
)

const (
	// checkpointRows is how many actions are encoded at once.
	checkpointRows = 4096
	// groupRows and groupBytes bound a row group, so that readers need little memory and can skip.
	groupRows  = 32 << 10
	groupBytes = 8 << 20
)

// Checkpoint writes a checkpoint of the snapshot, unless there is a usable one, and then _last_checkpoint.
//
// It is a classic one (N.checkpoint.parquet, version 1 of the form), which every reader knows and which is
// allowed with the feature v2Checkpoint, too. It streams from the previous checkpoint and the commits since:
// memory is a row group and the keys of the files that those commits name. Removed files are kept as long as
// delta.deletedFileRetentionDuration says, all progress unless delta.setTransactionRetentionDuration is set.
// The file is read again before it counts. Errors: *UnsupportedError when the table may not be written; an
// error that names the columns when the previous checkpoint holds some that would be lost. Spec:
// "Checkpoints", "Action Reconciliation".
func (t *Table) Checkpoint(ctx context.Context, snap *Snapshot) error {
	if err := snap.CheckWrite(); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("checkpoint of version %d: %w", snap.version, err) }
	key := checkpointKey(snap.version)
	o, err := t.st.Stat(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fail(err)
	}
	if err == nil && t.usable(ctx, snap, o) == nil {
		t.foundCheckpoint(snap, o)
		return nil
	}
	w, err := newCheckpointWriter(ctx, snap)
	if err != nil {
		return fail(err)
	}
	if err := w.write(ctx); err != nil {
		return fail(errors.Join(err, w.upload.Abort()))
	}
	o = store.Object{Key: key, Size: w.file.Written(), Modified: time.Now()}
	if err := t.verify(ctx, snap, o, w.file.Rows()); err != nil {
		return fail(errors.Join(err, t.st.Delete(ctx, key)))
	}
	if err := t.writeLastCheckpoint(ctx, w.hint()); err != nil {
		return fail(err)
	}
	t.foundCheckpoint(snap, o)
	return nil
}

// usable reads a checkpoint as one would that opens the table.
func (t *Table) usable(ctx context.Context, snap *Snapshot, o store.Object) error {
	b := &builder{table: t}
	c := &checkpointFile{version: snap.version, files: []store.Object{o}, bytes: o.Size}
	if err := b.fromCheckpoint(ctx, c); err != nil {
		return err
	}
	if !sameProtocol(b.state.proto, snap.state.proto) || !sameMetadata(b.state.meta, snap.state.meta) {
		return corrupt("%s has another protocol or metadata than version %d", o.Key, snap.version)
	}
	return nil
}

// verify makes sure that what was written is there and says what it should.
func (t *Table) verify(ctx context.Context, snap *Snapshot, o store.Object, rows int64) error {
	found, err := t.st.Stat(ctx, o.Key)
	if err != nil {
		return err
	}
	if found.Size != o.Size {
		return corrupt("%s has %d bytes, %d were written", o.Key, found.Size, o.Size)
	}
	f, err := openParquet(ctx, t.st, o.Key, o.Size)
	if err != nil {
		return err
	}
	if f.NumRows() != rows {
		return corrupt("%s has %d rows, %d were written", o.Key, f.NumRows(), rows)
	}
	return t.usable(ctx, snap, o)
}

// foundCheckpoint makes later snapshots begin from the checkpoint.
func (t *Table) foundCheckpoint(snap *Snapshot, o store.Object) {
	s := *snap
	s.checkpoint = &checkpointFile{version: snap.version, files: []store.Object{o}, bytes: o.Size,
		logBytes: snap.logBytes}
	t.remember(&s)
}

// writeLastCheckpoint points to a checkpoint unless the hint is there for a newer one.
func (t *Table) writeLastCheckpoint(ctx context.Context, c lastCheckpoint) error {
	old, ok, err := t.readLastCheckpoint(ctx)
	if err != nil || ok && old.Version > c.Version {
		return err
	}
	text, err := c.text()
	if err != nil {
		return err
	}
	return t.st.Put(ctx, lastCheckpointKey, text)
}

// checkpointWriter writes one checkpoint.
type checkpointWriter struct {
	snap    *Snapshot
	columns *checkpointColumns
	file    *parquet.Writer
	upload  store.Upload
	adds    int64
	// Removed files and progress are kept when they are of this time (ms) or later.
	keepRemoves, keepTxns int64
}

func newCheckpointWriter(ctx context.Context, snap *Snapshot) (*checkpointWriter, error) {
	meta := snap.state.meta
	now := time.Now()
	files, err := meta.duration(propFileRetention, defaultFileRetention)
	if err != nil {
		return nil, err
	}
	w := &checkpointWriter{snap: snap, keepRemoves: now.Add(-files).UnixMilli(), keepTxns: math.MinInt64}
	if _, set := meta.Configuration[propTxnRetention]; set {
		txns, err := meta.duration(propTxnRetention, 0)
		if err != nil {
			return nil, err
		}
		w.keepTxns = now.Add(-txns).UnixMilli()
	}
	if w.columns, err = newCheckpointColumns(meta, snap.schema); err != nil {
		return nil, err
	}
	codec, err := codecOf(meta.Configuration)
	if err != nil {
		return nil, err
	}
	if w.upload, err = snap.table.st.Create(ctx, checkpointKey(snap.version)); err != nil {
		return nil, err
	}
	w.file = parquet.NewWriter(w.upload, w.columns.columns, &parquet.Options{Codec: codec})
	return w, nil
}

func (w *checkpointWriter) write(ctx context.Context) error {
	if err := w.writeState(); err != nil {
		return err
	}
	for a, err := range w.snap.reconcile(ctx, kindAdd|kindRemove|kindStats|refuseUnknown) {
		if err != nil {
			return err
		}
		if a.Remove != nil && deref(a.Remove.DeletionTimestamp) < w.keepRemoves {
			continue
		}
		if a.Add != nil {
			w.adds++
		}
		if err := w.add(&a); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.file.Close(); err != nil {
		return err
	}
	return w.upload.Close()
}

// writeState writes all but the files, in a row group of its own, so that opening the table reads little.
func (w *checkpointWriter) writeState() error {
	s := w.snap.state
	actions := []Action{{Protocol: s.proto}, {Metadata: s.meta}}
	for _, app := range sortedNames(s.txns) {
		t := s.txns[app]
		if t.LastUpdated == nil || *t.LastUpdated >= w.keepTxns {
			actions = append(actions, Action{Txn: &t})
		}
	}
	for _, name := range sortedNames(s.domains) {
		d := s.domains[name]
		actions = append(actions, Action{DomainMetadata: &d})
	}
	for i := range actions {
		if err := w.add(&actions[i]); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.file.FlushRowGroup()
}

func (w *checkpointWriter) add(a *Action) error {
	if err := w.columns.append(a); err != nil {
		return err
	}
	if w.columns.n < checkpointRows {
		return nil
	}
	return w.flush()
}

// flush encodes what is gathered.
func (w *checkpointWriter) flush() error {
	arrays, n := w.columns.take()
	if err := w.file.Append(arrays, parquet.AllRows(n)); err != nil {
		return err
	}
	if w.file.GroupRows() >= groupRows || w.file.Buffered() >= groupBytes {
		return w.file.FlushRowGroup()
	}
	return nil
}

func (w *checkpointWriter) hint() lastCheckpoint {
	return lastCheckpoint{Version: w.snap.version, Size: w.file.Rows(), SizeInBytes: w.file.Written(),
		NumOfAddFiles: w.adds}
}
