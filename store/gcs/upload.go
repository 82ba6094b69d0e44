package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const (
	partBytes    = 8 << 20          // a multiple of 256 KiB, as sessions want it
	cleanTimeout = 30 * time.Second // for what is done after the caller has given up
	resume       = http.StatusPermanentRedirect
)

// Create begins a streaming upload. See store.Store. An object of up to 8 MiB is one put when it is closed; a
// larger one is sent through a session, in parts of 8 MiB, while it is written: Write waits for each part.
func (s *Store) Create(ctx context.Context, key string) (store.Upload, error) {
	if err := rest.Admit(ctx, "create", key); err != nil {
		return nil, err
	}
	return rest.NewUpload(ctx, key, partBytes, &upload{ctx: ctx, store: s, key: key}), nil
}

// upload is the rest.Sender of one object.
type upload struct {
	ctx   context.Context
	store *Store
	key   string

	session string // the URL that takes parts; "" as long as nothing was sent
	held    int64  // bytes that the session holds
}

// Whole puts the object.
func (u *upload) Whole(data []byte) error {
	_, err := u.store.client.Do(u.ctx, u.store.write("upload", u.key, data))
	return err
}

// begin starts a session.
func (u *upload) begin() error {
	a, err := u.store.client.Do(u.ctx, &rest.Call{Verb: "upload", Key: u.key, Method: http.MethodPost,
		URL: u.store.uploadURL("resumable", u.key), Body: []byte("{}"),
		Header: map[string]string{"Content-Type": "application/json",
			"X-Upload-Content-Type": "application/octet-stream"}})
	if err != nil {
		return err // nothing visible was written
	}
	if u.session = a.Header.Get("Location"); u.session == "" {
		return fmt.Errorf("upload %s: the server began a session, but did not say where", u.key)
	}
	return nil
}

// Part sends the bytes, as the end of the object or not, and gives them back. What became of a part whose answer
// was lost, the session tells; so it is sent from where it broke off, and an object is never made twice.
func (u *upload) Part(data []byte, end bool) ([]byte, error) {
	if u.session == "" {
		if err := u.begin(); err != nil {
			return nil, err
		}
	}
	return data, u.send(data, end)
}

// send sends what the session does not hold of the pending bytes until it holds all of them.
func (u *upload) send(pending []byte, end bool) error {
	for attempt := 1; ; attempt++ {
		a, err := u.put(pending, end)
		if err != nil && (!store.Retryable(err) || u.ctx.Err() != nil) {
			return err
		}
		if err != nil {
			var lost error
			if a, lost = u.ask(); lost != nil {
				return fmt.Errorf("%w; then: %v", err, lost)
			}
		}
		if a.Status != resume {
			return nil
		}
		held, heldErr := heldBytes(a)
		if heldErr != nil || held < u.held || held > u.held+int64(len(pending)) {
			return fmt.Errorf("upload %s: of %d to %d bytes sent the session says it holds %d: %w", u.key, u.held,
				u.held+int64(len(pending)), held, errors.Join(store.ErrUnavailable, heldErr))
		}
		pending = pending[held-u.held:]
		if held > u.held {
			attempt = 0
		}
		u.held = held
		switch {
		case len(pending) == 0 && !end:
			return nil
		case attempt >= u.store.client.Attempts():
			return u.stuck(err)
		}
		if err := rest.Pause(u.ctx, attempt+1); err != nil {
			return fmt.Errorf("upload %s: %w", u.key, err)
		}
	}
}

// stuck is the error of a session that takes nothing more; err is the latest failure, which may be nil.
func (u *upload) stuck(err error) error {
	if err == nil {
		err = fmt.Errorf("upload %s: %w", u.key, store.ErrUnavailable)
	}
	return fmt.Errorf("%w; the session takes no more than the %d bytes it holds", err, u.held)
}

// put sends bytes to the session. Only the end makes anything visible.
func (u *upload) put(data []byte, end bool) (*rest.Answer, error) {
	total := "*"
	if end {
		total = strconv.FormatInt(u.held+int64(len(data)), 10)
	}
	span := "*"
	if len(data) > 0 {
		span = fmt.Sprintf("%d-%d", u.held, u.held+int64(len(data))-1)
	}
	return u.store.client.Do(u.ctx, &rest.Call{Verb: "upload", Key: u.key, Method: http.MethodPut, URL: u.session,
		Body: data, Header: map[string]string{"Content-Range": "bytes " + span + "/" + total},
		Accept: []int{resume}, Writes: end, Once: true})
}

// ask lets the session tell what it holds, or that it has made the object.
func (u *upload) ask() (*rest.Answer, error) {
	return u.store.client.Do(u.ctx, &rest.Call{Verb: "upload", Key: u.key, Method: http.MethodPut, URL: u.session,
		Header: map[string]string{"Content-Range": "bytes */*"}, Accept: []int{resume}})
}

// heldBytes is how many bytes the session holds: "Range: bytes=0-99" says 100, its absence none.
func heldBytes(a *rest.Answer) (int64, error) {
	span := a.Header.Get("Range")
	if span == "" {
		return 0, nil
	}
	last, err := strconv.ParseInt(strings.TrimPrefix(span, "bytes=0-"), 10, 64)
	if err != nil || last < 0 || last == 1<<63-1 {
		return 0, fmt.Errorf("found the range %q, wanted one like bytes=0-99", span)
	}
	return last + 1, nil
}

// Drop ends the session.
func (u *upload) Drop() error {
	if u.session == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), cleanTimeout)
	defer cancel()
	const closedByClient = 499 // Google's answer to a session that was ended
	_, err := u.store.client.Do(ctx, &rest.Call{Verb: "abort", Key: u.key, Method: http.MethodDelete, URL: u.session,
		Accept: []int{closedByClient, http.StatusNotFound, http.StatusGone, http.StatusMethodNotAllowed}})
	return err
}
