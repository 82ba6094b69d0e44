package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/s3"
	"github.com/freshet-io/freshet/store/storetest"
)

// world is an S3 server and a DynamoDB table that several processes share.
type world struct {
	s3     http.Handler
	dynamo *fakeDynamo
}

func newWorld(t *testing.T) *world { return &world{fake(t), newFakeDynamo()} }

// open is a process of its own: a store of the table s3a://lake/p. Its requests to both servers pass through spoil,
// which may be nil and counts them from 1; they are sent attempts times.
func (w *world) open(t *testing.T, prefix string, attempts int, spoil storetest.Spoil) *s3.Store {
	t.Helper()
	var mu sync.Mutex
	nth := 0
	through := func(server http.Handler) string {
		s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if spoil == nil {
				server.ServeHTTP(out, r)
				return
			}
			mu.Lock()
			nth++
			n := nth
			mu.Unlock()
			spoil(out, r, n, server)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	return openWith(t, prefix, &s3.Options{Endpoint: through(w.s3), Attempts: attempts,
		LogStore: "dynamodb://delta_log?region=eu-central-1&endpoint=" + url.QueryEscape(through(w.dynamo))})
}

const tableURL = "s3a://" + bucket + "/p"

func commitFile(version int) string { return fmt.Sprintf("%020d.json", version) }
func commitKey(version int) string  { return "_delta_log/" + commitFile(version) }

func mustCommit(t *testing.T, s store.Store, version int, data string) {
	t.Helper()
	if err := s.PutIfAbsent(t.Context(), commitKey(version), []byte(data)); err != nil {
		t.Fatalf("commit %d: %v", version, err)
	}
}

func wantCommit(t *testing.T, s store.Store, version int, want string) {
	t.Helper()
	if got, err := s.Get(t.Context(), commitKey(version)); err != nil || string(got) != want {
		t.Errorf("commit %d: got %q, %v, want %q", version, got, err, want)
	}
}

func listed(t *testing.T, s store.Store, prefix string) (keys []string) {
	t.Helper()
	for o, err := range s.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func TestLogStore_FakeServers_ConformanceHolds(t *testing.T) {
	w := newWorld(t)
	storetest.Run(t, func(t *testing.T) store.Store { return w.open(t, uuid.NewString(), 5, nil) }, nil)
}

// TestLogStore_Commit_EntryAsSparkHasIt pins the layout of an item.
func TestLogStore_Commit_EntryAsSparkHasIt(t *testing.T) {
	w := newWorld(t)
	s := w.open(t, "p", 1, nil)
	mustCommit(t, s, 0, "zero")
	item := w.dynamo.item(tableURL, commitFile(0))
	temp, expires := item["tempPath"]["S"], item["expireTime"]["N"]
	if !strings.HasPrefix(temp, ".tmp/"+commitFile(0)+".") || item["complete"]["S"] != "true" || len(item) != 5 {
		t.Errorf("got the item %v, want a tempPath below .tmp and complete true", item)
	}
	seconds, err := strconv.ParseInt(expires, 10, 64)
	if in := time.Until(time.Unix(seconds, 0)); err != nil || in < 23*time.Hour || in > 25*time.Hour {
		t.Errorf("got the expireTime %q, want the seconds of this time tomorrow", expires)
	}
	if got := listed(t, s, ""); len(got) != 1 || got[0] != commitKey(0) {
		t.Errorf("got the objects %q, want the commit alone", got)
	}
}

func TestLogStore_ManyProcesses_OneWinsEachVersion(t *testing.T) {
	const writers, versions = 32, 8
	w := newWorld(t)
	stores := make([]*s3.Store, writers)
	for i := range stores {
		stores[i] = w.open(t, "p", 3, nil)
	}
	for version := range versions {
		results := make([]error, writers)
		var all sync.WaitGroup
		for i, s := range stores {
			all.Go(func() { results[i] = s.PutIfAbsent(t.Context(), commitKey(version), []byte(strconv.Itoa(i))) })
		}
		all.Wait()
		winner := -1
		for i, err := range results {
			switch {
			case err == nil && winner >= 0:
				t.Errorf("version %d: %d and %d both won", version, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, store.ErrExists):
				t.Errorf("version %d, writer %d: %v", version, i, err)
			}
		}
		wantCommit(t, stores[0], version, strconv.Itoa(winner))
	}
	w.dynamo.wantComplete(t)
}

// TestLogStore_CrashAtEveryCall_CommitWholeOrNot lets a process die before and after each of its requests. Another one
// then sees all of its commit or nothing, and goes on.
func TestLogStore_CrashAtEveryCall_CommitWholeOrNot(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newWorld(t)
			mustCommit(t, w.open(t, "p", 1, nil), 0, "zero")
			var crashed atomic.Bool
			dying := w.open(t, "p", 1, func(out http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
				if nth < n {
					server.ServeHTTP(out, r)
					return
				}
				crashed.Store(true)
				if after && nth == n {
					storetest.Carry(r, server)
				}
				storetest.HangUp(out)
			})
			died := dying.PutIfAbsent(t.Context(), commitKey(1), []byte("mine"))
			if errors.Is(died, store.ErrExists) {
				t.Errorf("call %d, after %v: got %v, and nobody else was there", n, after, died)
			}
			checkSurvivor(t, w, died, fmt.Sprintf("call %d, after %v", n, after))
			if !crashed.Load() {
				break
			}
		}
	}
}

