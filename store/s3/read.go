package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// Stat returns size and time of the object. See store.Store.
func (s *Store) Stat(ctx context.Context, key string) (store.Object, error) {
	if err := rest.Admit(ctx, "stat", key); err != nil {
		return store.Object{}, err
	}
	o, err := s.stat(ctx, key)
	if s.restored(ctx, key, &err) {
		return s.stat(ctx, key)
	}
	return o, err
}

func (s *Store) stat(ctx context.Context, key string) (store.Object, error) {
	head, err := s.client.HeadObject(ctx, &api.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err != nil {
		return store.Object{}, s.readError(ctx, "stat", key, err)
	}
	return object(key, head.ContentLength, head.LastModified), nil
}

// List yields objects in key order. See store.Store. One request brings up to 1000 of them. Keys that are no
// valid ones, such as the folder markers of other tools, are passed over.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			return // no key can be both
		}
		if s.log != nil {
			if err := s.log.beforeList(ctx, prefix); err != nil {
				yield(store.Object{}, fmt.Errorf("list %s: %w", prefix, err))
				return
			}
		}
		in := &api.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}
		if after > prefix {
			in.StartAfter = aws.String(s.prefix + after)
		}
		pages, last := api.NewListObjectsV2Paginator(s.client, in), ""
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(store.Object{}, s.readError(ctx, "list", prefix, err))
				return
			}
			for i := range page.Contents {
				found := &page.Contents[i]
				key := strings.TrimPrefix(aws.ToString(found.Key), s.prefix)
				if key <= after || store.CheckKey(key) != nil {
					continue
				}
				if key <= last {
					yield(store.Object{}, fmt.Errorf("list %s: %s lists %q behind %q, not in the order of "+
						"keys: directory buckets cannot be used", prefix, s.URL(), key, last))
					return
				}
				last = key
				if !yield(object(key, found.Size, found.LastModified), nil) {
					return
				}
			}
		}
	}
}

// Get returns the whole object. See store.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := rest.Admit(ctx, "get", key); err != nil {
		return nil, err
	}
	data, _, err := s.download(ctx, "get", key, "")
	if s.restored(ctx, key, &err) {
		data, _, err = s.download(ctx, "get", key, "")
	}
	return data, err
}

// restored reports whether a commit that was not found is there now, since the log store has completed it; a failure
// to do so takes the place of *err.
func (s *Store) restored(ctx context.Context, key string, err *error) bool {
	if s.log == nil || !errors.Is(*err, store.ErrNotFound) {
		return false
	}
	again, failed := s.log.restore(ctx, key)
	if failed != nil {
		*err = failed
	}
	return again && failed == nil
}

// ReadRange returns a part of the object. See store.Store.
func (s *Store) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := rest.Admit(ctx, "read", key); err != nil {
		return nil, err
	}
	data, err := s.readRange(ctx, key, offset, length)
	if s.restored(ctx, key, &err) {
		return s.readRange(ctx, key, offset, length)
	}
	return data, err
}

func (s *Store) readRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if offset >= 0 && length <= 0 { // HTTP has no empty ranges
		o, err := s.stat(ctx, key)
		if err == nil {
			_, _, err = span(key, o.Size, offset, length)
		}
		return nil, err
	}
	want := fmt.Sprintf("bytes=%d", offset)
	if offset >= 0 {
		want = fmt.Sprintf("bytes=%d-%d", offset, offset+min(length, math.MaxInt64-offset)-1)
	}
	data, part, err := s.download(ctx, "read", key, want)
	switch {
	case status(err) == http.StatusRequestedRangeNotSatisfiable && offset < 0:
		// The object is empty, or the server refuses a tail longer than the object. Either way all of it is
		// asked for.
		data, _, err = s.download(ctx, "read", key, "")
		return data, err
	case status(err) == http.StatusRequestedRangeNotSatisfiable:
		return nil, fmt.Errorf("read %s: offset %d: %w", key, offset, io.EOF)
	case err != nil || part:
		return data, err
	}
	// The server does not do ranges, at least not this one.
	from, to, err := span(key, int64(len(data)), offset, length)
	return data[from:to], err
}

func span(key string, size, offset, length int64) (from, to int64, err error) {
	from, to, err = store.Span(size, offset, length)
	if err != nil {
		err = fmt.Errorf("read %s: offset %d: %w", key, offset, err)
	}
	return from, to, err
}

// download reads an object, or a range of it in the form of HTTP. part says that the server sent a range. The
// SDK tries again what fails before the body; a body that breaks off is read again here.
func (s *Store) download(ctx context.Context, verb, key, span string) (data []byte, part bool, err error) {
	in := &api.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)}
	if span != "" {
		in.Range = &span
	}
	for attempt := range s.attempts {
		if attempt > 0 {
			if err := rest.Pause(ctx, attempt); err != nil {
				return nil, false, fmt.Errorf("%s %s: %w", verb, key, err)
			}
		}
		out, getErr := s.client.GetObject(ctx, in)
		if getErr != nil {
			return nil, false, s.readError(ctx, verb, key, getErr)
		}
		data, err = readBody(out.Body, out.ContentLength)
		if err == nil {
			return data, out.ContentRange != nil, nil
		}
	}
	return nil, false, s.readError(ctx, verb, key, err)
}

// readBody reads a body of known size, or one whose size is not said.
func readBody(body io.ReadCloser, size *int64) ([]byte, error) {
	defer body.Close()
	if size == nil || *size < 0 {
		return io.ReadAll(body)
	}
	data := make([]byte, *size)
	_, err := io.ReadFull(body, data)
	return data, err
}

func object(key string, size *int64, modified *time.Time) store.Object {
	return store.Object{Key: key, Size: aws.ToInt64(size), Modified: aws.ToTime(modified)}
}

func (s *Store) key(key string) *string {
	return aws.String(s.prefix + key)
}
