package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/s3"
)

// spoil answers the nth spoiled request, with or without the server.
type spoil func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler)

// wire is a handler in front of the fake server that spoils requests and remembers them.
type wire struct {
	server http.Handler
	spoil  spoil

	mu   sync.Mutex
	seen []string // "METHOD key?query", probes excluded
}

// ServeHTTP lets probes pass. The key "hit" and everything below "hit/" is spoiled; nth counts its requests
// from 1.
func (h *wire) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/"+bucket+"/")
	if !strings.HasPrefix(key, "hit") {
		h.server.ServeHTTP(w, r)
		return
	}
	h.mu.Lock()
	h.seen = append(h.seen, r.Method+" "+key+"?"+r.URL.RawQuery)
	nth := len(h.seen)
	h.mu.Unlock()
	h.spoil(w, r, nth, h.server)
}

// requests returns the methods of the spoiled requests so far.
func (h *wire) requests() (methods []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, request := range h.seen {
		method, _, _ := strings.Cut(request, " ")
		methods = append(methods, method)
	}
	return methods
}

// spoiled returns a store over a fake server whose answers about "hit" a test spoils. It gives up after 3
// attempts.
func spoiled(t *testing.T, spoil spoil) (*s3.Store, *wire) {
	t.Helper()
	h := &wire{spoil: spoil}
	server := fakeServer(t, func(inner http.Handler) http.Handler {
		h.server = inner
		return h
	})
	return openWith(t, &s3.Options{Endpoint: server.URL, Attempts: 3}), h
}

func openWith(t *testing.T, opts *s3.Options) *s3.Store {
	t.Helper()
	opts.Region, opts.AccessKeyID, opts.SecretAccessKey = "us-east-1", "id", "secret"
	s, err := s3.Open(t.Context(), bucket, "", opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

// handle lets the server handle a request and keeps its answer from the client.
func handle(r *http.Request, server http.Handler) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, r)
	return answer
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
}

func TestPutIfAbsent_AnswerLost_AmbiguousSentOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		landed bool
		spoil  spoil
	}{
		{"connection closed after it landed", true, func(
			w http.ResponseWriter, r *http.Request, _ int, server http.Handler,
		) {
			handle(r, server)
			hangUp(w)
		}},
		{"connection closed before it landed", false, func(
			w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler,
		) {
			hangUp(w)
		}},
		{"500 after it landed", true, func(
			w http.ResponseWriter, r *http.Request, _ int, server http.Handler,
		) {
			handle(r, server)
			refuse(w, http.StatusInternalServerError, "InternalError")
		}},
		{"503 before it landed", false, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			refuse(w, http.StatusServiceUnavailable, "SlowDown")
		}},
		{"504 of a proxy", false, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			http.Error(w, "<html>Gateway Timeout</html>", http.StatusGatewayTimeout)
		}},
		{"400 RequestTimeout", false, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			refuse(w, http.StatusBadRequest, "RequestTimeout")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
				if r.Method == http.MethodPut {
					c.spoil(w, r, nth, server)
					return
				}
				server.ServeHTTP(w, r)
			})
			err := s.PutIfAbsent(t.Context(), "hit", []byte("data"))
			if !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v, want ErrAmbiguous", err)
			}
			if got, want := wire.requests(), []string{"PUT"}; !slices.Equal(got, want) {
				t.Errorf("got requests %q, want one PUT", got)
			}
			if _, err := s.Stat(t.Context(), "hit"); c.landed != (err == nil) {
				t.Errorf("Stat afterwards: got %v, want landed %v", err, c.landed)
			}
		})
	}
}

// TestPutIfAbsent_ReusedConnectionDies_SentOnce lets the server close the connection that the next put will
// reuse, after it has read the request: net/http must not repeat it.
func TestPutIfAbsent_ReusedConnectionDies_SentOnce(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 1 {
			server.ServeHTTP(w, r)
			return
		}
		handle(r, server)
		hangUp(w)
	})
	if err := s.PutIfAbsent(t.Context(), "hit/1", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "hit/2", nil); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if got := wire.requests(); len(got) != 2 {
		t.Errorf("got requests %q, want two", got)
	}
}

func TestPutIfAbsent_AnswerTooLate_Ambiguous(t *testing.T) {
	release := make(chan struct{})
	h := &wire{spoil: func(_ http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		handle(r, server)
		<-release
	}}
	server := fakeServer(t, func(inner http.Handler) http.Handler {
		h.server = inner
		return h
	})
	t.Cleanup(func() { close(release) })
	s := openWith(t, &s3.Options{Endpoint: server.URL, Timeout: 500 * time.Millisecond})
	if err := s.PutIfAbsent(t.Context(), "hit", nil); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if got := h.requests(); len(got) != 1 {
		t.Errorf("got requests %q, want one", got)
	}
}

func TestPutIfAbsent_CancelledWhileSent_AmbiguousAndCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, _ := spoiled(t, func(_ http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		handle(r, server)
		cancel()
		<-r.Context().Done()
	})
	err := s.PutIfAbsent(ctx, "hit", nil)
	if !errors.Is(err, store.ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrAmbiguous and context.Canceled", err)
	}
}

