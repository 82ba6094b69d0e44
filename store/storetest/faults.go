package storetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
)

// RunFaults checks, in one subtest a fault, that a store over HTTP keeps the promises of store.Store when requests
// and answers are lost: above all that an ambiguous put is neither hidden nor repeated.
func RunFaults(t *testing.T, s *Service) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *Service)
	}{
		{"PutIfAbsent_AnswerLost_AmbiguousSentOnce", putIfAbsentLost},
		{"PutIfAbsent_ReusedConnectionDies_SentOnce", putIfAbsentReused},
		{"PutIfAbsent_AnswerTooLate_Ambiguous", putIfAbsentLate},
		{"PutIfAbsent_CancelledWhileSent_AmbiguousAndCanceled", putIfAbsentCancelled},
		{"PutIfAbsent_ComeBackLater_SentAgain", putIfAbsentLater},
		{"PutIfAbsent_Refused_SaysWhy", putIfAbsentRefused},
		{"Writes_NobodyListens_UnavailableNotAmbiguous", nobodyListens},
		{"PutAndDelete_AnswerLost_SentAgain", putLost},
		{"Put_RefusedAfterLostAnswer_Ambiguous", putLostThenRefused},
		{"Get_BusyServer_AskedAgainThenUnavailable", getBusy},
		{"Get_BodyBreaksOff_ReadAgain", getBreaksOff},
		{"ReadRange_ServerIgnoresRanges_RightBytes", rangesIgnored},
		{"List_NotInOrder_Error", listUnordered},
		{"Upload_AnswerLost_Landed", uploadLost},
		{"Upload_EndUnknown_AmbiguousNotDropped", uploadEndUnknown},
		{"Upload_PartRefused_ErrorAndDropped", uploadPartRefused},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func putIfAbsentLost(t *testing.T, service *Service) {
	type lost struct {
		name   string
		landed bool
		spoil  Spoil
	}
	cases := []lost{
		{"connection closed after it landed", true, lostAfter},
		{"connection closed before it landed", false, lostBefore},
		{"500 after it landed", true, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
			Carry(r, server)
			service.Refuse(w, http.StatusInternalServerError, "InternalError")
		}},
		{"504 of a proxy", false, func(w http.ResponseWriter, _ *http.Request, _ int, _ http.Handler) {
			http.Error(w, "<html>Gateway Timeout</html>", http.StatusGatewayTimeout)
		}},
	}
	for _, reply := range append([]Reply{{http.StatusServiceUnavailable, "SlowDown"}}, service.Lost...) {
		refuse := func(w http.ResponseWriter, r *http.Request, _ int, _ http.Handler) { service.refuse(w, r, reply) }
		cases = append(cases, lost{reply.Code, false, refuse})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
				if nth == 1 {
					c.spoil(w, r, nth, server)
					return
				}
				server.ServeHTTP(w, r)
			})
			err := s.PutIfAbsent(t.Context(), "hit", []byte("data"))
			if !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v, want ErrAmbiguous", err)
			}
			wantSteps(t, wire, StepPut)
			if _, err := s.Stat(t.Context(), "hit"); c.landed != (err == nil) {
				t.Errorf("Stat afterwards: got %v, want landed %v", err, c.landed)
			}
		})
	}
}

func wantSteps(t *testing.T, wire *Wire, want ...Step) {
	t.Helper()
	if got := wire.Steps(); !slices.Equal(got, want) {
		t.Errorf("got the requests %q, want %q", got, want)
	}
}

// putIfAbsentReused lets the server close the connection that the next put will reuse, after it has read the
// request: net/http must not repeat it.
func putIfAbsentReused(t *testing.T, service *Service) {
	s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 1 {
			server.ServeHTTP(w, r)
			return
		}
		lostAfter(w, r, nth, server)
	})
	if err := s.PutIfAbsent(t.Context(), "hit/1", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "hit/2", nil); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	wantSteps(t, wire, StepPut, StepPut)
}

func putIfAbsentLate(t *testing.T, service *Service) {
	release := make(chan struct{})
	s, wire := service.spoiled(t, func(_ http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		Carry(r, server)
		<-release
	}, time.Second)
	t.Cleanup(func() { close(release) }) // before the server is closed, which waits for it
	if err := s.PutIfAbsent(t.Context(), "hit", nil); !errors.Is(err, store.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	wantSteps(t, wire, StepPut)
}

func putIfAbsentCancelled(t *testing.T, service *Service) {
	ctx, cancel := context.WithCancel(t.Context())
	s, _ := service.Spoiled(t, func(_ http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		Carry(r, server)
		cancel()
		<-r.Context().Done()
	})
	err := s.PutIfAbsent(ctx, "hit", []byte("data"))
	if !errors.Is(err, store.ErrAmbiguous) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrAmbiguous and context.Canceled", err)
	}
}