// checkSurvivor lets another process go on after one that got died from its commit of version 1.
func checkSurvivor(t *testing.T, w *world, died error, where string) {
	t.Helper()
	s := w.open(t, "p", 1, nil)
	landed := len(listed(t, s, "_delta_log/0")) == 2
	switch got, err := s.Get(t.Context(), commitKey(1)); {
	case landed && (err != nil || string(got) != "mine"):
		t.Errorf("%s: got %q, %v, want the commit", where, got, err)
	case !landed && !errors.Is(err, store.ErrNotFound):
		t.Errorf("%s: got %q, %v of a commit that is not listed", where, got, err)
	case !landed && died == nil:
		t.Errorf("%s: a commit that succeeded is not there", where)
	case landed && died != nil && !errors.Is(died, store.ErrAmbiguous):
		t.Errorf("%s: a commit that landed failed with %v, want ErrAmbiguous", where, died)
	}
	next := 1
	if landed {
		next = 2
	}
	mustCommit(t, s, next, "theirs")
	wantCommit(t, s, next, "theirs")
	if landed {
		wantCommit(t, s, 1, "mine")
	}
	w.dynamo.wantComplete(t)
}

// TestLogStore_SparkLeftCommit_Completed has a writer that died when its entry stood, found by each kind of call.
func TestLogStore_SparkLeftCommit_Completed(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s store.Store) error{
		"Get":  func(ctx context.Context, s store.Store) error { _, err := s.Get(ctx, commitKey(1)); return err },
		"Stat": func(ctx context.Context, s store.Store) error { _, err := s.Stat(ctx, commitKey(1)); return err },
		"ReadRange": func(ctx context.Context, s store.Store) error {
			_, err := s.ReadRange(ctx, commitKey(1), 0, 2)
			return err
		},
		"List": func(ctx context.Context, s store.Store) error {
			for _, err := range s.List(ctx, "_delta_log/", commitKey(0)) {
				return err
			}
			return errors.New("nothing is listed")
		},
		"next commit": func(ctx context.Context, s store.Store) error { return s.PutIfAbsent(ctx, commitKey(2), nil) },
	} {
		w := newWorld(t)
		s := w.open(t, "p", 1, nil)
		mustCommit(t, s, 0, "zero")
		if err := s.Put(t.Context(), "_delta_log/.tmp/spark", []byte("spark's")); err != nil {
			t.Fatal(err)
		}
		w.dynamo.put(tableURL, commitFile(1), ".tmp/spark", "false")
		if err := call(t.Context(), w.open(t, "p", 1, nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.dynamo.wantComplete(t)
		wantCommit(t, s, 1, "spark's")
		if err := s.PutIfAbsent(t.Context(), commitKey(1), []byte("ours")); !errors.Is(err, store.ErrExists) {
			t.Errorf("%s: commit over it: got %v, want ErrExists", name, err)
		}
	}
}

// TestLogStore_EntryExpired_SlowWriterLoses has a writer that slept between looking for the file and claiming the
// entry, for longer than entries live.
func TestLogStore_EntryExpired_SlowWriterLoses(t *testing.T) {
	w := newWorld(t)
	quick := w.open(t, "p", 1, nil)
	slow := w.open(t, "p", 1, func(out http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "PutItem") && w.dynamo.item(tableURL, commitFile(0)) == nil {
			mustCommit(t, quick, 0, "quick")
			w.dynamo.expire()
		}
		server.ServeHTTP(out, r)
	})
	if err := slow.PutIfAbsent(t.Context(), commitKey(0), []byte("slow")); !errors.Is(err, store.ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	wantCommit(t, quick, 0, "quick")
	w.dynamo.wantComplete(t)
}

// TestLogStore_ClaimAnswerLost_Settled loses answers of DynamoDB to the put that decides.
func TestLogStore_ClaimAnswerLost_Settled(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(target string, puts int32) bool
		want error
	}{
		"once":         {func(target string, puts int32) bool { return target == "PutItem" && puts == 1 }, nil},
		"always":       {func(target string, _ int32) bool { return target == "PutItem" }, nil},
		"and the look": {func(_ string, puts int32) bool { return puts >= 1 }, store.ErrAmbiguous},
	} {
		w := newWorld(t)
		var puts atomic.Int32
		s := w.open(t, "p", 2, func(out http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
			_, target, isDynamo := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
			if target == "PutItem" {
				puts.Add(1)
			}
			if isDynamo && c.lose(target, puts.Load()) {
				storetest.Carry(r, server)
				storetest.HangUp(out)
				return
			}
			server.ServeHTTP(out, r)
		})
		if err := s.PutIfAbsent(t.Context(), commitKey(0), []byte("mine")); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		wantCommit(t, w.open(t, "p", 1, nil), 0, "mine")
	}
}