func TestPutIfAbsent_Conflict_TriedAgain(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth < 3 {
			refuse(w, http.StatusConflict, "ConditionalRequestConflict")
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := s.PutIfAbsent(t.Context(), "hit", []byte("data")); err != nil {
		t.Error(err)
	}
	if got := wire.requests(); len(got) != 3 {
		t.Errorf("got requests %q, want three", got)
	}
}

func TestPutIfAbsent_Refusals_SayWhy(t *testing.T) {
	for _, c := range []struct {
		status   int
		code     string
		is       error // nil: none of the sentinels
		text     string
		requests int
	}{
		{http.StatusConflict, "ConditionalRequestConflict", store.ErrUnavailable, "", 3},
		{http.StatusTooManyRequests, "TooManyRequests", store.ErrUnavailable, "", 3},
		{http.StatusForbidden, "AccessDenied", store.ErrPermission, "", 1},
		{http.StatusBadRequest, "ExpiredToken", store.ErrPermission, "", 1},
		{http.StatusPreconditionFailed, "PreconditionFailed", store.ErrExists, "", 1},
		{http.StatusInsufficientStorage, "XMinioStorageFull", store.ErrFull, "", 1},
		{http.StatusNotFound, "NoSuchBucket", nil, `bucket "lake" does not exist`, 1},
		{http.StatusMovedPermanently, "PermanentRedirect", nil, "AWS_REGION", 1},
		{http.StatusNotImplemented, "NotImplemented", nil, "If-None-Match", 1},
		{http.StatusBadRequest, "InvalidArgument", nil, "InvalidArgument", 1},
	} {
		t.Run(c.code, func(t *testing.T) {
			s, wire := spoiled(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
				refuse(w, c.status, c.code)
			})
			err := s.PutIfAbsent(t.Context(), "hit", []byte("data"))
			for _, is := range []error{
				store.ErrUnavailable, store.ErrPermission, store.ErrExists, store.ErrFull, store.ErrNotFound,
				store.ErrAmbiguous,
			} {
				if errors.Is(err, is) != (is == c.is) {
					t.Errorf("got %v, want the sentinel %v alone", err, c.is)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %q in it", err, c.text)
			}
			if got := wire.requests(); len(got) != c.requests {
				t.Errorf("got requests %q, want %d", got, c.requests)
			}
		})
	}
}

// TestWrites_NobodyListens_UnavailableNotAmbiguous: a refused connection is certain to have written nothing.
func TestWrites_NobodyListens_UnavailableNotAmbiguous(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	s := openWith(t, &s3.Options{Endpoint: "http://" + address, Attempts: 2})
	for call, err := range map[string]error{
		"PutIfAbsent": s.PutIfAbsent(t.Context(), "k", nil), "Put": s.Put(t.Context(), "k", nil),
		"Delete": s.Delete(t.Context(), "k"),
	} {
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAmbiguous) {
			t.Errorf("%s: got %v, want ErrUnavailable alone", call, err)
		}
	}
}

func TestPutIfAbsent_ServerIgnoresCondition_RefusedBeforeFirstPut(t *testing.T) {
	server := fakeServer(t, func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("If-None-Match")
			inner.ServeHTTP(w, r)
		})
	})
	s := open(t, server, "")
	err := s.PutIfAbsent(t.Context(), "k", nil)
	if err == nil || store.Retryable(err) || !strings.Contains(err.Error(), "If-None-Match") {
		t.Errorf("got %v, want an error about If-None-Match that no retry mends", err)
	}
	for o := range s.List(t.Context(), "", "") {
		t.Errorf("%q is left behind", o.Key)
	}
}

func TestPut_AnswerLost_SentAgain(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 1 {
			handle(r, server)
			hangUp(w)
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := s.Put(t.Context(), "hit", []byte("data")); err != nil {
		t.Error(err)
	}
	if got := wire.requests(); len(got) != 2 {
		t.Errorf("got requests %q, want two", got)
	}
}

func TestGet_ServerSlowsUsDown_TriedAgainThenUnavailable(t *testing.T) {
	failures := 1
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth <= failures {
			refuse(w, http.StatusServiceUnavailable, "SlowDown")
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := s.Put(t.Context(), "hit", []byte("data")); err != nil {
		t.Fatal(err)
	}
	failures = 1 << 30
	if _, err := s.Get(t.Context(), "hit"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestGet_BodyBreaksOff_ReadAgain(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 10_000)
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth != 2 {
			server.ServeHTTP(w, r)
			return
		}
		answer := handle(r, server)
		w.Header().Set("Content-Length", answer.Header().Get("Content-Length"))
		_, _ = w.Write(answer.Body.Bytes()[:5000])
		_ = http.NewResponseController(w).Flush()
		hangUp(w)
	})
	if err := s.Put(t.Context(), "hit", want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "hit")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want all %d", len(got), err, len(want))
	}
	if got, want := wire.requests(), []string{"PUT", "GET", "GET"}; !slices.Equal(got, want) {
		t.Errorf("got requests %q, want %q", got, want)
	}
}

