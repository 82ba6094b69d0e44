// Package gcs is a store.Store in a bucket of Google Cloud Storage.
//
// Guarantees, besides those of store.Store:
//   - PutIfAbsent is one upload with the condition ifGenerationMatch=0. It is sent again only when it is certain
//     that nothing was stored: no connection was made, or the server said that it refused.
//   - Memory is at most one part of 8 MiB for each upload, whatever its size.
//
// Non-goals: creating buckets, encryption settings, generations of objects, buckets whose requester pays.
//
// Processes that die during an upload leave a session behind, which shows nowhere, costs nothing and ends by
// itself after a week.
//
//	lake, err := gcs.Open("bucket", "lake/orders", nil)
package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const (
	answerTimeout   = time.Minute
	defaultAttempts = 5
	defaultEndpoint = "https://storage.googleapis.com"
	pageObjects     = "1000"
)

// Options say how to reach the server.
type Options struct {
	// Endpoint is the base URL of an emulator, which is asked without credentials. Default: the environment's
	// STORAGE_EMULATOR_HOST (host:port or a URL), else Google's own server.
	Endpoint string
	Timeout  time.Duration // how long an answer may take to begin; default one minute
	Attempts int           // how often a request is sent at most, the first included; default 5
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
			faults = append(faults, fmt.Errorf("gcs endpoint %q is not a URL like http://host:port", o.Endpoint))
		}
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("gcs timeout %v is negative", o.Timeout))
	}
	if o.Attempts < 0 {
		faults = append(faults, fmt.Errorf("gcs attempts %d is negative", o.Attempts))
	}
	return errors.Join(faults...)
}

// Store is the objects of a bucket below a prefix. It is safe for concurrent use.
type Store struct {
	client  *rest.Client
	service *service
	base    string // of URLs, without a slash at the end
	bucket  string
	prefix  string // "" or ending with a slash
}

// Open returns the store of the objects of a bucket whose keys begin with prefix and a slash; the prefix may
// be empty. Nothing is sent: credentials are looked for at the first call, where GOOGLE_APPLICATION_CREDENTIALS,
// gcloud and the machine's own service account have them. Errors: faults of the options.
func Open(bucket, prefix string, opts *Options) (*Store, error) {
	prefix = strings.Trim(prefix, "/")
	where := strings.TrimSuffix("gs://"+bucket+"/"+prefix, "/")
	if bucket == "" || strings.ContainsAny(bucket, "/?#%") {
		return nil, fmt.Errorf("open gcs: %q is not the name of a bucket", bucket)
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
	service := &service{bucket: bucket, timeout: given.Timeout, anonymous: given.Endpoint != "",
		turn: make(chan struct{}, 1)}
	s := &Store{base: defaultEndpoint, bucket: bucket, prefix: prefix, service: service,
		client: rest.NewClient(given.Timeout, given.Attempts, service)}
	if given.Endpoint != "" {
		s.base = strings.TrimRight(given.Endpoint, "/")
	}
	return s, nil
}

// orDefaults returns a copy with defaults in place of zeros.
func (o *Options) orDefaults() Options {
	var given Options
	if o != nil {
		given = *o
	}
	if given.Endpoint == "" {
		given.Endpoint = os.Getenv("STORAGE_EMULATOR_HOST")
		if given.Endpoint != "" && !strings.Contains(given.Endpoint, "://") {
			given.Endpoint = "http://" + given.Endpoint
		}
	}
	if given.Timeout == 0 {
		given.Timeout = answerTimeout
	}
	if given.Attempts == 0 {
		given.Attempts = defaultAttempts
	}
	return given
}

// URL is "gs://bucket/prefix".
func (s *Store) URL() string {
	return strings.TrimSuffix("gs://"+s.bucket+"/"+s.prefix, "/")
}

// resource is an object as the JSON API describes it.
type resource struct {
	Name    string    `json:"name"`
	Size    string    `json:"size"` // decimal
	Updated time.Time `json:"updated"`
}

func (r *resource) object(key string) (store.Object, error) {
	size, err := strconv.ParseInt(r.Size, 10, 64)
	if err != nil || size < 0 {
		return store.Object{}, fmt.Errorf("the server says that %s has the size %q, wanted a number", key, r.Size)
	}
	return store.Object{Key: key, Size: size, Modified: r.Updated}, nil
}

// Stat returns size and time of the object. See store.Store.
func (s *Store) Stat(ctx context.Context, key string) (store.Object, error) {
	if err := rest.Admit(ctx, "stat", key); err != nil {
		return store.Object{}, err
	}
	a, err := s.client.Do(ctx, &rest.Call{Verb: "stat", Key: key, Method: http.MethodGet,
		URL: s.url(key) + "?fields=name,size,updated"})
	if err != nil {
		return store.Object{}, err
	}
	var r resource
	if err := json.Unmarshal(a.Body, &r); err != nil {
		return store.Object{}, fmt.Errorf("stat %s: the server's answer is no JSON: %w", key, err)
	}
	return r.object(key)
}

// Get returns the whole object. See store.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := rest.Admit(ctx, "get", key); err != nil {
		return nil, err
	}
	a, err := s.client.Do(ctx, s.read("get", key))
	if err != nil {
		return nil, err
	}
	return a.Body, nil
}