// putIfAbsentLater has a server that says twice, and then one that always says, that nothing was stored.
func putIfAbsentLater(t *testing.T, service *Service) {
	for _, reply := range service.Later {
		for _, busy := range []int{2, 3} {
			s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
				if nth <= busy {
					service.refuse(w, r, reply)
					return
				}
				server.ServeHTTP(w, r)
			})
			err := s.PutIfAbsent(t.Context(), "hit", []byte("data"))
			switch {
			case busy < 3 && err != nil:
				t.Errorf("%d %s, twice: got %v, want it stored", reply.Status, reply.Code, err)
			case busy == 3 && (!errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAmbiguous)):
				t.Errorf("%d %s: got %v, want ErrUnavailable alone", reply.Status, reply.Code, err)
			}
			wantSteps(t, wire, StepPut, StepPut, StepPut)
		}
	}
}

func putIfAbsentRefused(t *testing.T, service *Service) {
	for _, c := range service.Refusals {
		t.Run(c.Code, func(t *testing.T) {
			s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, _ http.Handler) {
				service.refuse(w, r, c.Reply)
			})
			err := s.PutIfAbsent(t.Context(), "hit", []byte("data"))
			for _, is := range []error{
				store.ErrUnavailable, store.ErrPermission, store.ErrExists, store.ErrFull, store.ErrNotFound,
				store.ErrAmbiguous,
			} {
				if errors.Is(err, is) != errors.Is(c.Is, is) {
					t.Errorf("got %v, want the sentinel %v alone", err, c.Is)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.Text) {
				t.Errorf("got %v, want %q in it", err, c.Text)
			}
			wantSteps(t, wire, StepPut)
		})
	}
}

// nobodyListens: a refused connection is certain to have written nothing.
func nobodyListens(t *testing.T, service *Service) {
	server := httptest.NewServer(nil)
	server.Close()
	s := service.Open(t, server.URL, 2, 0)
	for call, err := range map[string]error{
		"Put": s.Put(t.Context(), "k", nil), "PutIfAbsent": s.PutIfAbsent(t.Context(), "k", nil),
		"Delete": s.Delete(t.Context(), "k"),
	} {
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAmbiguous) {
			t.Errorf("%s: got %v, want ErrUnavailable alone", call, err)
		}
	}
}

func putLost(t *testing.T, service *Service) {
	s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
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
	wantSteps(t, wire, StepPut, StepPut, StepOther, StepOther)
}

// putLostThenRefused has a first attempt that landed and a second one that is refused.
func putLostThenRefused(t *testing.T, service *Service) {
	s, _ := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth == 1 {
			lostAfter(w, r, nth, server)
			return
		}
		service.refuse(w, r, service.Denied)
	})
	err := s.Put(t.Context(), "hit", []byte("data"))
	if !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrPermission) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
}

func getBusy(t *testing.T, service *Service) {
	failures := 1
	s, _ := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth > 1 && nth <= 1+failures {
			service.refuse(w, r, Reply{http.StatusServiceUnavailable, "SlowDown"})
			return
		}
		server.ServeHTTP(w, r)
	})
	put(t, s, "hit", "data")
	wantObject(t, s, "hit", "data")
	failures = 1 << 30
	if _, err := s.Get(t.Context(), "hit"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func getBreaksOff(t *testing.T, service *Service) {
	s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if nth != 2 {
			server.ServeHTTP(w, r)
			return
		}
		answer := Carry(r, server)
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write(answer.Body.Bytes()[:5])
	})
	put(t, s, "hit", "0123456789")
	wantObject(t, s, "hit", "0123456789")
	wantSteps(t, wire, StepPut, StepOther, StepOther)
}

func rangesIgnored(t *testing.T, service *Service) {
	s, _ := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		r.Header.Del("Range")
		server.ServeHTTP(w, r)
	})
	put(t, s, "hit", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{2, 3, "234"}, {8, 9, "89"}, {-3, 0, "789"}} {
		if got, err := s.ReadRange(t.Context(), "hit", c.offset, c.length); err != nil || string(got) != c.want {
			t.Errorf("ReadRange(%d, %d): got %q, %v, want %q", c.offset, c.length, got, err, c.want)
		}
	}
	if _, err := s.ReadRange(t.Context(), "hit", 10, 1); !errors.Is(err, io.EOF) {
		t.Errorf("beyond the end: got %v, want io.EOF", err)
	}
}

func listUnordered(t *testing.T, service *Service) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, service.Unordered)
	}))
	defer server.Close()
	keys, err := collect(service.Open(t, server.URL, 1, 0).List(t.Context(), "", ""))
	if err == nil || !strings.Contains(err.Error(), "order") || !slices.Equal(keys, []string{"b"}) {
		t.Errorf("got %q, %v, want b and an error about the order", keys, err)
	}
}
