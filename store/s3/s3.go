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
	"net"
	"net/http"
	"os"
	"strings"
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

	// LogStore lets commits exclude each other by Spark's protocol for DynamoDB in place of conditional puts, for
	// tables that are shared with writers of that kind: dynamodb://TABLE?region=R&scheme=S&endpoint=URL. All parameters
	// may be left out. region is by default the store's; scheme is that of the URLs by which the others name
	// tables: s3a, by default, s3 or s3n. Default: FRESHET_LOG_STORE, and without it conditional puts.
	LogStore string
}

// Validate reports all that is wrong with the options.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	if o.Endpoint != "" && !isEndpoint(o.Endpoint) {
		faults = append(faults, fmt.Errorf("s3 endpoint %q is not a URL like https://host:port", o.Endpoint))
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
	if o.LogStore != "" {
		_, err := parseLogStore(o.LogStore)
		faults = append(faults, err)
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
	log      *logStore     // nil where conditional puts do
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
	given := opts.orDefaults()
	if err := given.Validate(); err != nil {
		return nil, fmt.Errorf("open %s: %w", where, err)
	}
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
	if given.LogStore != "" {
		if s.log, err = newLogStore(s, &given); err != nil {
			return nil, fmt.Errorf("open %s: %w", where, err)
		}
	}
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
	if given.LogStore == "" {
		given.LogStore = os.Getenv("FRESHET_LOG_STORE")
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