// ReadRange returns a part of the object. See store.Store.
func (s *Store) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := rest.Admit(ctx, "read", key); err != nil {
		return nil, err
	}
	if offset >= 0 {
		return s.client.Range(ctx, s.read("read", key), offset, length)
	}
	call := s.read("read", key)
	call.Header["Range"] = fmt.Sprintf("bytes=%d", offset)
	call.Accept = []int{http.StatusRequestedRangeNotSatisfiable}
	a, err := s.client.Do(ctx, call)
	switch {
	case err != nil:
		return nil, err
	case a.Status == http.StatusRequestedRangeNotSatisfiable: // the object is empty, or shorter than the tail
		return s.Get(ctx, key)
	case a.Status == http.StatusPartialContent:
		return a.Body, nil
	}
	from, to, err := store.Span(int64(len(a.Body)), offset, length)
	return a.Body[from:to], err
}

// read is a call for an object's bytes, as they are stored also where they are compressed.
func (s *Store) read(verb, key string) *rest.Call {
	return &rest.Call{Verb: verb, Key: key, Method: http.MethodGet, URL: s.url(key) + "?alt=media",
		Header: map[string]string{"Accept-Encoding": "gzip"}}
}

// Delete removes the object. See store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := rest.Admit(ctx, "delete", key); err != nil {
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

// List yields objects in key order. See store.Store. One request brings up to 1000 of them. Keys that are no
// valid ones, such as the folder markers of other tools, are passed over.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			return // no key can be both
		}
		last, page := after, ""
		for {
			found, next, err := s.page(ctx, prefix, after, page)
			if err != nil {
				yield(store.Object{}, err)
				return
			}
			for i := range found {
				key, below := strings.CutPrefix(found[i].Name, s.prefix)
				if !below || key <= after || store.CheckKey(key) != nil {
					continue
				}
				o, err := found[i].object(key)
				if err == nil && key <= last {
					err = fmt.Errorf("list %s: %s lists %q behind %q, not in the order of keys", prefix, s.URL(),
						key, last)
				}
				if last = key; !yield(o, err) || err != nil {
					return
				}
			}
			if page = next; page == "" {
				return
			}
		}
	}
}

// page is one answer of a listing, and the token of the next one; "" for none.
func (s *Store) page(ctx context.Context, prefix, after, token string) ([]resource, string, error) {
	query := url.Values{"prefix": {s.prefix + prefix}, "maxResults": {pageObjects},
		"fields": {"items(name,size,updated),nextPageToken"}}
	if after > prefix {
		query.Set("startOffset", s.prefix+after) // which is listed, too, and passed over
	}
	if token != "" {
		query.Set("pageToken", token)
	}
	a, err := s.client.Do(ctx, &rest.Call{Verb: "list", Key: prefix, Method: http.MethodGet,
		URL: s.base + "/storage/v1/b/" + s.bucket + "/o?" + query.Encode()})
	if err != nil {
		if errors.Is(err, store.ErrNotFound) { // objects are not looked for
			err = fmt.Errorf("%w: %v", noBucket(s.bucket), err)
		}
		return nil, "", err
	}
	var found struct {
		Items []resource `json:"items"`
		Next  string     `json:"nextPageToken"`
	}
	if err := json.Unmarshal(a.Body, &found); err != nil {
		return nil, "", fmt.Errorf("list %s: the server's answer is no JSON: %w", prefix, err)
	}
	return found.Items, found.Next, nil
}

// url is the address of an object.
func (s *Store) url(key string) string {
	return s.base + "/storage/v1/b/" + s.bucket + "/o/" + url.PathEscape(s.prefix+key)
}