func TestLogStore_Refusals_SayWhy(t *testing.T) {
	entry := func(table, temp, complete string) func(w *world) {
		return func(w *world) { w.dynamo.put(table, commitFile(0), temp, complete) }
	}
	for _, c := range []struct {
		name  string
		world func(w *world)
		want  string
	}{
		{"no table", func(w *world) { w.dynamo.name = "another" }, `the DynamoDB table "delta_log" does not exist`},
		{"an older table", entry(tableURL, ".tmp/x", "true"), "entries of an older one"},
		{"another name", entry("s3://lake/p", ".tmp/x", "true"), "scheme=s3"},
		{"an entry that leads out", entry(tableURL, "../../x", "false"), "bad name"},
		{"an object that is gone", entry(tableURL, ".tmp/x", "false"), "is gone"},
	} {
		w := newWorld(t)
		c.world(w)
		s := w.open(t, "p", 1, nil)
		err := s.PutIfAbsent(t.Context(), commitKey(0), nil)
		if errors.Is(err, store.ErrExists) { // the caller looks at what is there
			_, err = s.Get(t.Context(), commitKey(0))
		}
		if err == nil || errors.Is(err, store.ErrNotFound) || store.Retryable(err) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
	}
	s := newWorld(t).open(t, "p", 1, nil)
	if err := s.PutIfAbsent(t.Context(), commitKey(7), nil); err == nil || !strings.Contains(err.Error(), commitFile(6)) {
		t.Errorf("a commit without the one before it: got %v, want an error that names that", err)
	}
}

func TestLogStore_DynamoRefuses_AsStoresDo(t *testing.T) {
	for _, c := range []struct {
		status int
		kind   string
		want   error
	}{
		{http.StatusBadRequest, "AccessDeniedException", store.ErrPermission},
		{http.StatusBadRequest, "ThrottlingException", store.ErrUnavailable},
		{http.StatusInternalServerError, "InternalServerError", store.ErrUnavailable}, // the look before the claim
	} {
		w := newWorld(t)
		s := w.open(t, "p", 1, func(out http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
			if r.Header.Get("X-Amz-Target") != "" {
				refuseDynamo(out, c.status, c.kind)
				return
			}
			server.ServeHTTP(out, r)
		})
		err := s.PutIfAbsent(t.Context(), commitKey(0), nil)
		if !errors.Is(err, c.want) || errors.Is(err, store.ErrAmbiguous) {
			t.Errorf("%s: got %v, want %v", c.kind, err, c.want)
		}
	}
}

func TestOpen_BadLogStore_AllFaultsNamed(t *testing.T) {
	for url, wants := range map[string][]string{
		"dynamo://t":                        {"dynamodb://delta_log"},
		"dynamodb://x?scheme=gs&colour=a":   {`"x"`, "scheme", "colour"},
		"dynamodb://t_1?endpoint=localhost": {"endpoint"},
		"dynamodb://t_1?region=a/b":         {"region"},
	} {
		_, err := s3.Open(t.Context(), bucket, "", &s3.Options{Region: "r", LogStore: url})
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want it to name %q", url, err, want)
			}
		}
	}
	t.Setenv("FRESHET_LOG_STORE", "nonsense")
	if _, err := s3.Open(t.Context(), bucket, "", &s3.Options{Region: "r"}); err == nil {
		t.Error("a log store in the environment: got no error")
	}
}
