package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/s3"
	"github.com/freshet-io/freshet/store/storetest"
)

func TestStore_Faults_PromisesKept(t *testing.T) {
	storetest.RunFaults(t, &service)
}

// service is S3 to the suite of faults.
var service = storetest.Service{
	Server: fake,
	Open: func(t *testing.T, url string, attempts int, timeout time.Duration) store.Store {
		return openWith(t, "", &s3.Options{Endpoint: url, Attempts: attempts, Timeout: timeout})
	},
	Asks:      asks,
	Refuse:    refuse,
	PartBytes: 5 << 20,
	Drops:     true,
	Lost:      []storetest.Reply{{Status: http.StatusBadRequest, Code: "RequestTimeout"}},
	Later: []storetest.Reply{
		{Status: http.StatusConflict, Code: "ConditionalRequestConflict"},
		{Status: http.StatusTooManyRequests, Code: "TooManyRequests"},
	},
	Denied: storetest.Reply{Status: http.StatusForbidden, Code: "AccessDenied"},
	Refusals: []storetest.Refusal{
		storetest.Refused(http.StatusForbidden, "AccessDenied", store.ErrPermission, ""),
		storetest.Refused(http.StatusBadRequest, "ExpiredToken", store.ErrPermission, ""),
		storetest.Refused(http.StatusPreconditionFailed, "PreconditionFailed", store.ErrExists, ""),
		storetest.Refused(http.StatusInsufficientStorage, "XMinioStorageFull", store.ErrFull, ""),
		storetest.Refused(http.StatusNotFound, "NoSuchBucket", nil, `bucket "lake" does not exist`),
		storetest.Refused(http.StatusMovedPermanently, "PermanentRedirect", nil, "AWS_REGION"),
		storetest.Refused(http.StatusNotImplemented, "NotImplemented", nil, "If-None-Match"),
		storetest.Refused(http.StatusBadRequest, "InvalidArgument", nil, "InvalidArgument"),
	},
	Unordered: `<ListBucketResult><KeyCount>2</KeyCount><IsTruncated>false</IsTruncated>` +
		`<Contents><Key>b</Key></Contents><Contents><Key>a</Key></Contents></ListBucketResult>`,
}

// fake is an S3 server in memory with the bucket.
func fake(t *testing.T) http.Handler {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	return gofakes3.New(backend).Server()
}

func asks(r *http.Request) (key string, step storetest.Step) {
	key = strings.TrimPrefix(r.URL.Path, "/"+bucket+"/")
	parts := r.URL.Query().Has("uploadId")
	switch {
	case r.Method == http.MethodPost && r.URL.Query().Has("uploads"):
		return key, storetest.StepBegin
	case r.Method == http.MethodPut && parts:
		return key, storetest.StepPart
	case r.Method == http.MethodPost && parts:
		return key, storetest.StepEnd
	case r.Method == http.MethodDelete && parts:
		return key, storetest.StepDrop
	case r.Method == http.MethodPut:
		return key, storetest.StepPut
	}
	return key, storetest.StepOther
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
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

func TestUpload_ManyAtOnce_FourPartsOnTheirWayAndOneGatheredEach(t *testing.T) {
	const uploads, size = 12, 7 << 20
	var mu sync.Mutex
	var once sync.Once
	now, most := 0, 0
	full := make(chan struct{})
	s, _ := service.Spoiled(t, func(w http.ResponseWriter, r *http.Request, _ int, server http.Handler) {
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
		answer := storetest.Carry(r, server)
		mu.Lock()
		now--
		mu.Unlock()
		storetest.Pass(w, answer)
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
