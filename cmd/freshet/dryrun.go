package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/freshet-io/freshet/store"
)

// dryStore is a store that takes writes as if they succeeded and lets nothing of them through: what an operation on a
// table would do is found by doing it there. Commits, which are put if absent, are kept in memory, so that an operation
// may build on its own; it does for those that read nothing else of what they have written.
type dryStore struct {
	store.Store
	commits *store.Mem
}

func newDryStore(st store.Store) dryStore { return dryStore{st, store.NewMem()} }

func (s dryStore) Get(ctx context.Context, key string) ([]byte, error) {
	if data, err := s.commits.Get(ctx, key); !errors.Is(err, store.ErrNotFound) {
		return data, err
	}
	return s.Store.Get(ctx, key)
}

func (s dryStore) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if data, err := s.commits.ReadRange(ctx, key, offset, length); !errors.Is(err, store.ErrNotFound) {
		return data, err
	}
	return s.Store.ReadRange(ctx, key, offset, length)
}

func (s dryStore) Stat(ctx context.Context, key string) (store.Object, error) {
	if o, err := s.commits.Stat(ctx, key); !errors.Is(err, store.ErrNotFound) {
		return o, err
	}
	return s.Store.Stat(ctx, key)
}

// List has the commits that were kept in their places among the objects that are there.
func (s dryStore) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		next, stop := iter.Pull2(s.commits.List(ctx, prefix, after))
		defer stop()
		kept, err, more := next()
		for o, fault := range s.Store.List(ctx, prefix, after) {
			for ; more && err == nil && fault == nil && kept.Key < o.Key; kept, err, more = next() {
				if !yield(kept, nil) {
					return
				}
			}
			if !yield(o, fault) || fault != nil {
				return
			}
		}
		for ; more; kept, err, more = next() {
			if !yield(kept, err) {
				return
			}
		}
	}
}

func (s dryStore) Put(ctx context.Context, _ string, _ []byte) error { return ctx.Err() }

// PutIfAbsent refuses keys that are taken, so that a lost race is one here, too.
func (s dryStore) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	switch _, err := s.Store.Stat(ctx, key); {
	case err == nil:
		return fmt.Errorf("%s: %w", key, store.ErrExists)
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	return s.commits.PutIfAbsent(ctx, key, data)
}

func (s dryStore) Create(ctx context.Context, _ string) (store.Upload, error) {
	return dryUpload{}, ctx.Err()
}

func (s dryStore) Delete(ctx context.Context, _ string) error { return ctx.Err() }

type dryUpload struct{}

func (dryUpload) Write(p []byte) (int, error) { return len(p), nil }
func (dryUpload) Close() error                { return nil }
func (dryUpload) Abort() error                { return nil }
