package main

import (
	"context"
	"fmt"

	"github.com/freshet-io/freshet/store"
)

// dryStore is a store that takes writes as if they succeeded and keeps nothing of them: what an operation on a table
// would do is found by doing it there. It does for operations that read nothing of what they have written.
type dryStore struct {
	store.Store
}

func (s dryStore) Put(ctx context.Context, _ string, _ []byte) error { return ctx.Err() }

// PutIfAbsent refuses keys that are taken, so that a lost race is one here, too.
func (s dryStore) PutIfAbsent(ctx context.Context, key string, _ []byte) error {
	switch _, err := s.Stat(ctx, key); {
	case err == nil:
		return fmt.Errorf("%s: %w", key, store.ErrExists)
	default:
		return ctx.Err()
	}
}

func (s dryStore) Create(ctx context.Context, _ string) (store.Upload, error) {
	return dryUpload{}, ctx.Err()
}

func (s dryStore) Delete(ctx context.Context, _ string) error { return ctx.Err() }

type dryUpload struct{}

func (dryUpload) Write(p []byte) (int, error) { return len(p), nil }
func (dryUpload) Close() error                { return nil }
func (dryUpload) Abort() error                { return nil }
