package storetest

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
)

// Service is a kind of server that stores are on, as RunFaults has to know it: a fake of it in memory, and how its
// requests and its errors look.
type Service struct {
	// Server returns a new, empty fake.
	Server func(t *testing.T) http.Handler
	// Open opens the store on a server at the URL that sends a request at most attempts times and waits for an
	// answer for timeout; zero for the default.
	Open func(t *testing.T, url string, attempts int, timeout time.Duration) store.Store
	// Asks says which object a request is about, and what it does.
	Asks func(r *http.Request) (key string, step Step)
	// Refuse answers with an error of the service's form.
	Refuse func(w http.ResponseWriter, status int, code string)

	Lost      []Reply   // errors after which nobody knows whether a write was carried out
	Later     []Reply   // errors that say that it was not, and to come back
	Denied    Reply     // the error of missing rights
	Refusals  []Refusal // errors of a put of a free key that stand, whatever is tried
	PartBytes int       // of the parts in which a large object is sent
	Drops     bool      // a request of its own drops the parts of an upload that is given up
	Unordered string    // an answer to a listing that has the key "b" before "a"
}

// Reply is an error of a service.
type Reply struct {
	Status int
	Code   string
}

// Refusal is an error of a service, and what it is for the caller.
type Refusal struct {
	Reply
	Is   error  // of the sentinels of package store; nil for none of them
	Text string // what its message says
}

// Refused makes a Refusal.
func Refused(status int, code string, is error, text string) Refusal {
	return Refusal{Reply{status, code}, is, text}
}

// Step is what a request does.
type Step string

// The steps of an upload, and all that is none.
const (
	StepPut   Step = "put"   // the whole object
	StepBegin Step = "begin" // the upload
	StepPart  Step = "part"
	StepEnd   Step = "end"  // makes the object of the parts
	StepDrop  Step = "drop" // the parts
	StepOther Step = "other"
)

// Spoil answers a request in the server's place or lets the server do it. nth counts from 1.
type Spoil func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler)

// Wire is what lies between a store and the fake server: requests about the key "hit", and all below "hit/", are
// spoiled and remembered.
type Wire struct {
	service *Service
	server  http.Handler
	spoil   Spoil

	mu   sync.Mutex
	seen []Step
}

// Spoiled returns a store over a new fake, and its wire. The store sends a request three times at most.
func (s *Service) Spoiled(t *testing.T, spoil Spoil) (store.Store, *Wire) {
	t.Helper()
	return s.spoiled(t, spoil, 0)
}

func (s *Service) spoiled(t *testing.T, spoil Spoil, timeout time.Duration) (store.Store, *Wire) {
	t.Helper()
	w := &Wire{service: s, server: s.Server(t), spoil: spoil}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	return s.Open(t, server.URL, 3, timeout), w
}

// ServeHTTP lets the test spoil what is about its key.
func (w *Wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	key, step := w.service.Asks(r)
	if key != "hit" && !strings.HasPrefix(key, "hit/") {
		w.server.ServeHTTP(out, r)
		return
	}
	w.mu.Lock()
	w.seen = append(w.seen, step)
	nth := len(w.seen)
	w.mu.Unlock()
	w.spoil(out, r, nth, w.server)
}

// Steps are what the requests about the key have done so far, in the order in which they came.
func (w *Wire) Steps() []Step {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// refuse reads the request, so that the client does not see a reset connection first, and answers with an error.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, reply Reply) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.Refuse(w, reply.Status, reply.Code)
}

// Carry lets the server carry the request out, and keeps its answer from the client.
func Carry(r *http.Request, server http.Handler) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, r)
	return answer
}

// Pass gives the client an answer that was kept from it.
func Pass(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// HangUp closes the connection without an answer.
func HangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

func lostAfter(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
	Carry(r, server)
	HangUp(w)
}

func lostBefore(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) { HangUp(w) }
