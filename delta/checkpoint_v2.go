package delta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
)

// sidecarRows is how many file actions a sidecar holds at most: enough that there are few, and few enough that they
// can be read side by side.
const sidecarRows = 256 << 10

// sidecarColumns are the actions that a sidecar holds.
var sidecarColumns = []string{"add", "remove"}

// writeV2 writes sidecars with the file actions and then a JSON file that names them and holds the rest. Both have
// names of their own, so that two writers of one version do not meet. Spec: "V2 Spec", "Sidecar Files".
func (w *checkpointWriter) writeV2(ctx context.Context) error {
	t := w.snap.table
	sidecars, rows, err := w.writeSidecars(ctx)
	fail := func(err error) error {
		for _, s := range sidecars {
			err = errors.Join(err, t.st.Delete(ctx, sidecarDir+s.Path))
		}
		return err
	}
	if err != nil {
		return fail(err)
	}
	actions := append([]Action{{CheckpointMetadata: &CheckpointMetadata{Version: w.snap.version}}}, w.state()...)
	bytes := int64(0)
	for i := range sidecars {
		actions = append(actions, Action{Sidecar: &sidecars[i]})
		bytes += sidecars[i].SizeInBytes
	}
	data := appendLog(nil, actions)
	o := store.Object{Key: fmt.Sprintf("%s.checkpoint.%s.json", versionPrefix(w.snap.version), uuid.NewString()),
		Size: int64(len(data)), Modified: time.Now()}
	if err := t.st.Put(ctx, o.Key, data); err != nil {
		return fail(err)
	}
	if err := t.usable(ctx, w.snap, o); err != nil {
		return errors.Join(fail(err), t.st.Delete(ctx, o.Key))
	}
	hint := lastCheckpoint{Version: w.snap.version, Size: rows + int64(len(actions)), SizeInBytes: o.Size + bytes,
		NumOfAddFiles: w.files.files, file: &o}
	if err := t.writeLastCheckpoint(ctx, hint); err != nil {
		return err
	}
	t.foundCheckpoint(w.snap, o, bytes, &w.files)
	return nil
}

// writeSidecars writes the file actions, and counts them. After an error it returns what there is to delete.
func (w *checkpointWriter) writeSidecars(ctx context.Context) (sidecars []Sidecar, rows int64, err error) {
	var part *checkpointPart
	var key string
	left := 0
	closePart := func(err error) error {
		if part == nil {
			return err
		}
		err = part.end(err)
		if err == nil {
			o := store.Object{Key: key, Size: part.file.Written()}
			sidecars = append(sidecars, Sidecar{Path: strings.TrimPrefix(key, sidecarDir), SizeInBytes: o.Size,
				ModificationTime: time.Now().UnixMilli()})
			rows += part.file.Rows()
			err = w.snap.table.verify(ctx, o, part.file.Rows())
		}
		part = nil
		return err
	}
	err = w.eachFile(ctx, func(a *Action) (err error) {
		if part == nil {
			key, left = sidecarDir+uuid.NewString()+".parquet", sidecarRows
			if part, err = w.begin(ctx, key, sidecarColumns); err != nil {
				return err
			}
		}
		if err := part.add(a); err != nil {
			return err
		}
		if left--; left == 0 {
			return closePart(nil)
		}
		return nil
	})
	return sidecars, rows, closePart(err)
}
