package delta

import (
	"context"
	"fmt"
	"iter"
	"strings"
)

// readCheckpoint yields the actions of the wanted kinds of a checkpoint of any form: classic, multi-part, or
// V2 with sidecars. Sidecars hold only file actions and are opened only when these are wanted. A sieve, if there is one,
// leaves out adds, of Parquet files only. Errors: ErrCorrupt, store.ErrNotFound.
func (t *Table) readCheckpoint(ctx context.Context, c *checkpointFile, want kinds, sieve *statsSieve,
) iter.Seq2[Action, error] {
	top := want
	if want&kindFiles != 0 {
		top |= kindSidecar
	}
	return func(yield func(Action, error) bool) {
		var sidecars []*Sidecar
		for a, err := range t.readTop(ctx, c, top, sieve) {
			if err != nil {
				yield(Action{}, err)
				return
			}
			if a.Sidecar != nil {
				sidecars = append(sidecars, a.Sidecar)
				continue
			}
			if !yield(a, nil) {
				return
			}
		}
		for _, s := range sidecars {
			key, err := s.key()
			if err != nil {
				yield(Action{}, err)
				return
			}
			for a, err := range readCheckpointFile(ctx, t.st, key, s.SizeInBytes, want, sieve) {
				if !yield(a, err) || err != nil {
					return
				}
			}
		}
	}
}

// readTop yields what the checkpoint's own files hold.
func (t *Table) readTop(ctx context.Context, c *checkpointFile, want kinds, sieve *statsSieve,
) iter.Seq2[Action, error] {
	if c.json {
		return func(yield func(Action, error) bool) {
			key := c.files[0].Key
			data, err := t.st.Get(ctx, key)
			if err != nil {
				yield(Action{}, fmt.Errorf("read %s: %w", key, err))
				return
			}
			for a, err := range parseLog(key, data, want) {
				if !yield(a, err) {
					return
				}
			}
		}
	}
	return func(yield func(Action, error) bool) {
		for _, o := range c.files {
			for a, err := range readCheckpointFile(ctx, t.st, o.Key, o.Size, want, sieve) {
				if !yield(a, err) || err != nil {
					return
				}
			}
		}
	}
}

// key is where a sidecar lies. Spec: "Sidecar File Information": its path is a file name, or absolute.
func (s *Sidecar) key() (string, error) {
	name := decodePath(s.Path)
	if i := strings.LastIndex(name, sidecarDir); i >= 0 {
		name = name[i+len(sidecarDir):]
	}
	if strings.Contains(name, "/") {
		return "", corrupt("the sidecar %q lies outside of the table", s.Path)
	}
	return sidecarDir + name, nil
}
