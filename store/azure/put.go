package azure

import (
	"context"
	"fmt"
	"net/http"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// Put writes the blob and replaces one that is there. See store.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	if err := admitWrite(ctx, "put", key); err != nil {
		return err
	}
	_, err := s.client.Do(ctx, s.write("put", key, data))
	return err
}

// PutIfAbsent writes the blob if the key is free. See store.Store. It is sent again only after attempts that
// certainly stored nothing.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := admitWrite(ctx, "put", key); err != nil {
		return err
	}
	call := s.write("put", key, data)
	call.Header["If-None-Match"] = "*"
	call.Once = true
	// 409 is BlobAlreadyExists among other conflicts.
	call.Accept = []int{http.StatusPreconditionFailed, http.StatusConflict}
	a, err := s.client.Do(ctx, call)
	switch {
	case err != nil:
		return err
	case a.Status == http.StatusPreconditionFailed, a.Status == http.StatusConflict && code(a) == blobExists:
		return fmt.Errorf("put %s: %w", key, store.ErrExists)
	case a.Status == http.StatusConflict:
		return fmt.Errorf("put %s: %w", key, s.service.Judge(call, a))
	}
	return nil
}

// write is a call that writes a block blob whole.
func (s *Store) write(verb, key string, data []byte) *rest.Call {
	return &rest.Call{Verb: verb, Key: key, Method: http.MethodPut, URL: s.url(key), Body: data, Writes: true,
		Header: map[string]string{"X-Ms-Blob-Type": "BlockBlob", "Content-Type": "application/octet-stream"}}
}
