package lake_test

import (
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// masking opens a target whose table t has these masks, and makes the table ready for rows.
func masking(t *testing.T, w *world, masks map[string]string) error {
	t.Helper()
	target := w.running(t, &lake.TargetOptions{Of: func(table string, o *lake.TargetOptions) {
		if table == "t" {
			o.Masks = masks
		}
	}})
	return target.Ensure(t.Context(), "t", itemSchema)
}

// A column has values, or hashes of one key, for as long as it is there.
func TestMasks_OtherThanTheTables_AreRefused(t *testing.T) {
	w := newWorld()
	must(t, masking(t, w, map[string]string{"Text": "sha256:1"}))
	if got := w.snapshot(t, "t").Property("freshet.mask.text"); got != "sha256:1" {
		t.Errorf("got the property %q, want the mask", got)
	}
	must(t, masking(t, w, map[string]string{"text": "sha256:1"}))
	must(t, masking(t, w, map[string]string{"text": "sha256:1", "later": "sha256:1"}))
	if got := w.snapshot(t, "t").Property("freshet.mask.later"); got != "sha256:1" {
		t.Errorf("got the property %q, want the mask of a column that is still to come", got)
	}
	for name, masks := range map[string]map[string]string{"another key": {"text": "sha256:2"}, "no mask": {},
		"one more": {"text": "sha256:1", "id": "sha256:1"}} {
		if err := masking(t, w, masks); codeOf(err) != freshet.CodeMaskChanged {
			t.Errorf("%s: got %v, want %s", name, err, freshet.CodeMaskChanged)
		}
	}
}

// What is said of one table is said of that alone.
func TestTargetOptions_OfOneTable_OthersAsBefore(t *testing.T) {
	w := newWorld()
	target := w.running(t, &lake.TargetOptions{Properties: map[string]string{"a": "1"}, Of: func(table string, o *lake.TargetOptions) {
		if table == "t" {
			o.PartitionBy, o.Properties = []string{"text"}, map[string]string{"a": "2"}
		}
	}})
	for _, table := range []string{"t", "u"} {
		must(t, target.Ensure(t.Context(), table, itemSchema))
	}
	one, other := w.snapshot(t, "t"), w.snapshot(t, "u")
	if len(one.PartitionColumns()) != 1 || one.Property("a") != "2" {
		t.Errorf("t: got the partition columns %v and a=%s, want its own", one.PartitionColumns(), one.Property("a"))
	}
	if len(other.PartitionColumns()) != 0 || other.Property("a") != "1" {
		t.Errorf("u: got the partition columns %v and a=%s, want those of all", other.PartitionColumns(), other.Property("a"))
	}
	bad := w.running(t, &lake.TargetOptions{Of: func(_ string, o *lake.TargetOptions) { o.Key.Deletes = lake.SoftDeletes }})
	if err := bad.Ensure(t.Context(), "t", itemSchema); codeOf(err) != freshet.CodeBadValue {
		t.Errorf("deletes in mode append: got %v, want %s", err, freshet.CodeBadValue)
	}
}
