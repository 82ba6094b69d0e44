package azure_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/azure"
	"github.com/freshet-io/freshet/store/storetest"
)

// keys that Azure would make others of.
var unkept = &storetest.Options{Refuses: func(key string) bool {
	return strings.Contains(key, `\`) || strings.HasSuffix(key, ".")
}}

func TestStore_FakeServer_ConformanceHolds(t *testing.T) {
	url := fakeServer(t, nil)
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, container, uuid.NewString(), &azure.Options{Endpoint: url})
	}, unkept)
}

func TestStore_RealServer_ConformanceHolds(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return openReal(t) }, unkept)
}

func TestStore_Faults_PromisesKept(t *testing.T) {
	storetest.RunFaults(t, &service)
}

// fakeServer is the URL of a new fake behind a handler of the test's own.
func fakeServer(t *testing.T, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	var handler http.Handler = newFake()
	if wrap != nil {
		handler = wrap(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// openReal opens a new prefix on the server that the environment names, and empties it after the test.
func openReal(t *testing.T) *azure.Store {
	t.Helper()
	name := os.Getenv("AZURE_CONTAINER")
	if name == "" {
		t.Skip("AZURE_CONTAINER is not set: name a container there, and its account in AZURE_STORAGE_ACCOUNT, " +
			"AZURE_STORAGE_KEY and, for an emulator, AZURE_BLOB_ENDPOINT")
	}
	s, err := azure.Open(name, "test/"+uuid.NewString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	storetest.EmptyAfter(t, s)
	return s
}

func TestStore_ContainerMissing_ErrorSaysSo(t *testing.T) {
	url := fakeServer(t, nil)
	wantNoContainer(t, open(t, "none", "", &azure.Options{Endpoint: url}))
}

func TestStore_RealServerContainerMissing_ErrorSaysSo(t *testing.T) {
	if os.Getenv("AZURE_CONTAINER") == "" {
		t.Skip("AZURE_CONTAINER is not set: see TestStore_RealServer_ConformanceHolds")
	}
	s, err := azure.Open("nosuchcontainer", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	wantNoContainer(t, s)
}

func wantNoContainer(t *testing.T, s *azure.Store) {
	t.Helper()
	ctx := t.Context()
	_, getErr := s.Get(ctx, "k")
	var listErr error
	for _, listErr = range s.List(ctx, "", "") {
		break
	}
	for call, err := range map[string]error{"Get": getErr, "List": listErr, "Put": s.Put(ctx, "k", nil),
		"PutIfAbsent": s.PutIfAbsent(ctx, "k", nil), "Delete": s.Delete(ctx, "k")} {
		if err == nil || errors.Is(err, store.ErrNotFound) || store.Retryable(err) ||
			!strings.Contains(err.Error(), "does not exist") {
			t.Errorf("%s: got %v, want that the container does not exist", call, err)
		}
	}
}

func TestOpen_BadOptions_AllFaultsNamed(t *testing.T) {
	_, err := azure.Open("lake", "", &azure.Options{Account: "A!", Key: "%", Endpoint: "ftp://host", Timeout: -1,
		Attempts: -1})
	for _, want := range []string{"A!", "base64", "ftp://host", "timeout", "attempts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %q", err, want)
		}
	}
}

func TestOpen_BadContainerOrPrefix_Error(t *testing.T) {
	for _, c := range [][2]string{{"", ""}, {"a/b", ""}, {"a", "b/../c"}, {"a", "b//c"}, {"a", `b\c`}} {
		if _, err := azure.Open(c[0], c[1], &azure.Options{Account: account}); err == nil {
			t.Errorf("container %q, prefix %q: got no error", c[0], c[1])
		}
	}
}

func TestOpen_NoAccount_ErrorNamesRemedy(t *testing.T) {
	for _, name := range []string{"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"} {
		t.Setenv(name, "")
	}
	if _, err := azure.Open("lake", "", nil); err == nil || !strings.Contains(err.Error(), "AZURE_STORAGE_ACCOUNT") {
		t.Errorf("got %v, want an error that names AZURE_STORAGE_ACCOUNT", err)
	}
}

func TestOpen_AccountAsHost_URLNamesIt(t *testing.T) {
	for host, want := range map[string]string{
		"":                               "az://lake/a/b",
		"acme":                           "az://lake/a/b",
		"acme.dfs.core.windows.net":      "abfss://lake@acme.dfs.core.windows.net/a/b",
		"acme.dfs.core.chinacloudapi.cn": "abfss://lake@acme.dfs.core.chinacloudapi.cn/a/b",
	} {
		t.Setenv("AZURE_STORAGE_ACCOUNT", account)
		s, err := azure.Open("lake", "/a/b/", &azure.Options{Account: host, Key: "c2VjcmV0"})
		if err != nil {
			t.Errorf("account %q: %v", host, err)
			continue
		}
		if got := s.URL(); got != want {
			t.Errorf("account %q: got the URL %q, want %q", host, got, want)
		}
	}
	for _, host := range []string{
		"acme.blob.core.windows.net", "acme.dfs.", "acme.dfs.a@b.c", "acme.dfs.a/b.c", ".dfs.a.b",
	} {
		if s, err := azure.Open("lake", "", &azure.Options{Account: host}); err == nil {
			t.Errorf("account %q: got a store at %q, want an error", host, s.URL())
		}
	}
}

// TestStore_Credentials_OnTheWire shows a request by the key and one by a shared access signature.
func TestStore_Credentials_OnTheWire(t *testing.T) {
	var seen *http.Request
	url := fakeServer(t, func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r
			inner.ServeHTTP(w, r)
		})
	})
	if err := open(t, container, "", &azure.Options{Endpoint: url}).Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	signature, ok := strings.CutPrefix(seen.Header.Get("Authorization"), "SharedKey acme:")
	if mac, err := base64.StdEncoding.DecodeString(signature); !ok || err != nil || len(mac) != 32 {
		t.Errorf("got the authorization %q, want one by the key", seen.Header.Get("Authorization"))
	}

	s, err := azure.Open(container, "", &azure.Options{Account: account, Endpoint: url + "/" + account,
		SAS: "?sv=2021-12-02&sig=a%2Bb%3D"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := seen.URL.Query(); got.Get("sig") != "a+b=" || got.Get("comp") != "list" ||
		seen.Header.Get("Authorization") != "" {
		t.Errorf("got the query %q and the authorization %q, want the signature in the query alone", seen.URL.RawQuery,
			seen.Header.Get("Authorization"))
	}
}

func TestList_Folders_PassedOver(t *testing.T) {
	f := newFake()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.blobs["p/folder"] = &blob{header: http.Header{"X-Ms-Meta-Hdi_isfolder": {"true"}}}
	s := open(t, container, "p", &azure.Options{Endpoint: server.URL})
	if _, err := s.Get(t.Context(), "folder"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get: got %v, want ErrNotFound", err)
	}
	if _, err := s.Stat(t.Context(), "folder"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Stat: got %v, want ErrNotFound", err)
	}
	for o, err := range s.List(t.Context(), "", "") {
		t.Errorf("List: got %q, %v, want nothing", o.Key, err)
	}
}
