package delta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
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
// It is a classic one (N.checkpoint.parquet, version 1 of the form), which every reader knows, unless the
// table has delta.checkpointPolicy = v2: then it is a JSON file that names Parquet files with the file
// actions. It streams from the previous checkpoint and the commits since: memory is a row group and the keys
// of the files that those commits name. Removed files are kept as long as delta.deletedFileRetentionDuration
// says, all progress unless delta.setTransactionRetentionDuration is set. The file is read again before it
// counts. Errors: *UnsupportedError when the table may not be written; an error that names the columns when
// the previous checkpoint holds some that would be lost. Spec: "Checkpoints", "Action Reconciliation".
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
		t.foundCheckpoint(snap, o, 0, nil)
		return nil
	}
	w, err := newCheckpointWriter(snap)
	if err != nil {
		return fail(err)
	}
	v2 := snap.state.meta.Configuration[propCheckpointPolicy] == "v2" && snap.state.proto.Supports("v2Checkpoint")
	switch {
	case v2 && snap.CheckpointVersion() == snap.version:
		return nil
	case v2:
		err = w.writeV2(ctx)
	default:
		err = w.writeClassic(ctx, key)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// writeClassic writes one Parquet file with all actions.
func (w *checkpointWriter) writeClassic(ctx context.Context, key string) error {
	t := w.snap.table
	part, err := w.begin(ctx, key, allColumns)
	if err != nil {
		return err
	}
	err = part.addAll(w.state())
	if err == nil { // a row group of its own, so that opening the table reads little
		err = errors.Join(part.flush(), part.file.FlushRowGroup())
	}
	if err == nil {
		err = w.eachFile(ctx, part.add)
	}
	if err := part.end(err); err != nil {
		return err
	}
	o := store.Object{Key: key, Size: part.file.Written(), Modified: time.Now()}
	if found, err := t.st.Stat(ctx, key); err == nil && found.Size != o.Size {
		return t.adoptCheckpoint(ctx, w.snap, found)
	}
	if err := errors.Join(t.verify(ctx, o, part.file.Rows()), t.usable(ctx, w.snap, o)); err != nil {
		return errors.Join(err, t.st.Delete(ctx, key))
	}
	hint := lastCheckpoint{Version: w.snap.version, Size: part.file.Rows(), SizeInBytes: o.Size, NumOfAddFiles: w.files.files}
	if err := t.writeLastCheckpoint(ctx, hint); err != nil {
		return err
	}
	t.foundCheckpoint(w.snap, o, 0, &w.files)
	return nil
}

// adoptCheckpoint is what is left to do when another writer has put its checkpoint of the version in the
// place of ours, which any two may hold different sets of old removals in. It is theirs: nothing of it is
// deleted.
func (t *Table) adoptCheckpoint(ctx context.Context, snap *Snapshot, theirs store.Object) error {
	if err := t.usable(ctx, snap, theirs); err != nil {
		return fmt.Errorf("another writer has put %s: %w", theirs.Key, err)
	}
	t.foundCheckpoint(snap, theirs, 0, nil)
	return nil
}

// usable reads a checkpoint as one would that opens the table.
func (t *Table) usable(ctx context.Context, snap *Snapshot, o store.Object) error {
	b := &builder{table: t}
	c := &checkpointFile{version: snap.version, files: []store.Object{o}, bytes: o.Size,
		json: strings.HasSuffix(o.Key, ".json")}
	if err := b.fromCheckpoint(ctx, c); err != nil {
		return err
	}
	if !sameProtocol(b.state.proto, snap.state.proto) || !sameMetadata(b.state.meta, snap.state.meta) {
		return corrupt("%s has another protocol or metadata than version %d", o.Key, snap.version)
	}
	return nil
}

// verify makes sure that what was written is there and says what it should.
func (t *Table) verify(ctx context.Context, o store.Object, rows int64) error {
	found, err := t.st.Stat(ctx, o.Key)
	if err != nil {
		return err
	}
	if found.Size != o.Size {
		return corrupt("%s has %d bytes, %d were written", o.Key, found.Size, o.Size)
	}
	f, err := openParquet(ctx, t.st, o.Key, o.Size, nil)
	if err != nil {
		return err
	}
	if f.NumRows() != rows {
		return corrupt("%s has %d rows, %d were written", o.Key, f.NumRows(), rows)
	}
	return nil
}

// foundCheckpoint makes later snapshots begin from the checkpoint, which has so many bytes in sidecars. files
// are counted in it, nil when nobody has.
func (t *Table) foundCheckpoint(snap *Snapshot, o store.Object, sidecars int64, files *fileTotals) {
	s := *snap
	if files != nil {
		s.files = files
	}
	s.checkpoint = &checkpointFile{version: snap.version, files: []store.Object{o}, bytes: o.Size + sidecars,
		json: strings.HasSuffix(o.Key, ".json"), logBytes: snap.logBytes}
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
	snap  *Snapshot
	codec parquet.Codec
	files fileTotals
	// Removed files and progress are kept when they are of this time (ms) or later.
	keepRemoves, keepTxns int64
}

func newCheckpointWriter(snap *Snapshot) (*checkpointWriter, error) {
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
	w.codec, err = codecOf(meta.Configuration)
	return w, err
}

// state are all actions but those of files.
func (w *checkpointWriter) state() []Action {
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
	return actions
}

// eachFile hands on the file actions that a checkpoint keeps, and counts the adds. Errors: also *ChecksumError, lest what is
// broken in the log outlives it.
func (w *checkpointWriter) eachFile(ctx context.Context, do func(*Action) error) error {
	audited, err := w.snap.audit(ctx)
	if err != nil {
		return err
	}
	for a, err := range w.snap.reconcile(ctx, kindAdd|kindRemove|kindStats|refuseUnknown, nil, audited) {
		if err != nil {
			return err
		}
		if a.Remove != nil && deref(a.Remove.DeletionTimestamp) < w.keepRemoves {
			continue
		}
		if a.Add != nil {
			w.files.add(a.Add.Size, a.Add.DeletionVector, 1)
			audited.take(a.Add)
		}
		if err := do(&a); err != nil {
			return err
		}
	}
	return audited.end()
}

// checkpointPart is a Parquet file of a checkpoint that is being written.
type checkpointPart struct {
	columns *checkpointColumns
	file    *parquet.Writer
	upload  store.Upload
}

// begin opens a file with the columns of these actions.
func (w *checkpointWriter) begin(ctx context.Context, key string, actions []string) (*checkpointPart, error) {
	columns, err := newCheckpointColumns(w.snap, actions)
	if err != nil {
		return nil, err
	}
	upload, err := w.snap.table.st.Create(ctx, key)
	if err != nil {
		return nil, err
	}
	file := parquet.NewWriter(upload, columns.columns, &parquet.Options{Codec: w.codec})
	return &checkpointPart{columns: columns, file: file, upload: upload}, nil
}

func (p *checkpointPart) addAll(actions []Action) error {
	for i := range actions {
		if err := p.add(&actions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *checkpointPart) add(a *Action) error {
	if err := p.columns.append(a); err != nil {
		return err
	}
	if p.columns.n < checkpointRows {
		return nil
	}
	return p.flush()
}

// flush encodes what is gathered.
func (p *checkpointPart) flush() error {
	arrays, n := p.columns.take()
	if err := p.file.Append(arrays, parquet.AllRows(n)); err != nil {
		return err
	}
	if p.file.GroupRows() >= groupRows || p.file.Buffered() >= groupBytes {
		return p.file.FlushRowGroup()
	}
	return nil
}

// end finishes the file, or drops it when err says that it cannot be.
func (p *checkpointPart) end(err error) error {
	if err == nil {
		err = p.flush()
	}
	if err == nil {
		err = p.file.Close()
	}
	if err != nil {
		return errors.Join(err, p.upload.Abort())
	}
	return p.upload.Close()
}
