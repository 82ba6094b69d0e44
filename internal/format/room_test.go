package format_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

func TestInfer_MoreThanMaxColumns_SmallFieldsFirst(t *testing.T) {
	record := `{"users":{"u1":1,"u2":2,"u3":3},"id":1,"name":"x","tags":[{"a":1,"b":2}]}`
	for most, want := range map[int]string{
		1: "id:long",
		2: "id:long name:string",
		3: "id:long name:string tags:[<a:long>]",
		4: "id:long name:string tags:[<a:long b:long>]",
		6: "users:<u1:long u2:long> id:long name:string tags:[<a:long b:long>]",
		7: "users:<u1:long u2:long u3:long> id:long name:string tags:[<a:long b:long>]",
		8: "users:<u1:long u2:long u3:long> id:long name:string tags:[<a:long b:long>]",
	} {
		got := infer(t, &format.Options{MaxColumns: most}, nil, record)
		if got = strings.ReplaceAll(got, "int64", "long"); got != want {
			t.Errorf("%d columns: got %s, want %s", most, got, want)
		}
	}
}

func TestInfer_KnownAsManyAsMaxColumns_NothingAdded(t *testing.T) {
	known := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "s", Nullable: true, Type: arrow.StructOf(
			arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int64, Nullable: true})}}, nil)
	for _, most := range []int{1, 2} {
		got := infer(t, &format.Options{MaxColumns: most}, known, `{"a":1,"c":2,"s":{"b":1,"d":2}}`)
		if want := describe(known); got != want {
			t.Errorf("%d columns: got %s, want %s", most, got, want)
		}
	}
}

// A producer makes a field of each value. The table stops growing, and records beyond are rejects with all they have.
func TestAppend_FieldBeyondMaxColumns_RejectNamesTheRemedy(t *testing.T) {
	f, err := format.NewJSON(&format.Options{MaxColumns: 3})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := f.Infer(asPayloads([][]byte{[]byte(`{"id":1}`)}), nil)
	if err != nil {
		t.Fatal(err)
	}
	widened, rejected := 0, 0
	for i := range 10 {
		record := fmt.Appendf(nil, `{"id":1,"by":{"k%d":1}}`, i)
		for {
			d, err := f.NewDecoder(schema)
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Append(freshet.Payload{Value: record})
			d.Release()
			var no *freshet.RejectError
			switch {
			case errors.As(err, &no):
				rejected++
				if no.Code != freshet.CodeNewField || no.Path != fmt.Sprintf("by.k%d", i) ||
					!strings.Contains(no.Message, "max_columns") {
					t.Errorf("got %v, want a new field of its path that is more than max_columns", no)
				}
			case errors.Is(err, freshet.ErrNewFields):
				if schema, err = f.Infer(asPayloads([][]byte{record}), schema); err != nil {
					t.Fatal(err)
				}
				if widened++; widened > 10 {
					t.Fatal("the schema is widened again and again")
				}
				continue
			case err != nil:
				t.Fatal(err)
			}
			break
		}
	}
	if widened != 2 || rejected != 8 {
		t.Errorf("got %d columns added and %d records rejected, want 2 and 8", widened, rejected)
	}
}
