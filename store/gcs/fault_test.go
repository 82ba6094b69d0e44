package gcs_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/gcs"
	"github.com/freshet-io/freshet/store/storetest"
)

func TestStore_Faults_PromisesKept(t *testing.T) {
	storetest.RunFaults(t, &service)
}

// service is Google Cloud Storage to the suite of faults.
var service = storetest.Service{
	Server: func(*testing.T) http.Handler { return newFake() },
	Open: func(t *testing.T, url string, attempts int, timeout time.Duration) store.Store {
		return open(t, "", &gcs.Options{Endpoint: url, Attempts: attempts, Timeout: timeout})
	},
	Asks:      asks,
	Refuse:    func(w http.ResponseWriter, status int, code string) { refuse(w, status, code, "as the test wants") },
	PartBytes: 8 << 20,
	Drops:     true,
	Lost:      []storetest.Reply{{Status: http.StatusRequestTimeout, Code: "uploadBrokenConnection"}},
	Later: []storetest.Reply{
		{Status: http.StatusTooManyRequests, Code: "rateLimitExceeded"},
		{Status: http.StatusForbidden, Code: "rateLimitExceeded"},
	},
	Denied: storetest.Reply{Status: http.StatusForbidden, Code: "forbidden"},
	Refusals: []storetest.Refusal{
		storetest.Refused(http.StatusForbidden, "forbidden", store.ErrPermission, "storage.objects.create"),
		storetest.Refused(http.StatusUnauthorized, "authError", store.ErrPermission, "GOOGLE_APPLICATION_CREDENTIALS"),
		storetest.Refused(http.StatusForbidden, "quotaExceeded", store.ErrFull, ""),
		storetest.Refused(http.StatusPreconditionFailed, "conditionNotMet", store.ErrExists, ""),
		storetest.Refused(http.StatusNotFound, "notFound", nil, `bucket "lake" does not exist`),
		storetest.Refused(http.StatusBadRequest, "invalid", nil, "invalid"),
	},
	Unordered: `{"items": [{"name": "b", "size": "1", "updated": "2026-01-02T03:04:05Z"},` +
		`{"name": "a", "size": "1", "updated": "2026-01-02T03:04:05Z"}]}`,
}

func asks(r *http.Request) (key string, step storetest.Step) {
	query := r.URL.Query()
	key = query.Get("name")
	if _, name, ok := strings.Cut(r.URL.EscapedPath(), "/o/"); ok {
		key, _ = url.PathUnescape(name)
	}
	span, total, _ := strings.Cut(r.Header.Get("Content-Range"), "/")
	switch {
	case query.Has("upload_id") && r.Method == http.MethodDelete:
		return key, storetest.StepDrop
	case query.Has("upload_id") && total != "*":
		return key, storetest.StepEnd
	case query.Has("upload_id") && span != "bytes *":
		return key, storetest.StepPart
	case query.Get("uploadType") == "resumable":
		return key, storetest.StepBegin
	case r.Method == http.MethodPost:
		return key, storetest.StepPut
	}
	return key, storetest.StepOther
}

// TestUpload_SessionTakesPartOnly_RestSent lets the server keep less than it was sent, as Google's may.
func TestUpload_SessionTakesPartOnly_RestSent(t *testing.T) {
	s, _ := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, nth int, server http.Handler) {
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
	large := bytes.Repeat([]byte("0123456789abcdef"), (2*8<<20+4096)/16)
	up, err := s.Create(t.Context(), "hit")
	if err != nil {
		t.Fatal(err)
	}
	_, err = up.Write(large)
	if err := errors.Join(err, up.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "hit"); err != nil || !bytes.Equal(got, large) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(large))
	}
}
