package s3

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

// writing is one call that writes, of one or more attempts, and tells whether it may have been carried out.
type writing struct {
	store  *Store
	ctx    context.Context // the call is made with it
	sent   *atomic.Bool
	unsure error // of the latest attempt that may have been carried out, but for the last one
}

func (s *Store) newWriting(ctx context.Context) *writing {
	traced, sent := rest.Trace(ctx)
	return &writing{store: s, ctx: traced, sent: sent}
}

// watch lets the call take note of attempts after which the SDK tries again.
func (w *writing) watch(o *api.Options) { o.Retryer = &watcher{o.Retryer, w} }

type watcher struct {
	aws.Retryer
	writing *writing
}

// IsErrorRetryable is asked about each attempt that failed.
func (w *watcher) IsErrorRetryable(err error) bool {
	if w.writing.store.refusal(err) == nil && w.writing.maybeCarriedOut(err) {
		w.writing.unsure = err
	}
	return w.Retryer.IsErrorRetryable(err)
}

// maybeCarriedOut is about an attempt that was not refused.
func (w *writing) maybeCarriedOut(err error) bool {
	return w.sent.Load() && status(err) != http.StatusTooManyRequests
}

// failed turns the error of the call into one that callers can branch on. What is no clear refusal is ambiguous
// once it was sent, and with an attempt that may have been carried out all is in doubt.
func (w *writing) failed(verb, key string, err error) error {
	is := w.store.refusal(err)
	switch ended := w.ctx.Err(); {
	case ended != nil && !w.sent.Load():
		return fmt.Errorf("%s %s: %w", verb, key, ended)
	case ended != nil:
		return fmt.Errorf("%s %s: %w: %w", verb, key, store.ErrAmbiguous, ended)
	case is != nil && w.unsure != nil:
		return fmt.Errorf("%s %s: %w: an answer was lost, then: %v", verb, key, store.ErrAmbiguous, is)
	case is != nil:
		return fmt.Errorf("%s %s: %w", verb, key, is)
	case w.unsure != nil, w.maybeCarriedOut(err):
		return fmt.Errorf("%s %s: %w: %w", verb, key, store.ErrAmbiguous, err)
	}
	return fmt.Errorf("%s %s: %w: %w", verb, key, store.ErrUnavailable, err)
}
