package storetest

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/store"
)

// upload writes an object of two parts and a bit, and returns what it wrote.
func (s *Service) upload(t *testing.T, st store.Store) ([]byte, error) {
	t.Helper()
	data := random(4, 2*s.PartBytes+4096)
	up, err := st.Create(t.Context(), "hit")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Abort()
	if _, err := up.Write(data); err != nil {
		return data, err
	}
	return data, up.Close()
}

// uploadLost loses each request of an upload in turn, before and after it was carried out.
func uploadLost(t *testing.T, service *Service) {
	whole, unspoiled := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		server.ServeHTTP(w, r)
	})
	if _, err := service.upload(t, whole); err != nil {
		t.Fatal(err)
	}
	for nth := 1; nth <= len(unspoiled.Steps()); nth++ {
		for name, lose := range map[string]Spoil{"before": lostBefore, "after": lostAfter} {
			s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, n int, server http.Handler) {
				if n == nth {
					lose(w, r, n, server)
					return
				}
				server.ServeHTTP(w, r)
			})
			want, err := service.upload(t, s)
			if err != nil {
				t.Errorf("request %d lost %s it was carried out: %v", nth, name, err)
			}
			if got, err := s.Get(t.Context(), "hit"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("request %d lost %s: got %d bytes, %v; requests %q", nth, name, len(got), err, wire.Steps())
			}
		}
	}
}

// uploadEndUnknown loses all from the request on that makes the object: it may have landed, so it must stay.
func uploadEndUnknown(t *testing.T, service *Service) {
	var wire *Wire
	s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
		if slices.Contains(wire.Steps(), StepEnd) {
			HangUp(w)
			return
		}
		server.ServeHTTP(w, r)
	})
	if _, err := service.upload(t, s); !errors.Is(err, store.ErrAmbiguous) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if got := wire.Steps(); slices.Contains(got, StepDrop) {
		t.Errorf("got the requests %q, want nothing dropped that may have landed", got)
	}
}

func uploadPartRefused(t *testing.T, service *Service) {
	var wire *Wire
	s, wire := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
		if _, step := service.Asks(r); step == StepPart && slices.Contains(wire.Steps()[:nth-1], StepPart) {
			service.refuse(w, r, service.Denied)
			return
		}
		server.ServeHTTP(w, r)
	})
	if _, err := service.upload(t, s); !errors.Is(err, store.ErrPermission) {
		t.Errorf("got %v, want ErrPermission", err)
	}
	if got := wire.Steps(); slices.Contains(got, StepDrop) != service.Drops {
		t.Errorf("got the requests %q, want the parts dropped: %v", got, service.Drops)
	}
	if _, err := s.Stat(t.Context(), "hit"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat afterwards: got %v, want ErrNotFound", err)
	}
}
