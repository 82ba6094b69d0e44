package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/variant"

	"github.com/freshet-io/freshet/delta"
)

// variantCase is one file with what its variants are, or why they are none.
type variantCase struct {
	Number  int       `json:"case_number"`
	Test    string    `json:"test"`
	Parquet string    `json:"parquet_file"`
	Variant *string   `json:"variant_file"`
	Rows    []*string `json:"variant_files"`
	Error   string    `json:"error_message"`
}

// refusedVariant breaks the specification in a way that cannot be read; the other files named INVALID can.
const refusedVariant = "case-084-INVALID.parquet"

func TestScan_ShreddedVariants_ValuesOfTheReference(t *testing.T) {
	dir := filepath.Join(filepath.Dir(parquetTesting(t)), "shredded_variant")
	text, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []variantCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Parquet == "" {
			continue
		}
		t.Run(filepath.Base(c.Parquet)+"/"+c.Test, func(t *testing.T) {
			if c.Rows == nil {
				c.Rows = []*string{c.Variant}
			}
			got, err := readVariants(t, filepath.Join(dir, c.Parquet))
			if c.Error != "" {
				if err == nil {
					t.Errorf("got rows %v, want an error: %s", got, c.Error)
				}
				return
			}
			if strings.HasSuffix(c.Parquet, refusedVariant) {
				if !errors.Is(err, delta.ErrCorrupt) {
					t.Errorf("got %v, want ErrCorrupt: the file is against the specification", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(c.Rows) {
				t.Fatalf("got %d rows, want %d", len(got), len(c.Rows))
			}
			for i, name := range c.Rows {
				want := "null"
				if name != nil {
					want = variantOfFile(t, filepath.Join(dir, *name))
				}
				if got[i] != want {
					t.Errorf("row %d: got %s, want %s", i, got[i], want)
				}
			}
		})
	}
}

// readVariants returns the column var as texts.
func readVariants(t *testing.T, path string) (texts []string, err error) {
	snap := tableOver(t, path, fields("id", delta.Integer, "var", delta.Variant))
	for rec, err := range snap.Scan(context.Background(), &delta.ScanOptions{Columns: []string{"var"}}) {
		if err != nil {
			return nil, err
		}
		defer rec.Release()
		s := rec.Column(0).(*array.Struct)
		for i := range s.Len() {
			if s.IsNull(i) {
				texts = append(texts, "null")
				continue
			}
			v, err := variant.New(s.Field(0).(*array.Binary).Value(i), s.Field(1).(*array.Binary).Value(i))
			if err != nil {
				return nil, err
			}
			texts = append(texts, describeVariant(v))
		}
	}
	return texts, nil
}

// variantOfFile decodes metadata followed by a value, which begins where some cut gives a whole variant.
func variantOfFile(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 3; cut < len(data); cut++ {
		m, err := variant.NewMetadata(data[:cut])
		if err != nil || !bytes.Equal(m.Bytes(), data[:cut]) {
			continue
		}
		if v, err := variant.NewWithMetadata(m, data[cut:]); err == nil {
			return describeVariant(v)
		}
	}
	t.Fatalf("%s holds no variant", path)
	return ""
}

// describeVariant tells the type too, of scalars.
func describeVariant(v variant.Value) string { return fmt.Sprint(v.Type(), " ", v) }
