package transform_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/veil"
	"github.com/freshet-io/freshet/transform"
)

// persons is a batch of one record each, whose third row did not send its email.
func persons(t *testing.T) *freshet.Batch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "Email", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "age", Type: arrow.PrimitiveTypes.Int32, Nullable: true}}, nil)
	rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(
		`[{"id":1,"Email":"ann@x","note":"n","age":7},{"id":2,"note":"n","age":null},{"id":3}]`))
	if err != nil {
		t.Fatal(err)
	}
	b := &freshet.Batch{Rows: rows, Seqs: []int64{0, 1, 2}, Unsent: freshet.NewMask(4)}
	b.Unsent.Mark(2, 1)
	b.Unsent.Mark(2, 2)
	for range 3 {
		b.Records = append(b.Records, &freshet.Record{Raw: []byte("ann@x"), Key: []byte("ann@x"), Headers: []freshet.Header{{Key: "ann@x"}}})
	}
	b.Rejects = []freshet.Reject{{Seq: 3, Code: freshet.CodeWrongType, Message: `found "ann@x"`, Step: "decode",
		Record: freshet.Record{Raw: []byte("ann@x"), TimeKind: 1}}}
	return b
}

func TestMask_Rows_HashesInThePlaceOfValues(t *testing.T) {
	key, seal := veil.New("a secret of a test"), veil.New("a secret of records")
	step := transform.NewMask([]transform.MaskedColumn{{Name: "email", Key: key}, {Name: "NOTE"}, {Name: "age", Key: key}}, seal)
	b := persons(t)
	defer b.Release()
	if err := step.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := b.Rows.Schema().String(); strings.Contains(got, "note") || b.Rows.NumCols() != 3 {
		t.Fatalf("got the columns %s, want id, Email and age", got)
	}
	email, age := b.Rows.Column(1).(*array.String), b.Rows.Column(2).(*array.String)
	if email.Value(0) != key.Hash("ann@x") || !email.IsNull(1) || !email.IsNull(2) || age.Value(0) != key.Hash("7") || !age.IsNull(1) {
		t.Errorf("got %v and %v, want hashes, and nulls where there were nulls", email, age)
	}
	if !b.Unsent.Has(2, 1) || b.Unsent.Has(2, 0) || b.Unsent.Has(2, 2) {
		t.Error("the email of the third row was not sent, and the rest was")
	}
	if in, ok := step.Origin("EMAIL"); ok {
		t.Errorf("a masked column is that of the source: %s", in)
	}
}

func TestMask_Records_AreSealedAndOpened(t *testing.T) {
	seal := veil.New("a secret of records")
	b := persons(t)
	defer b.Release()
	if err := transform.NewMask([]transform.MaskedColumn{{Name: "note"}}, seal).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	later := b.RejectRow(0, freshet.CodeStepFault, "derive", "no number")
	for _, r := range []freshet.Reject{b.Rejects[0], later} {
		if bytes.Contains(r.Raw, []byte("ann")) || r.Key != nil || r.Headers != nil || strings.Contains(r.Message, "ann") {
			t.Errorf("got %+v, want nothing of the record", r)
		}
		opened, found, err := transform.Unseal(r.Record, []*veil.Key{veil.New("another secret"), seal})
		if err != nil || string(opened.Raw) != "ann@x" || r.Step == "decode" && (found != `found "ann@x"` || opened.TimeKind != 1) {
			t.Errorf("got %+v, %q, %v, want the record as it came", opened, found, err)
		}
		if _, _, err := transform.Unseal(r.Record, []*veil.Key{veil.New("another secret")}); !errors.Is(err, veil.ErrKey) {
			t.Errorf("another key: got %v, want ErrKey", err)
		}
	}
	if err := transform.NewMask(nil, seal).Apply(t.Context(), b); err != nil { // a replay seals once more
		t.Fatal(err)
	}
	if opened, _, err := transform.Unseal(b.Rejects[0].Record, []*veil.Key{seal}); err != nil || string(opened.Raw) != "ann@x" {
		t.Errorf("sealed twice: got %+v, %v", opened, err)
	}
}

func TestMask_ColumnOfSeveralValues_IsRefused(t *testing.T) {
	step := transform.NewMask([]transform.MaskedColumn{{Name: "tags", Key: veil.New("x")}}, veil.New("x"))
	_, err := step.Plan(arrow.NewSchema([]arrow.Field{{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String)}}, nil))
	var e *freshet.Error
	if !errors.As(err, &e) || e.Place != "tags" || !strings.Contains(e.Fix, "drop: true") {
		t.Errorf("got %v, want an error that names the column", err)
	}
	all := transform.NewMask([]transform.MaskedColumn{{Name: "id"}}, veil.New("x"))
	if _, err := all.Plan(arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil)); err == nil {
		t.Error("a table without columns is taken")
	}
}
