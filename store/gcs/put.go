package gcs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// Put writes the object and replaces one that is there. See store.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	if err := rest.Admit(ctx, "put", key); err != nil {
		return err
	}
	_, err := s.client.Do(ctx, s.write("put", key, data))
	return err
}

// PutIfAbsent writes the object if the key is free. See store.Store. It is sent again only after attempts that
// certainly stored nothing.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := rest.Admit(ctx, "put", key); err != nil {
		return err
	}
	call := s.write("put", key, data)
	call.URL += "&ifGenerationMatch=0"
	call.Once = true
	call.Accept = []int{http.StatusPreconditionFailed}
	a, err := s.client.Do(ctx, call)
	if err != nil {
		return err
	}
	if a.Status == http.StatusPreconditionFailed {
		return fmt.Errorf("put %s: %w", key, store.ErrExists)
	}
	return nil
}

// write is a call that writes an object whole.
func (s *Store) write(verb, key string, data []byte) *rest.Call {
	return &rest.Call{Verb: verb, Key: key, Method: http.MethodPost, URL: s.uploadURL("media", key), Body: data,
		Header: map[string]string{"Content-Type": "application/octet-stream"}, Writes: true}
}

func (s *Store) uploadURL(kind, key string) string {
	return s.base + "/upload/storage/v1/b/" + s.bucket + "/o?uploadType=" + kind +
		"&name=" + url.QueryEscape(s.prefix+key)
}
