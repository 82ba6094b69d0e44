package gcs_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/gcs"
	"github.com/freshet-io/freshet/store/storetest"
)

func TestStore_FakeServer_ConformanceHolds(t *testing.T) {
	server := fakeServer(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, uuid.NewString(), &gcs.Options{Endpoint: server.URL})
	}, nil)
}

func TestStore_RealServer_ConformanceHolds(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return openReal(t) }, nil)
}

// openReal opens a new prefix on the server that the environment names, and empties it after the test.
func openReal(t *testing.T) *gcs.Store {
	t.Helper()
	name := os.Getenv("GCS_BUCKET")
	if name == "" {
		t.Skip("GCS_BUCKET is not set: name a bucket there, and an emulator in STORAGE_EMULATOR_HOST")
	}
	s, err := gcs.Open(name, "test/"+uuid.NewString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	storetest.EmptyAfter(t, s)
	return s
}

func TestOpen_BadOptions_AllFaultsNamed(t *testing.T) {
	_, err := gcs.Open(bucket, "", &gcs.Options{Endpoint: "ftp://host", Timeout: -1, Attempts: -1})
	for _, want := range []string{"ftp://host", "timeout", "attempts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %q", err, want)
		}
	}
}

func TestOpen_BadBucketOrPrefix_Error(t *testing.T) {
	for _, c := range [][2]string{{"", ""}, {"a/b", ""}, {"a", "b/../c"}, {"a", "b//c"}} {
		if _, err := gcs.Open(c[0], c[1], nil); err == nil {
			t.Errorf("bucket %q, prefix %q: got no error", c[0], c[1])
		}
	}
}

func TestOpen_EmulatorInEnvironment_Used(t *testing.T) {
	server := fakeServer(t)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL, "http://"))
	s := open(t, "/p/", nil)
	if err := s.PutIfAbsent(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
	if got, want := s.URL(), "gs://lake/p"; got != want {
		t.Errorf("URL: got %q, want %q", got, want)
	}
}

// TestStore_NoCredentials_ErrPermissionNamesRemedy asks Google's own server, which nothing is sent to.
func TestStore_NoCredentials_ErrPermissionNamesRemedy(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	s := open(t, "", nil)
	_, err := s.Get(t.Context(), "k")
	if !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), "GOOGLE_APPLICATION_CREDENTIALS") {
		t.Errorf("Get: got %v, want ErrPermission and the remedy", err)
	}
	if err := s.PutIfAbsent(t.Context(), "k", nil); !errors.Is(err, store.ErrPermission) {
		t.Errorf("PutIfAbsent: got %v, want ErrPermission", err)
	}
}

func TestStore_BucketMissing_ErrorSaysSo(t *testing.T) {
	server := fakeServer(t)
	s, err := gcs.Open("none", "", &gcs.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, getErr := s.Get(ctx, "k")
	var listErr error
	for _, listErr = range s.List(ctx, "", "") {
		break
	}
	up, err := s.Create(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	for call, err := range map[string]error{"Get": getErr, "List": listErr, "Put": s.Put(ctx, "k", nil),
		"PutIfAbsent": s.PutIfAbsent(ctx, "k", nil), "Delete": s.Delete(ctx, "k"), "Close": up.Close()} {
		if err == nil || errors.Is(err, store.ErrNotFound) || store.Retryable(err) ||
			!strings.Contains(err.Error(), `bucket "none" does not exist`) {
			t.Errorf("%s: got %v, want that the bucket does not exist", call, err)
		}
	}
}

func TestList_FolderMarkers_PassedOver(t *testing.T) {
	server := fakeServer(t)
	answer, err := http.Post(server.URL+"/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name=p/folder/", "", nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
	for o, err := range open(t, "p", &gcs.Options{Endpoint: server.URL}).List(t.Context(), "", "") {
		t.Errorf("got %q, %v, want nothing", o.Key, err)
	}
}
