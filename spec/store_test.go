package spec_test

import (
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
