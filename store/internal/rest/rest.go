// Package rest sends the requests of a store that is reached over HTTP, and tells for certain, where it can be
// told, whether a write was carried out. Upload cuts what is written to an object into parts.
//
// Guarantees:
//   - A call that may be sent once only is sent again only after an attempt that certainly changed nothing: no
//     connection was made, or the server said that it refused.
//   - A write that may have been carried out, by any of its attempts, is ErrAmbiguous and nothing else.
//
// Non-goals: signing, which each store does itself, and redirects, which are refusals.
package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/store"
)

const (
	dialTimeout     = 5 * time.Second
	maxBackoff      = 5 * time.Second
	idleConnections = 32
	firstBodyBytes  = 16 << 20 // taken for a body of that size at once; a larger one grows as it arrives
	maxErrorBytes   = 64 << 10
)

// Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	http     *http.Client
	attempts int
	service  Service
}

// Service is what the client has to know about a kind of server.
type Service interface {
	// Sign adds what proves who asks. An error that is no ErrUnavailable is final.
	Sign(ctx context.Context, r *http.Request) error
	// Judge says what an answer that is no success means: nil when it is not known whether the call was
	// carried out, an ErrUnavailable when it was not and may be later, and any other error for a refusal that
	// will stand.
	Judge(call *Call, a *Answer) error
}

// NewClient returns a client that waits for the beginning of an answer for at most timeout and sends a request
// at most attempts times.
func NewClient(timeout time.Duration, attempts int, service Service) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.ResponseHeaderTimeout = timeout
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 2*idleConnections, idleConnections
	transport.DisableCompression = true // objects are read as they are stored
	return &Client{attempts: attempts, service: service, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Call is one request, sent as often as it takes.
type Call struct {
	Verb, Key string // for errors: "put", "a/b"
	Method    string
	URL       string
	Header    map[string]string
	Body      []byte
	Accept    []int // statuses besides 2xx that are answers to the caller
	Writes    bool  // it changes objects, so that a lost answer is ambiguous
	Once      bool  // it must not be sent again once it may have been carried out
}

// Answer is what the server said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // whole for what was accepted, at most 64 KiB of an error
}

// Attempts is how often a request is sent at most.
func (c *Client) Attempts() int { return c.attempts }

// Do sends the call. Errors: those of store.Store, wrapped with the verb and the key; the context's when it
// ended before anything was sent, and beside ErrAmbiguous when it ended later in a write.
func (c *Client) Do(ctx context.Context, call *Call) (*Answer, error) {
	var unsure, last error // unsure is of the latest attempt that may have been carried out
	for attempt := range c.attempts {
		if attempt > 0 {
			if err := Pause(ctx, attempt); err != nil {
				last = err
				break
			}
		}
		a, sent, err := c.send(ctx, call)
		if err == nil && (a.Status/100 == 2 || slices.Contains(call.Accept, a.Status)) {
			return a, nil
		}
		var verdict error
		if err == nil {
			verdict, err = c.service.Judge(call, a), statusError(a)
		} else {
			verdict = judgeFailure(err)
		}
		switch {
		case verdict != nil && !errors.Is(verdict, store.ErrUnavailable):
			return nil, call.failed(ctx, unsure, verdict)
		case verdict != nil:
			last = verdict
		case sent && call.Writes:
			unsure, last = err, err
		default:
			last = err
		}
		if ctx.Err() != nil || call.Once && sent && verdict == nil {
			break
		}
	}
	if unsure == nil && ctx.Err() == nil && !errors.Is(last, store.ErrUnavailable) {
		last = fmt.Errorf("%w: %w", store.ErrUnavailable, last)
	}
	return nil, call.failed(ctx, unsure, last)
}

// failed is the error of a call; with an attempt that may have been carried out, all is in doubt.
func (call *Call) failed(ctx context.Context, unsure, last error) error {
	switch {
	case unsure != nil && ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w: %w", call.Verb, call.Key, store.ErrAmbiguous, ctx.Err())
	case unsure != nil && errors.Is(last, store.ErrUnavailable):
		return fmt.Errorf("%s %s: %w: %w", call.Verb, call.Key, store.ErrAmbiguous, unsure)
	case unsure != nil:
		return fmt.Errorf("%s %s: %w: an answer was lost, then: %v", call.Verb, call.Key, store.ErrAmbiguous, last)
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", call.Verb, call.Key, ctx.Err())
	}
	return fmt.Errorf("%s %s: %w", call.Verb, call.Key, last)
}

