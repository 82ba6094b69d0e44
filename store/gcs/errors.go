package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const scope = "https://www.googleapis.com/auth/devstorage.read_write"

// service signs requests and judges answers: see rest.Service.
type service struct {
	bucket    string
	timeout   time.Duration
	anonymous bool

	turn   chan struct{} // one token: who holds it may use the fields below
	tokens oauth2.TokenSource
	token  *oauth2.Token // the latest; nil as long as there was none
}

// Sign adds the token of Google's default credentials. Without any it is ErrPermission; once there were some, a
// failure is an outage of the service that renews them.
func (s *service) Sign(ctx context.Context, r *http.Request) error {
	if s.anonymous {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	defer func() { <-s.turn }()
	if s.tokens == nil {
		// The tokens outlive this call, and so does the client that fetches them.
		fetch := context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, &http.Client{Timeout: s.timeout})
		found, err := google.FindDefaultCredentials(fetch, scope)
		if err != nil {
			return fmt.Errorf("%w: no credentials found; set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run "+
				"gcloud auth application-default login: %w", store.ErrPermission, err)
		}
		s.tokens = found.TokenSource
	}
	token, err := s.tokens.Token()
	if err != nil {
		return s.noToken(err)
	}
	s.token = token
	token.SetAuthHeader(r)
	return nil
}

// noToken tells an outage from credentials that are refused.
func (s *service) noToken(err error) error {
	var refused *oauth2.RetrieveError
	known := errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode/100 == 4
	if s.token != nil || !known {
		return fmt.Errorf("%w: no token for the credentials: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: the credentials are refused; check the key file that GOOGLE_APPLICATION_CREDENTIALS "+
		"names, or run gcloud auth application-default login: %w", store.ErrPermission, err)
}

// Judge reads Google's errors: a status, and in the body the reasons.
func (s *service) Judge(call *rest.Call, a *rest.Answer) error {
	message, reason := explain(a.Body)
	is := rest.Refused(a)
	switch a.Status {
	case http.StatusNotFound:
		// Nothing but the bucket can be missing where an object is made, and where a session is none.
		uploads := call.Method == http.MethodPost
		if uploads || strings.Contains(strings.ToLower(message), "bucket does not exist") {
			return noBucket(s.bucket)
		}
	case http.StatusForbidden:
		switch reason {
		case "rateLimitExceeded", "userRateLimitExceeded":
			return fmt.Errorf("%w: %s", store.ErrUnavailable, message)
		case "quotaExceeded":
			return fmt.Errorf("%w: %s", store.ErrFull, message)
		}
		if call.Writes {
			return fmt.Errorf("%w (the account needs storage.objects.create and storage.objects.delete, as the role "+
				"Storage Object User has)", is)
		}
		return fmt.Errorf("%w (so looks a missing object too, without the right storage.objects.list)", is)
	case http.StatusUnauthorized:
		return fmt.Errorf("%w (the token is refused or has expired: set GOOGLE_APPLICATION_CREDENTIALS, or run "+
			"gcloud auth application-default login)", is)
	}
	return is
}

func noBucket(bucket string) error {
	return fmt.Errorf("bucket %q %w; create it first", bucket, store.ErrNoBucket)
}

// explain reads the body of an error; what is no such body has neither.
func explain(body []byte) (message, reason string) {
	var said struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return string(body[:min(len(body), 500)]), ""
	}
	if len(said.Error.Errors) > 0 {
		reason = said.Error.Errors[0].Reason
	}
	return said.Error.Message, reason
}
