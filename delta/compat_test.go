package delta_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

func supportOf(t *testing.T, snap *delta.Snapshot, engine string) delta.EngineSupport {
	t.Helper()
	for _, s := range snap.Compatibility() {
		if s.Engine == engine {
			return s
		}
	}
	t.Fatalf("no engine %s", engine)
	return delta.EngineSupport{}
}

func TestCompatibility_PlainTable_EveryEngineReads(t *testing.T) {
	snap := snapshot(t, create(t, store.NewMem(), nil))
	for _, s := range snap.Compatibility() {
		if s.Read != delta.SupportYes || s.Source == "" || s.Version == "" {
			t.Errorf("%+v", s)
		}
	}
	if s := supportOf(t, snap, "Apache Spark"); s.Version != "Delta Lake 0.8 and later" {
		t.Errorf("%+v", s)
	}
}

func TestCompatibility_Features_NamedWhereTheyAreInTheWay(t *testing.T) {
	table := create(t, store.NewMem(), map[string]string{"delta.enableDeletionVectors": "true",
		"delta.enableRowTracking": "true"})
	snap := snapshot(t, table)
	if s := supportOf(t, snap, "Apache Spark"); s.Version != "Delta Lake 3.2 and later" ||
		!slices.Contains(s.Reasons, "read: Delta Lake 2.3 and later") {
		t.Errorf("%+v", s)
	}
	if s := supportOf(t, snap, "delta-rs"); s.Read != delta.SupportYes || s.Write != delta.SupportNo ||
		!strings.Contains(strings.Join(s.Reasons, "; "), "write: it does not know rowTracking") {
		t.Errorf("%+v", s)
	}
	if s := supportOf(t, snap, "Amazon Redshift Spectrum"); s.Read != delta.SupportNo {
		t.Errorf("%+v", s)
	}
	if s := supportOf(t, snap, "Amazon Athena"); s.Read != delta.SupportUnknown || s.Write != delta.SupportNo {
		t.Errorf("%+v", s)
	}
	if s := supportOf(t, snap, "Freshet"); s.Read != delta.SupportYes || s.Write != delta.SupportYes {
		t.Errorf("%+v", s)
	}
}

// Whoever cannot read the golden tables of others cannot be told to.
func TestCompatibility_TablesOfOthers_AgreesWithWhatWeCanOpen(t *testing.T) {
	for _, path := range goldenTables(t) {
		table, err := delta.Open(context.Background(), disk(t, filepath.Join(path, "delta")), nil)
		if err != nil {
			continue
		}
		if s := supportOf(t, snapshot(t, table), "Freshet"); s.Read != delta.SupportYes {
			t.Errorf("%s: opened, and yet %+v", path, s)
		}
	}
}

// TestCompatibility_TableThatCannotBeRead_IsToldStill has tables of features, versions and types that nobody here knows.
func TestCompatibility_TableThatCannotBeRead_IsToldStill(t *testing.T) {
	for name, want := range map[string]string{
		"delta-io__delta-kernel-rs/golden/deltalog-invalid-protocol-version": "read: it does not know reader version 99",
		"delta-io__delta-kernel-rs/data/table-with-geo":                      "read: it does not know geospatial",
	} {
		dir := filepath.Join(filepath.Dir(filepath.Dir(parquetTesting(t))), "delta", name, "delta")
		if _, err := delta.Open(t.Context(), disk(t, dir), nil); !errors.Is(err, delta.ErrUnsupportedFeature) {
			t.Errorf("%s: got %v, want ErrUnsupportedFeature", name, err)
		}
		all, err := delta.Compatibility(t.Context(), disk(t, dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		us := all[len(all)-1]
		if us.Read != delta.SupportNo || us.Write == delta.SupportYes || !slices.Contains(us.Reasons, want) {
			t.Errorf("%s: got %+v, want %q", name, us, want)
		}
	}
}
