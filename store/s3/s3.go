// Package s3 is a store.Store in a bucket of Amazon S3 or of any server that speaks its protocol.
//
// Guarantees, besides those of store.Store:
//   - PutIfAbsent is one conditional put. It is sent again only when it is certain that nothing was stored:
//     no connection was made, or the server said that it refused. A server that ignores conditions is found
//     out before the first such put.
//   - Memory is at most one part of 5 MiB for each upload, whatever its size, and four such parts for all uploads of
//     a store.
//
// Non-goals: creating buckets, encryption settings, versions of objects, S3 Express directory buckets (their
// listings have no order).
//
// Processes that die during an upload leave its parts behind, which no listing shows; let a lifecycle rule of
// the bucket abort incomplete multipart uploads.
//
//	lake, err := s3.Open(ctx, "bucket", "lake/orders", nil)
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	api "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/freshet-io/freshet/store"
)

const (
	dialTimeout     = 5 * time.Second
	answerTimeout   = time.Minute
	defaultAttempts = 5
	maxBackoff      = 5 * time.Second
	idleConnections = 32
)

// Options say how to reach the server. Empty fields are taken from the environment (AWS_REGION,
// AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_CA_BUNDLE), the files in ~/.aws and the machine's role, as every
// AWS tool does.
type Options struct {
	Region          string        // default as above; with an endpoint, us-east-1
	Endpoint        string        // base URL of a server that is not Amazon's, which gets path-style requests
	AccessKeyID     string        // default as above
	SecretAccessKey string        // goes with AccessKeyID
	SessionToken    string        // of temporary credentials; goes with AccessKeyID
	Timeout         time.Duration // how long an answer may take to begin; default one minute
	Attempts        int           // how often a request is sent at most, the first included; default 5
}

// Validate reports all that is wrong with the options.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			err = fmt.Errorf("s3 endpoint %q is not a URL like https://host:port", o.Endpoint)
			faults = append(faults, err)
		}
	}
	if (o.AccessKeyID == "") != (o.SecretAccessKey == "") {
		faults = append(faults, errors.New("s3 access key id and secret access key must be given together"))
	}
	if o.SessionToken != "" && o.AccessKeyID == "" {
		faults = append(faults, errors.New("s3 session token is given without an access key id"))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("s3 timeout %v is negative", o.Timeout))
	}
	if o.Attempts < 0 {
		faults = append(faults, fmt.Errorf("s3 attempts %d is negative", o.Attempts))
	}
	return errors.Join(faults...)
}

// Store is the objects of a bucket below a prefix. It is safe for concurrent use.
type Store struct {
	client   *api.Client
	bucket   string
	prefix   string // "" or ending with a slash
	attempts int
	probe    probe
	slots    chan struct{} // an element for each part of an upload that is on its way
}

// Open returns the store of the objects of a bucket whose keys begin with prefix and a slash; the prefix may
// be empty. Nothing is sent to the bucket. Errors: faults of the options or of the files in ~/.aws, and a
// missing region.
func Open(ctx context.Context, bucket, prefix string, opts *Options) (*Store, error) {
	prefix = strings.Trim(prefix, "/")
	where := strings.TrimSuffix("s3://"+bucket+"/"+prefix, "/")
	if bucket == "" || strings.ContainsAny(bucket, "/?#") {
		return nil, fmt.Errorf("open s3: %q is not the name of a bucket", bucket)
	}
	if prefix != "" {
		if err := store.CheckKey(prefix); err != nil {
			return nil, fmt.Errorf("open %s: %w", where, err)
		}
		prefix += "/"
	}
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("open %s: %w", where, err)
	}
	given := opts.orDefaults()
	cfg, err := config.LoadDefaultConfig(ctx, given.load()...)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", where, err)
	}
	if cfg.Credentials != nil {
		cfg.Credentials = &knownCredentials{from: cfg.Credentials}
	}
	client := api.NewFromConfig(cfg, func(o *api.Options) {
		if given.Endpoint != "" {
			o.BaseEndpoint = &given.Endpoint
		}
		if o.BaseEndpoint != nil {
			o.UsePathStyle = true
			if o.Region == "" {
				o.Region = "us-east-1"
			}
		}
	})
	if client.Options().Region == "" {
		return nil, fmt.Errorf("open %s: no region is set: set AWS_REGION to the region of the bucket", where)
	}
	s := &Store{client: client, bucket: bucket, prefix: prefix, attempts: given.Attempts, probe: newProbe(),
		slots: make(chan struct{}, partsAtOnce)}
	return s, nil
}

