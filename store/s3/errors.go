package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/freshet-io/freshet/store"
)

const noSuchBucket = "NoSuchBucket"

// readError turns an error of a call that writes nothing into one that callers can branch on.
func (s *Store) readError(ctx context.Context, verb, key string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", verb, key, ctx.Err())
	}
	switch is := s.refusal(err); {
	case is == nil:
		return fmt.Errorf("%s %s: %w: %w", verb, key, store.ErrUnavailable, err)
	case status(err) == http.StatusForbidden:
		return fmt.Errorf("%s %s (so looks a missing object too, without the right s3:ListBucket): %w",
			verb, key, is)
	default:
		return fmt.Errorf("%s %s: %w", verb, key, is)
	}
}

// refusal returns what the server, or the way to it, has clearly refused and would refuse again; nil when it
// may be otherwise the next time, or when the answer is not known.
func (s *Store) refusal(err error) error {
	var creds *credentialsError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &creds):
		return noCredentials(err)
	case errors.As(err, &cert):
		return fmt.Errorf("the server's certificate is not trusted; "+
			"name its authority in AWS_CA_BUNDLE: %w", err)
	}
	switch code(err) {
	case noSuchBucket:
		return fmt.Errorf("bucket %q %w; create it first: %v", s.bucket, store.ErrNoBucket, err)
	case "PermanentRedirect", "MovedPermanently", "AuthorizationHeaderMalformed",
		"IllegalLocationConstraintException":
		return fmt.Errorf("bucket %q is in another region than %q; set AWS_REGION to %q: %w",
			s.bucket, s.client.Options().Region, regionOf(err), err)
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId",
		"SignatureDoesNotMatch", "XAdminUserNotFound": // the last is versitygw's, with status 404
		return fmt.Errorf("%w: %w", store.ErrPermission, err)
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case "RequestTimeout":
		return nil
	}
	switch got := status(err); {
	case got == http.StatusUnauthorized, got == http.StatusForbidden:
		return fmt.Errorf("%w: %w", store.ErrPermission, err)
	case got == http.StatusNotFound:
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	case got == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case got == http.StatusRequestTimeout, got == http.StatusTooManyRequests, got == http.StatusConflict:
		return nil
	case got >= 300 && got < 500, got == http.StatusNotImplemented:
		return err
	}
	return nil
}

// status is the HTTP status of the answer that an error came from; 0 when there was no answer.
func status(err error) int {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.Response.Response != nil {
		return response.HTTPStatusCode()
	}
	return 0
}

// code is the error code in the answer's body; "" when there was none.
func code(err error) string {
	var response smithy.APIError
	if errors.As(err, &response) {
		return response.ErrorCode()
	}
	return ""
}

// regionOf is the region that an answer says the bucket is in.
func regionOf(err error) string {
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.Response.Response != nil {
		if region := response.Response.Header.Get("X-Amz-Bucket-Region"); region != "" {
			return region
		}
	}
	return "the bucket's region"
}

// knownCredentials passes on credentials and marks the failure to get them, which the SDK reports like any
// other. Once there were some, a failure is an outage of the service that renews them.
type knownCredentials struct {
	from    aws.CredentialsProvider
	hadSome atomic.Bool
}

func (k *knownCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := k.from.Retrieve(ctx)
	if err != nil {
		return found, &credentialsError{err: err, hadSome: k.hadSome.Load()}
	}
	k.hadSome.Store(true)
	return found, nil
}

// noCredentials is what a credentialsError means.
func noCredentials(err error) error {
	var creds *credentialsError
	if errors.As(err, &creds) && creds.hadSome {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: %w",
		store.ErrPermission, err)
}

type credentialsError struct {
	err     error
	hadSome bool
}

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }
