package delta_test

import (
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

func TestCheckProperty_Values_AsWritersTakeThem(t *testing.T) {
	for _, c := range []struct {
		name, value, wanted string // wanted "": the value is good
	}{
		{"delta.appendOnly", "TRUE", ""},
		{"delta.appendOnly", "maybe", "true or false"},
		{"delta.enableChangeDataFeed", "1", "true or false"},
		{"delta.logRetentionDuration", "interval 1 week 2 days", ""},
		{"delta.logRetentionDuration", "forever", `an interval like "interval 30 days"`},
		{"delta.deletedFileRetentionDuration", "interval -3 days", `an interval like "interval 30 days"`},
		{"delta.setTransactionRetentionDuration", "", `an interval like "interval 30 days"`},
		{"delta.checkpointInterval", "10", ""},
		{"delta.checkpointInterval", "0", "a number of at least 1"},
		{"delta.checkpointInterval", "99999999999999999999", "a number of at least 1"},
		{"delta.randomPrefixLength", "33", "a number from 1 to 32"},
		{"delta.dataSkippingNumIndexedCols", "-1", ""},
		{"delta.dataSkippingNumIndexedCols", "-2", "a number of at least -1"},
		{"delta.isolationLevel", "WriteSerializable", ""},
		{"delta.isolationLevel", "ReadCommitted", "Serializable or WriteSerializable"},
		{"delta.columnMapping.mode", "position", "none, name or id"},
		{"delta.parquet.compression.codec", "SNAPPY", ""},
		{"delta.parquet.compression.codec", "lzo", "zstd, snappy, gzip or none"},
		{"delta.minReaderVersion", "3", "no such property"},
		{"delta.somethingNew", "whatever", ""},
		{"owner", "", ""},
	} {
		err := delta.CheckProperty(c.name, c.value)
		if c.wanted == "" && err != nil {
			t.Errorf("%s = %q: %v", c.name, c.value, err)
		}
		if c.wanted != "" && (err == nil || !strings.Contains(err.Error(), "wanted "+c.wanted)) {
			t.Errorf("%s = %q: got %v, want an error with %q", c.name, c.value, err, c.wanted)
		}
	}
}

func TestCreateAndSetProperties_ValueThatCannotBe_WriteNothing(t *testing.T) {
	st := store.NewMem()
	bad := map[string]string{"delta.appendOnly": "maybe"}
	opts := &delta.CreateOptions{Schema: twoColumns(), Properties: bad}
	if _, err := delta.Create(t.Context(), st, opts); err == nil {
		t.Fatal("a table was made with delta.appendOnly = maybe")
	}
	opts.Properties = nil
	table, err := delta.Create(t.Context(), st, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.SetProperties(t.Context(), bad, nil); err == nil {
		t.Error("delta.appendOnly was set to maybe")
	}
	bad["delta.enableRowTracking"] = "true" // which is done in commits of its own
	if _, err := table.SetProperties(t.Context(), bad, upgrade); err == nil {
		t.Error("delta.appendOnly was set to maybe while rows were tracked")
	}
	snap, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := snap.Version(); got != 0 {
		t.Errorf("got version %d, want 0", got)
	}
}
