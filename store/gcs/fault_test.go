package gcs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/gcs"
)

func TestPutIfAbsent_AnswerLost_AmbiguousSentOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		landed bool
		spoil  spoil
	}{
		{"connection closed after it landed", true, lostAfter},
		{"connection closed before it landed", false, lostBefore},
		{"500 after it landed", true, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
			handle(r, server)
			refuse(w, http.StatusInternalServerError, "backendError", "as the test wants")
		}},
		{"503 before it landed", false, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			refuse(w, http.StatusServiceUnavailable, "backendError", "as the test wants")
		}},
		{"408", false, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			refuse(w, http.StatusRequestTimeout, "uploadBrokenConnection", "as the test wants")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
				if r.Method == http.MethodPost {
					c.spoil(w, r, nth, server)
					return
				}
				server.ServeHTTP(w, r)
			})
			err := s.PutIfAbsent(t.Context(), "hit", []byte("data"))
			if !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v, want ErrAmbiguous", err)
			}
			if got, want := wire.requests(), []string{"POST"}; !slices.Equal(got, want) {
				t.Errorf("got requests %q, want one POST", got)
			}
			if _, err := s.Stat(t.Context(), "hit"); c.landed != (err == nil) {
				t.Errorf("Stat afterwards: got %v, want landed %v", err, c.landed)
			}
		})
	}
}

func lostAfter(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
	handle(r, server)
	hangUp(w)
}

func lostBefore(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) { hangUp(w) }

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
	if err := s.PutIfAbsent(t.Context(), "hit", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "hit", nil); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if got := wire.requests(); len(got) != 2 {
		t.Errorf("got requests %q, want two", got)
	}
}

func TestPutIfAbsent_CancelledWhileSent_AmbiguousAndCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, _ := spoiled(t, func(_ http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		handle(r, server)
		cancel()
		<-r.Context().Done()
	})
	err := s.PutIfAbsent(ctx, "hit", []byte("data"))
	if !errors.Is(err, store.ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrAmbiguous and context.Canceled", err)
	}
}

func TestPutIfAbsent_SlowedDown_SentAgainAndStored(t *testing.T) {
	for _, c := range []struct {
		status int
		reason string
	}{{http.StatusTooManyRequests, "rateLimitExceeded"}, {http.StatusForbidden, "rateLimitExceeded"}} {
		s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
			if nth == 1 {
				refuse(w, c.status, c.reason, "slow down")
				return
			}
			server.ServeHTTP(w, r)
		})
		if err := s.PutIfAbsent(t.Context(), "hit", []byte("data")); err != nil {
			t.Errorf("%d: got %v, want it stored", c.status, err)
		}
		if got := wire.requests(); len(got) != 2 {
			t.Errorf("%d: got requests %q, want two", c.status, got)
		}
	}
}

func TestPutIfAbsent_Refusals_SayWhy(t *testing.T) {
	for _, c := range []struct {
		status int
		reason string
		want   error
	}{
		{http.StatusForbidden, "forbidden", store.ErrPermission},
		{http.StatusUnauthorized, "authError", store.ErrPermission},
		{http.StatusForbidden, "quotaExceeded", store.ErrFull},
	} {
		s, wire := spoiled(t, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			refuse(w, c.status, c.reason, "as the test wants")
		})
		err := s.PutIfAbsent(t.Context(), "hit", nil)
		if !errors.Is(err, c.want) || errors.Is(err, store.ErrAmbiguous) {
			t.Errorf("%d %s: got %v, want %v", c.status, c.reason, err, c.want)
		}
		if got := wire.requests(); len(got) != 1 {
			t.Errorf("%d %s: got requests %q, want one", c.status, c.reason, got)
		}
	}
}

func TestWrites_NobodyListens_UnavailableNotAmbiguous(t *testing.T) {
	server := fakeServer(t, nil)
	server.Close()
	s := open(t, "", &gcs.Options{Endpoint: server.URL, Attempts: 2})
	for call, err := range map[string]error{
		"Put": s.Put(t.Context(), "k", nil), "PutIfAbsent": s.PutIfAbsent(t.Context(), "k", nil),
		"Delete": s.Delete(t.Context(), "k"),
	} {
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAmbiguous) {
			t.Errorf("%s: got %v, want ErrUnavailable", call, err)
		}
	}
}

