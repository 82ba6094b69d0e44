package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// Put writes the object and replaces one that is there. See store.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	if err := rest.Admit(ctx, "put", key); err != nil {
		return err
	}
	return s.put(ctx, "put", key, data)
}

func (s *Store) put(ctx context.Context, verb, key string, data []byte) error {
	w := s.newWriting(ctx)
	_, err := s.client.PutObject(w.ctx, &api.PutObjectInput{
		Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(data),
		ContentLength: aws.Int64(int64(len(data))),
	}, w.watch)
	if err != nil {
		return w.failed(verb, key, err)
	}
	return nil
}

// PutIfAbsent writes the object if the key is free. See store.Store. Before the first one, the store is
// probed; a server that does not keep conditions is an error, see Probe. A commit to a Delta table goes by the log
// store, if there is one.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := rest.Admit(ctx, "put", key); err != nil {
		return err
	}
	if s.log != nil {
		if at, ok := s.log.commitAt(key); ok {
			return s.log.put(ctx, at, data)
		}
	}
	if err := s.probe.once(ctx, s.Probe); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return s.putIfAbsent(ctx, key, data)
}

// putIfAbsent tries again only after attempts that certainly stored nothing.
func (s *Store) putIfAbsent(ctx context.Context, key string, data []byte) error {
	var err error
	for attempt := range s.attempts {
		if attempt > 0 {
			if err := rest.Pause(ctx, attempt); err != nil {
				return fmt.Errorf("put %s: %w", key, err)
			}
		}
		var again bool
		again, err = s.tryIfAbsent(ctx, key, data)
		if !again {
			return err
		}
	}
	return err
}

// tryIfAbsent is one conditional put. again says that nothing was stored and that a later attempt may
// succeed.
func (s *Store) tryIfAbsent(ctx context.Context, key string, data []byte) (again bool, err error) {
	w := s.newWriting(ctx)
	_, err = s.client.PutObject(w.ctx, &api.PutObjectInput{
		Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(data),
		ContentLength: aws.Int64(int64(len(data))),
		IfNoneMatch:   aws.String("*"),
	}, func(o *api.Options) { o.Retryer = aws.NopRetryer{} })
	switch {
	case err == nil:
		return false, nil
	case status(err) == http.StatusPreconditionFailed:
		return false, fmt.Errorf("put %s: %w", key, store.ErrExists)
	case status(err) == http.StatusConflict:
		// Another conditional put of the key, or its deletion, was in progress. Amazon: "retry the upload".
		return true, fmt.Errorf("put %s: %w: %w", key, store.ErrUnavailable, err)
	case status(err) == http.StatusNotImplemented:
		return false, fmt.Errorf("put %s: %w: %w", key, s.noConditions(), err)
	}
	err = w.failed("put", key, err)
	return errors.Is(err, store.ErrUnavailable), err
}

// Delete removes the object. See store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := rest.Admit(ctx, "delete", key); err != nil {
		return err
	}
	w := s.newWriting(ctx)
	_, err := s.client.DeleteObject(w.ctx, &api.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(key)}, w.watch)
	if err == nil || status(err) == http.StatusNotFound && code(err) != noSuchBucket {
		return nil
	}
	return w.failed("delete", key, err)
}

// Probe finds out whether the server keeps the condition of a conditional put, by putting an object of a
// hidden name twice, and deletes it. It returns an error if the second put was taken: then two writers would
// overwrite each other's commits, and the store must not be used for tables. Errors: ErrPermission,
// ErrUnavailable when it could not find out.
func (s *Store) Probe(ctx context.Context) error {
	key := "_freshet/probe-" + uuid.NewString()
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		_ = s.Delete(clean, key) // what was found out stands, also if the object stays
	}()
	for range s.attempts {
		err := s.putIfAbsent(ctx, key, []byte("first"))
		if errors.Is(err, store.ErrAmbiguous) && ctx.Err() == nil {
			continue // it is stored, or the next one will be
		}
		if err != nil && !errors.Is(err, store.ErrExists) {
			return s.unprobed(err)
		}
		switch err := s.putIfAbsent(ctx, key, []byte("second")); {
		case errors.Is(err, store.ErrExists):
			return nil
		case err == nil:
			return s.noConditions()
		case !errors.Is(err, store.ErrAmbiguous):
			return s.unprobed(err)
		}
	}
	return fmt.Errorf("probe %s: %w: no clear answer to %d conditional puts",
		s.URL(), store.ErrUnavailable, s.attempts)
}

// unprobed wraps an error that kept the probe from an answer. An ambiguous one concerns the probe's object
// alone, and not the one that the caller puts.
func (s *Store) unprobed(err error) error {
	if errors.Is(err, store.ErrAmbiguous) {
		return fmt.Errorf("probe %s: %w: %v", s.URL(), store.ErrUnavailable, err)
	}
	return fmt.Errorf("probe %s: %w", s.URL(), err)
}

func (s *Store) noConditions() error {
	return fmt.Errorf("the server of %s ignores the condition If-None-Match of a put, so that two writers "+
		"would overwrite each other's commits: use a server that keeps it", s.URL())
}

// probe remembers that the store has passed. A failure is not remembered: an outage ends, and a server is
// replaced.
type probe struct {
	turn   chan struct{} // one token: who holds it may probe
	passed chan struct{} // closed by the holder
}

func newProbe() probe {
	return probe{turn: make(chan struct{}, 1), passed: make(chan struct{})}
}

// once runs a probe unless one has passed. Callers wait for the one that runs.
func (p *probe) once(ctx context.Context, run func(context.Context) error) error {
	if p.over() {
		return nil
	}
	select {
	case <-p.passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	}
	if p.over() { // since the turn was free
		return nil
	}
	err := run(ctx)
	if err == nil {
		close(p.passed)
	}
	return err
}

func (p *probe) over() bool {
	select {
	case <-p.passed:
		return true
	default:
		return false
	}
}
