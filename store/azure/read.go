package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// Stat returns size and time of the blob. See store.Store.
func (s *Store) Stat(ctx context.Context, key string) (store.Object, error) {
	if err := admit(ctx, "stat", key); err != nil {
		return store.Object{}, err
	}
	o, _, err := s.stat(ctx, "stat", key)
	return o, err
}

// stat also returns the version that the blob is at.
func (s *Store) stat(ctx context.Context, verb, key string) (store.Object, string, error) {
	a, err := s.client.Do(ctx, &rest.Call{Verb: verb, Key: key, Method: http.MethodHead, URL: s.url(key)})
	if err != nil {
		return store.Object{}, "", err
	}
	if isFolder(a) {
		return store.Object{}, "", fmt.Errorf("%s %s: %w: it is a folder", verb, key, store.ErrNotFound)
	}
	o, err := object(key, a.Header.Get("Content-Length"), a.Header.Get("Last-Modified"))
	return o, a.Header.Get("Etag"), err
}

// isFolder reports whether the blob stands for a folder of a hierarchical namespace.
func isFolder(a *rest.Answer) bool { return a.Header.Get("X-Ms-Meta-Hdi_isfolder") == "true" }

func object(key, size, modified string) (store.Object, error) {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return store.Object{}, fmt.Errorf("the server says that %s has the size %q, wanted a number", key, size)
	}
	at, err := http.ParseTime(modified)
	if err != nil {
		return store.Object{}, fmt.Errorf("the server says that %s is of %q, wanted a time", key, modified)
	}
	return store.Object{Key: key, Size: n, Modified: at}, nil
}

// Get returns the whole blob. See store.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := admit(ctx, "get", key); err != nil {
		return nil, err
	}
	a, err := s.client.Do(ctx, s.read("get", key))
	if err != nil {
		return nil, err
	}
	if isFolder(a) {
		return nil, fmt.Errorf("get %s: %w: it is a folder", key, store.ErrNotFound)
	}
	return a.Body, nil
}

// ReadRange returns a part of the blob. See store.Store. Azure has no ranges from the end: such a read asks for
// the size first.
func (s *Store) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := admit(ctx, "read", key); err != nil {
		return nil, err
	}
	if offset >= 0 {
		return s.client.Range(ctx, s.read("read", key), offset, length)
	}
	for range s.client.Attempts() {
		o, version, err := s.stat(ctx, "read", key)
		if err != nil || o.Size == 0 {
			return nil, err
		}
		from, _, _ := store.Span(o.Size, offset, 0)
		call := s.read("read", key)
		call.Header["If-Match"] = version
		call.Accept = []int{http.StatusPreconditionFailed}
		call.Header["Range"] = fmt.Sprintf("bytes=%d-%d", from, o.Size-1)
		a, err := s.client.Do(ctx, call)
		switch {
		case err != nil:
			return nil, err
		case a.Status == http.StatusPartialContent:
			return a.Body, nil
		case a.Status != http.StatusPreconditionFailed: // the server sent all of it
			from, to, err := store.Span(int64(len(a.Body)), offset, 0)
			return a.Body[from:to], err
		}
	}
	return nil, fmt.Errorf("read %s: %w: it is being replaced all the time", key, store.ErrUnavailable)
}

func (s *Store) read(verb, key string) *rest.Call {
	return &rest.Call{Verb: verb, Key: key, Method: http.MethodGet, URL: s.url(key), Header: map[string]string{}}
}

// Delete removes the blob. See store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := admit(ctx, "delete", key); err != nil {
		return err
	}
	call := &rest.Call{Verb: "delete", Key: key, Method: http.MethodDelete, URL: s.url(key), Writes: true,
		Accept: []int{http.StatusNotFound}}
	a, err := s.client.Do(ctx, call)
	if err != nil || a.Status != http.StatusNotFound {
		return err
	}
	if is := s.service.Judge(call, a); !errors.Is(is, store.ErrNotFound) {
		return fmt.Errorf("delete %s: %w", key, is)
	}
	return nil
}