// orDefaults returns a copy with defaults in place of zeros, but for what the SDK finds by itself.
func (o *Options) orDefaults() Options {
	var given Options
	if o != nil {
		given = *o
	}
	if given.Timeout == 0 {
		given.Timeout = answerTimeout
	}
	if given.Attempts == 0 {
		given.Attempts = defaultAttempts
	}
	return given
}

// load translates the options for the SDK.
func (o *Options) load() []func(*config.LoadOptions) error {
	client := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout }).
		WithTransportOptions(func(t *http.Transport) {
			t.ResponseHeaderTimeout = o.Timeout
			t.MaxIdleConns, t.MaxIdleConnsPerHost = 2*idleConnections, idleConnections
		})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(r *retry.StandardOptions) {
				r.MaxAttempts, r.MaxBackoff, r.RateLimiter = o.Attempts, maxBackoff, ratelimit.None
			})
		}),
		// Servers other than Amazon's may not know the newer checksums.
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.AccessKeyID != "" {
		fixed := credentials.NewStaticCredentialsProvider(o.AccessKeyID, o.SecretAccessKey, o.SessionToken)
		load = append(load, config.WithCredentialsProvider(fixed))
	}
	return load
}

// URL is "s3://bucket/prefix".
func (s *Store) URL() string {
	return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix, "/")
}

// Stat returns size and time of the object. See store.Store.
func (s *Store) Stat(ctx context.Context, key string) (store.Object, error) {
	if err := admit(ctx, "stat", key); err != nil {
		return store.Object{}, err
	}
	head, err := s.client.HeadObject(ctx, &api.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err != nil {
		return store.Object{}, s.readError(ctx, "stat", key, err)
	}
	return object(key, head.ContentLength, head.LastModified), nil
}

// Delete removes the object. See store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := admit(ctx, "delete", key); err != nil {
		return err
	}
	traced, sent := trace(ctx)
	_, err := s.client.DeleteObject(traced, &api.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err == nil || status(err) == http.StatusNotFound && code(err) != noSuchBucket {
		return nil
	}
	return s.writeError(ctx, "delete", key, err, sent)
}

// List yields objects in key order. See store.Store. One request brings up to 1000 of them. Keys that are no
// valid ones, such as the folder markers of other tools, are passed over.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			return // no key can be both
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
	if err := admit(ctx, "get", key); err != nil {
		return nil, err
	}
	data, _, err := s.download(ctx, "get", key, "")
	return data, err
}

// ReadRange returns a part of the object. See store.Store.
func (s *Store) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := admit(ctx, "read", key); err != nil {
		return nil, err
	}
	if offset >= 0 && length <= 0 { // HTTP has no empty ranges
		o, err := s.Stat(ctx, key)
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
			if err := pause(ctx, attempt); err != nil {
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

// admit is the check that every call on a key begins with.
func admit(ctx context.Context, verb, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, key, err)
	}
	return nil
}

// trace returns a context that notes whether a request made with it got as far as a connection. As long as
// sent is false, the server has certainly not seen the request.
func trace(ctx context.Context) (traced context.Context, sent *atomic.Bool) {
	sent = new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}), sent
}

// pause waits before the given attempt, counted from 1: some jitter around a time that doubles.
func pause(ctx context.Context, attempt int) error {
	limit := min(maxBackoff, 50*time.Millisecond<<attempt)
	timer := time.NewTimer(limit/2 + rand.N(limit/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