func TestReadRange_ServerIgnoresRanges_RightBytes(t *testing.T) {
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		r.Header.Del("Range")
		server.ServeHTTP(w, r)
	})
	if err := s.Put(t.Context(), "hit", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{2, 3, "234"}, {8, 9, "89"}, {-3, 0, "789"}} {
		got, err := s.ReadRange(t.Context(), "hit", c.offset, c.length)
		if err != nil || string(got) != c.want {
			t.Errorf("ReadRange(%d, %d): got %q, %v, want %q", c.offset, c.length, got, err, c.want)
		}
	}
	if _, err := s.ReadRange(t.Context(), "hit", 10, 1); !errors.Is(err, io.EOF) {
		t.Errorf("beyond the end: got %v, want io.EOF", err)
	}
}

func TestList_ServerWithoutOrder_Error(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<ListBucketResult><KeyCount>2</KeyCount><IsTruncated>false</IsTruncated>`+
			`<Contents><Key>b</Key></Contents><Contents><Key>a</Key></Contents></ListBucketResult>`)
	}))
	defer server.Close()
	var err error
	for _, err = range open(t, server, "").List(t.Context(), "", "") {
		continue
	}
	if err == nil || !strings.Contains(err.Error(), "order") {
		t.Errorf("got %v, want an error about the order", err)
	}
}

// large is an object of four parts.
var large = bytes.Repeat([]byte("0123456789abcdef"), 17<<16)

func uploadLarge(t *testing.T, s *s3.Store) error {
	t.Helper()
	up, err := s.Create(t.Context(), "hit")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := up.Write(large); err != nil {
		return errors.Join(err, up.Abort())
	}
	return up.Close()
}

// TestUpload_CompletionAnswerLost_FoundToHaveLanded: the second completion is told that there is no such
// upload.
func TestUpload_CompletionAnswerLost_FoundToHaveLanded(t *testing.T) {
	completions := 0
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		if r.Method != http.MethodPost || !r.URL.Query().Has("uploadId") {
			server.ServeHTTP(w, r)
			return
		}
		if completions++; completions == 1 {
			handle(r, server)
			hangUp(w)
			return
		}
		refuse(w, http.StatusNotFound, "NoSuchUpload")
	})
	if err := uploadLarge(t, s); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "hit"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("got %d bytes, %v, want all %d", len(got), err, len(large))
	}
}

func TestUpload_CompletionUnknown_Ambiguous(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
			hangUp(w)
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := uploadLarge(t, s); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if slices.Contains(wire.requests(), http.MethodDelete) {
		t.Error("an upload that may have landed was aborted")
	}
}

func TestUpload_PartRefused_ErrorAndAborted(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		if r.URL.Query().Get("partNumber") == "2" {
			_, _ = io.Copy(io.Discard, r.Body) // else the client sees a reset connection first
			refuse(w, http.StatusForbidden, "AccessDenied")
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := uploadLarge(t, s); !errors.Is(err, store.ErrPermission) {
		t.Errorf("got %v, want ErrPermission", err)
	}
	if !slices.Contains(wire.requests(), http.MethodDelete) {
		t.Errorf("got requests %q, want the upload aborted", wire.requests())
	}
	if _, err := s.Stat(t.Context(), "hit"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat: got %v, want ErrNotFound", err)
	}
}

func TestUpload_PartAnswerLost_SentAgain(t *testing.T) {
	var once sync.Once
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		dropped := false
		if r.URL.Query().Get("partNumber") == "2" {
			once.Do(func() { dropped = true })
		}
		if dropped {
			handle(r, server)
			hangUp(w)
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := uploadLarge(t, s); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "hit"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("got %d bytes, %v, want all %d", len(got), err, len(large))
	}
}

func TestUpload_ManyAtOnce_FourPartsOnTheirWayAndOneGatheredEach(t *testing.T) {
	const uploads, size = 12, 7 << 20
	var mu sync.Mutex
	var once sync.Once
	now, most := 0, 0
	full := make(chan struct{})
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		if r.Method != http.MethodPut || r.URL.Query().Get("partNumber") != "1" {
			server.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		now++
		if most = max(most, now); now == 4 {
			once.Do(func() { close(full) })
		}
		mu.Unlock()
		<-full
		answer := handle(r, server)
		mu.Lock()
		now--
		mu.Unlock()
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
	want := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	var all sync.WaitGroup
	for i := range uploads {
		all.Go(func() {
			up, err := s.Create(t.Context(), fmt.Sprint("hit/", i))
			if err != nil {
				t.Error(err)
				return
			}
			_, err = up.Write(want)
			if held := up.(interface{ Held() int64 }).Held(); held < 2<<20 || held > 5<<20 {
				t.Errorf("upload %d holds %d bytes, want the 2 MiB behind its first part, and 5 at most", i, held)
			}
			if err := errors.Join(err, up.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most != 4 {
		t.Errorf("got %d parts on their way at once, want 4", most)
	}
	for i := range uploads {
		if got, err := s.Get(t.Context(), fmt.Sprint("hit/", i)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("upload %d: got %d bytes, %v", i, len(got), err)
		}
	}
}
