package s3_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/s3"
	"github.com/freshet-io/freshet/store/storetest"
)

const bucket = "lake"

func TestStore_FakeServer_ConformanceHolds(t *testing.T) {
	server := fakeServer(t, nil)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, server, uuid.NewString()) }, nil)
}

func TestStore_RealServer_ConformanceHolds(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return openReal(t) }, nil)
}

// openReal opens a new prefix on the server that the environment names, and empties it after the test.
func openReal(t *testing.T) *s3.Store {
	t.Helper()
	name := os.Getenv("S3_BUCKET")
	if name == "" {
		t.Skip("S3_BUCKET is not set: name a bucket there, and its server in AWS_ENDPOINT_URL, " +
			"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION")
	}
	s, err := s3.Open(t.Context(), name, "test/"+uuid.NewString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	storetest.EmptyAfter(t, s)
	return s
}

func TestOpen_BadOptions_AllFaultsNamed(t *testing.T) {
	_, err := s3.Open(t.Context(), bucket, "", &s3.Options{
		Endpoint: "localhost:9000", AccessKeyID: "id", Timeout: -1,
	})
	for _, want := range []string{"localhost:9000", "secret access key", "timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %q", err, want)
		}
	}
}

func TestOpen_BadBucketOrPrefix_Error(t *testing.T) {
	for _, c := range [][2]string{{"", ""}, {"a/b", ""}, {"a", "b/../c"}, {"a", "b//c"}} {
		if _, err := s3.Open(t.Context(), c[0], c[1], &s3.Options{Region: "r"}); err == nil {
			t.Errorf("bucket %q, prefix %q: got no error", c[0], c[1])
		}
	}
}

func TestOpen_NoRegion_ErrorNamesRemedy(t *testing.T) {
	clearEnvironment(t)
	_, err := s3.Open(t.Context(), bucket, "", nil)
	if err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("got %v, want an error that names AWS_REGION", err)
	}
}

func TestOpen_EndpointInEnvironment_Used(t *testing.T) {
	server := fakeServer(t, nil)
	clearEnvironment(t)
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s, err := s3.Open(t.Context(), bucket, "/p/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
	if got, want := s.URL(), "s3://lake/p"; got != want {
		t.Errorf("URL: got %q, want %q", got, want)
	}
}

func TestStore_NoCredentials_ErrPermissionNamesRemedy(t *testing.T) {
	server := fakeServer(t, nil)
	clearEnvironment(t)
	s, err := s3.Open(t.Context(), bucket, "", &s3.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), "k")
	if !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("Get: got %v, want ErrPermission and the remedy", err)
	}
	if err := s.PutIfAbsent(t.Context(), "k", nil); !errors.Is(err, store.ErrPermission) {
		t.Errorf("PutIfAbsent: got %v, want ErrPermission", err)
	}
}

// TestStore_TwoPrefixes_ShareNothing has one prefix that begins like the other.
func TestStore_TwoPrefixes_ShareNothing(t *testing.T) {
	server := fakeServer(t, nil)
	for _, prefix := range []string{"a", "ab", ""} {
		s := open(t, server, prefix)
		if err := s.Put(t.Context(), "x", []byte(prefix)); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]int{"a": 1, "ab": 1, "": 3} {
		found := 0
		for _, err := range open(t, server, prefix).List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			found++
		}
		if found != want {
			t.Errorf("prefix %q: got %d objects, want %d", prefix, found, want)
		}
	}
}

func TestList_FolderMarkers_PassedOver(t *testing.T) {
	server := fakeServer(t, nil)
	request, err := http.NewRequest(http.MethodPut, server.URL+"/"+bucket+"/p/folder/", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
	for o, err := range open(t, server, "p").List(t.Context(), "", "") {
		t.Errorf("got %q, %v, want nothing", o.Key, err)
	}
}

// fakeServer is the fake behind a handler of the test's own.
func fakeServer(t *testing.T, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	handler := fake(t)
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func open(t *testing.T, server *httptest.Server, prefix string) *s3.Store {
	t.Helper()
	return openWith(t, prefix, &s3.Options{Endpoint: server.URL})
}

func openWith(t *testing.T, prefix string, opts *s3.Options) *s3.Store {
	t.Helper()
	opts.Region, opts.AccessKeyID, opts.SecretAccessKey = "us-east-1", "id", "secret"
	s, err := s3.Open(t.Context(), bucket, prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clearEnvironment takes away all that the SDK might find on this machine.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE",
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CA_BUNDLE",
	} {
		t.Setenv(name, "")
	}
	none := t.TempDir() + "/none"
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}