// send is one attempt. As long as sent is false, the server has certainly not seen it. net/http itself sends a
// request again only if its connection closed before it wrote anything, or if HTTP/2 says that it was not
// looked at, as long as the method does not call itself repeatable.
func (c *Client) send(ctx context.Context, call *Call) (a *Answer, sent bool, err error) {
	traced, got := Trace(ctx)
	r, err := http.NewRequestWithContext(traced, call.Method, call.URL, bytes.NewReader(call.Body))
	if err != nil {
		return nil, false, &signError{err}
	}
	for name, value := range call.Header {
		r.Header.Set(name, value)
	}
	if err := c.service.Sign(ctx, r); err != nil {
		return nil, false, &signError{err}
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, got.Load(), err
	}
	defer answer.Body.Close()
	a = &Answer{Status: answer.StatusCode, Header: answer.Header}
	success := a.Status/100 == 2
	a.Body, err = readBody(answer, success)
	if call.Writes || !success {
		err = nil // the status says it all
	}
	return a, true, err
}

func readBody(answer *http.Response, success bool) ([]byte, error) {
	if !success {
		return io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes))
	}
	body := bytes.NewBuffer(make([]byte, 0, min(max(answer.ContentLength, 0), firstBodyBytes)+bytes.MinRead))
	_, err := body.ReadFrom(answer.Body)
	return body.Bytes(), err
}

// judgeFailure is Judge for an attempt without an answer.
func judgeFailure(err error) error {
	var sign *signError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &sign):
		return sign.error
	case errors.As(err, &cert):
		return fmt.Errorf("the server's certificate is not trusted; name its authority in SSL_CERT_FILE: %w", err)
	}
	return nil
}

// signError marks an attempt that was not sent for want of credentials or of a well-formed URL.
type signError struct{ error }

func (e *signError) Unwrap() error { return e.error }

// Refused is the error of a status: ErrPermission, ErrNotFound, ErrFull or plain where it is a refusal,
// ErrUnavailable for 429, and nil where nobody knows.
func Refused(a *Answer) error {
	err := statusError(a)
	switch {
	case a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		return fmt.Errorf("%w: %w", store.ErrPermission, err)
	case a.Status == http.StatusNotFound:
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	case a.Status == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case a.Status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case a.Status == http.StatusRequestTimeout, a.Status == http.StatusConflict:
		return nil
	case a.Status >= 300 && a.Status < 500, a.Status == http.StatusNotImplemented:
		return err
	}
	return nil
}

// statusError is the answer as a person reads it.
func statusError(a *Answer) error {
	text := a.Body[:min(len(a.Body), 500)]
	return fmt.Errorf("the server answered %d %s: %q", a.Status, http.StatusText(a.Status), text)
}

// Range reads the bytes [offset, offset+length) by a call that reads an object, or fewer where the object
// ends before. Both are not negative; an offset beyond the end is io.EOF.
func (c *Client) Range(ctx context.Context, call *Call, offset, length int64) ([]byte, error) {
	if _, _, err := store.Span(math.MaxInt64, 0, length); err != nil {
		return nil, fmt.Errorf("%s %s: offset %d: %w", call.Verb, call.Key, offset, err)
	}
	// HTTP has no empty ranges: one byte is read in place of none.
	last := offset + min(max(length, 1), math.MaxInt64-offset) - 1
	call.Header["Range"] = fmt.Sprintf("bytes=%d-%d", offset, last)
	call.Accept = append(call.Accept, http.StatusRequestedRangeNotSatisfiable)
	a, err := c.Do(ctx, call)
	switch {
	case err != nil:
		return nil, err
	case a.Status == http.StatusRequestedRangeNotSatisfiable,
		a.Status == http.StatusPartialContent && len(a.Body) == 0: // Azurite's answer, where the object just ends
		return nil, fmt.Errorf("%s %s: offset %d: %w", call.Verb, call.Key, offset, io.EOF)
	case a.Status == http.StatusPartialContent:
		return a.Body[:min(int64(len(a.Body)), length)], nil
	}
	// The server sent all of it.
	from, to, err := store.Span(int64(len(a.Body)), offset, length)
	if err != nil {
		return nil, fmt.Errorf("%s %s: offset %d: %w", call.Verb, call.Key, offset, err)
	}
	return a.Body[from:to], nil
}

// Trace returns a context that notes whether a request made with it got as far as a connection. As long as
// sent is false, the server has certainly not seen the request.
func Trace(ctx context.Context) (traced context.Context, sent *atomic.Bool) {
	sent = new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}), sent
}

// Admit is the check that every call on a key begins with.
func Admit(ctx context.Context, verb, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	return nil
}

// Pause waits before the given attempt, counted from 1: some jitter around a time that doubles.
func Pause(ctx context.Context, attempt int) error {
	limit := min(maxBackoff, 50*time.Millisecond<<min(attempt, 20))
	timer := time.NewTimer(limit/2 + rand.N(limit/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