func TestPutAndDelete_AnswerLost_SentAgain(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth%2 == 1 {
			lostAfter(w, r, nth, server)
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := s.Put(t.Context(), "hit", []byte("data")); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "hit"); err != nil {
		t.Error(err)
	}
	if got, want := wire.requests(), []string{"POST", "POST", "DELETE", "DELETE"}; !slices.Equal(got, want) {
		t.Errorf("got requests %q, want %q", got, want)
	}
}

// TestPut_RefusedAfterLostAnswer_Ambiguous has a first attempt that landed and a second one that is refused.
func TestPut_RefusedAfterLostAnswer_Ambiguous(t *testing.T) {
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 1 {
			lostAfter(w, r, nth, server)
			return
		}
		refuse(w, http.StatusForbidden, "forbidden", "as the test wants")
	})
	err := s.Put(t.Context(), "hit", []byte("data"))
	if !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrPermission) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

func TestGet_BodyBreaksOff_ReadAgain(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if r.Method != http.MethodGet || nth > 2 {
			server.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "01234")
	})
	if err := s.Put(t.Context(), "hit", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "hit"); err != nil || string(got) != "0123456789" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := wire.requests(); len(got) != 3 {
		t.Errorf("got requests %q, want three", got)
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
	}{{2, 3, "234"}, {8, 9, "89"}, {-2, 0, "89"}} {
		if got, err := s.ReadRange(t.Context(), "hit", c.offset, c.length); err != nil || string(got) != c.want {
			t.Errorf("ReadRange(%d, %d): got %q, %v, want %q", c.offset, c.length, got, err, c.want)
		}
	}
	if _, err := s.ReadRange(t.Context(), "hit", 10, 1); !errors.Is(err, io.EOF) {
		t.Errorf("beyond the end: got %v, want io.EOF", err)
	}
}

// large is an object of two parts and a bit.
var large = bytes.Repeat([]byte("0123456789abcdef"), (2*8<<20+4096)/16)

func upload(t *testing.T, s *gcs.Store) error {
	t.Helper()
	up, err := s.Create(t.Context(), "hit")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Abort()
	if _, err := up.Write(large); err != nil {
		return err
	}
	return up.Close()
}

// TestUpload_AnswerLost_Resumed loses each request of an upload in turn, before and after it was carried out.
func TestUpload_AnswerLost_Resumed(t *testing.T) {
	for nth := 1; nth <= 4; nth++ {
		for name, lose := range map[string]spoil{"before": lostBefore, "after": lostAfter} {
			s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, n int, server http.Handler) {
				if n == nth {
					lose(w, r, n, server)
					return
				}
				server.ServeHTTP(w, r)
			})
			if err := upload(t, s); err != nil {
				t.Errorf("request %d lost %s it was carried out: %v", nth, name, err)
			}
			if got, err := s.Get(t.Context(), "hit"); err != nil || !bytes.Equal(got, large) {
				t.Errorf("request %d lost %s: got %d bytes, %v; requests %q", nth, name, len(got), err, wire.requests())
			}
		}
	}
}

func TestUpload_EndUnknown_Ambiguous(t *testing.T) {
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth < 4 {
			server.ServeHTTP(w, r)
			return
		}
		lostAfter(w, r, nth, server)
	})
	if err := upload(t, s); !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

func TestUpload_PartRefused_ErrorAndAborted(t *testing.T) {
	s, wire := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 3 {
			refuse(w, http.StatusForbidden, "forbidden", "as the test wants")
			return
		}
		server.ServeHTTP(w, r)
	})
	if err := upload(t, s); !errors.Is(err, store.ErrPermission) {
		t.Errorf("got %v, want ErrPermission", err)
	}
	if got := wire.requests(); got[len(got)-1] != "DELETE" {
		t.Errorf("got requests %q, want a DELETE of the session at the end", got)
	}
	if _, err := s.Stat(t.Context(), "hit"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat afterwards: got %v, want ErrNotFound", err)
	}
}

// TestUpload_SessionTakesPartOnly_RestSent lets the server keep less than it was sent, as Google's may.
func TestUpload_SessionTakesPartOnly_RestSent(t *testing.T) {
	s, _ := spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 2 {
			half, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
			if err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body = io.NopCloser(bytes.NewReader(half))
		}
		server.ServeHTTP(w, r)
	})
	if err := upload(t, s); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "hit"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(large))
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
	s := open(t, "", &gcs.Options{Endpoint: server.URL, Timeout: 500 * time.Millisecond})
	if err := s.PutIfAbsent(t.Context(), "hit", nil); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if got := h.requests(); len(got) != 1 {
		t.Errorf("got requests %q, want one", got)
	}
}
