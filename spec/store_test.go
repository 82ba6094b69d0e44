package spec_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/spec"
)

func TestOpenTable_CloudURIs_StoreOfTheKind(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acme")
	for uri, want := range map[string]string{
		"s3://bucket/a/b/": "s3://bucket/a/b",
		"s3a://bucket/a":   "s3://bucket/a",
		"gs://bucket/a/b/": "gs://bucket/a/b",
		"gs://bucket":      "gs://bucket",
		"az://lake/a/b/":   "az://lake/a/b",
		"abfss://lake@acme.dfs.core.windows.net/a/": "abfss://lake@acme.dfs.core.windows.net/a",
		"abfs://lake@acme.dfs.core.windows.net":     "abfss://lake@acme.dfs.core.windows.net",
	} {
		st, err := (&spec.Project{Dir: t.TempDir()}).OpenTable(t.Context(), uri)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		if got := st.URL(); got != want {
			t.Errorf("%s: got a store at %q, want %q", uri, got, want)
		}
	}
}

func TestOpenTable_BadCloudURIs_ErrorNamesThem(t *testing.T) {
	for _, uri := range []string{"s3://", "gs:///a", "gs://bucket/a//b", "gs://a%2Fb/c", "az://", "az://lake/a//b",
		"az://lake@acme.dfs.core.windows.net/a", "abfss://lake/a", "abfss://lake@acme/a", "ftp://host/a"} {
		_, err := (&spec.Project{Dir: t.TempDir()}).OpenTable(t.Context(), uri)
		if err == nil || !strings.Contains(err.Error(), uri) {
			t.Errorf("%s: got %v, want an error that names it", uri, err)
		}
	}
}

// TestOpenTable_LogStoreOfProject_Asked has a DynamoDB that refuses everybody.
func TestOpenTable_LogStoreOfProject_Asked(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("X-Amz-Target")
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	project, err := openProject(t, "dynamodb://delta_log?endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	st, err := project.OpenTable(t.Context(), "s3://bucket/orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, err = range st.List(t.Context(), "_delta_log/", "") {
		break
	}
	if err == nil || asked != "DynamoDB_20120810.Query" {
		t.Errorf("listing a log: got %v, and DynamoDB was asked %q, want a Query that is refused", err, asked)
	}
	if _, err := openProject(t, "dynamodb://x?scheme=gs"); err == nil || !strings.Contains(err.Error(), "scheme=gs") {
		t.Errorf("a bad log store: got %v, want an error that names it", err)
	}
}

func openProject(t *testing.T, logStore string) (*spec.Project, error) {
	t.Helper()
	dir := t.TempDir()
	text := "project: shop\nlake:\n  log_store: " + logStore + "\n"
	if err := os.WriteFile(filepath.Join(dir, spec.ProjectFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return spec.OpenProject(dir, "", false)
}
