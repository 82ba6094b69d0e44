package postgres

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// taker decodes values of one type, again and again.
type taker struct{ c *cell }

func newTaker(t testing.TB, oid uint32, modifier int32) *taker {
	t.Helper()
	m := testTypes(Types{})
	c, err := m.newCell(oid, modifier, m.arrowType(oid, modifier, 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	c.beStrict()
	return &taker{c}
}

// take returns what became of the value: as Arrow prints it if it was taken. A value that was not taken must leave nothing
// behind.
func (k *taker) take(t testing.TB, oid uint32, text string) (string, verdict) {
	t.Helper()
	v := k.c.text([]byte(text))
	if v != taken {
		k.c.store.Truncate(k.c.store.Rows())
	}
	m := testTypes(Types{})
	data := k.c.store.Take(m.arrowType(oid, -1, 0))
	defer data.Release()
	a := array.MakeFromData(data)
	defer a.Release()
	if v != taken {
		if a.Len() != 0 {
			t.Fatalf("%q was not taken: got %d rows, want none", text, a.Len())
		}
		return "", v
	}
	return a.ValueStr(0), v
}

func FuzzNumeric(f *testing.F) {
	for _, s := range []string{"0", "-1.50", "NaN", "12345678901234567890123456789.0123456789", "0.00000000001", "1e5",
		"-.", "00000000000000000000000000000000000000000000000001.10", "99999999999999999999999999999.99999999990"} {
		f.Add(s)
	}
	plain := regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(38), nil)
	f.Fuzz(func(t *testing.T, text string) {
		v, got := parseDecimal([]byte(text), 38, 10)
		want, coefficient := malformed, (*big.Int)(nil)
		switch bare := strings.TrimPrefix(text, "-"); {
		case plain.MatchString(text):
			r, _ := new(big.Rat).SetString(text)
			r.Mul(r, big.NewRat(1e10, 1))
			want = beyond
			if r.IsInt() && new(big.Int).Abs(r.Num()).Cmp(limit) < 0 {
				want, coefficient = taken, r.Num()
			}
		case bare == "NaN" || bare == "Infinity":
			want = beyond
		}
		if got != want || want == taken && v.BigInt().Cmp(coefficient) != 0 {
			t.Fatalf("%q: got %v %v, want %v %v", text, v.BigInt(), got, coefficient, want)
		}
	})
}

func FuzzDates(f *testing.F) {
	for _, s := range []string{"2024-02-29 23:59:59.999999+05:30", "0001-01-01", "9999-12-31 00:00:00+00", "infinity",
		"294276-12-31 23:59:59+00", "0044-03-15 00:00:00+00 BC", "1883-11-18 12:03:58-04:56:02", "2023-02-29"} {
		f.Add(s)
	}
	plain := regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?$`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, oid := range []uint32{1082, 1114, 1184} {
			newTaker(t, oid, -1).take(t, oid, text)
		}
		if !plain.MatchString(text) || text[:4] == "0000" {
			return
		}
		oid, layout := uint32(1114), "2006-01-02 15:04:05"
		if len(text) == 10 {
			oid, layout = 1082, "2006-01-02"
		}
		want, err := time.Parse(layout, text)
		got, v := newTaker(t, oid, -1).take(t, oid, text)
		if (v == taken) != (err == nil) {
			t.Fatalf("%q: got verdict %v, want %v", text, v, err)
		}
		if shown := want.Format("2006-01-02T15:04:05.999999"); err == nil && got != shown && got != shown[:10] {
			t.Fatalf("%q: got %s, want %s", text, got, shown)
		}
	})
}

// FuzzArrays checks that what is taken as an array of text is the same array when it is written again with quotes.
func FuzzArrays(f *testing.F) {
	for _, s := range []string{"{}", `{a,"b \"c\" \\",NULL,"NULL",""}`, "{{1},{2}}", "[0:1]={1,2}", `{"a`, `{a,}`, `{"a"b}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, oid := range []uint32{1007, 1231, oidAddrArray} {
			newTaker(t, oid, -1).take(t, oid, text)
		}
		k := newTaker(t, 1009, -1)
		got, v := k.take(t, 1009, text)
		if v != taken || !utf8.ValidString(text) {
			return
		}
		if v := k.c.text([]byte(text)); v != taken {
			t.Fatalf("%q: not taken twice", text)
		}
		list := takeList(k)
		again := make([]string, 0, list.ListValues().Len())
		values := list.ListValues().(*array.String)
		for i := range values.Len() {
			if values.IsNull(i) {
				again = append(again, "NULL")
			} else {
				again = append(again, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(values.Value(i))+`"`)
			}
		}
		written := "{" + strings.Join(again, ",") + "}"
		if other, v := k.take(t, 1009, written); v != taken || other != got {
			t.Fatalf("%q: got %s, and of %q %s %v", text, got, written, other, v)
		}
	})
}

func takeList(k *taker) *array.List {
	data := k.c.store.Take(testTypes(Types{}).arrowType(1009, -1, 0))
	return array.NewListData(data)
}

func FuzzComposites(f *testing.F) {
	for _, s := range []string{"(,)", `("Main ""St""",12)`, `(a,1`, `(Ann,"(""x, y"",1)","{a,""b c""}")`, "()"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		newTaker(t, oidPerson, -1).take(t, oidPerson, text)
		k := newTaker(t, oidAddr, -1)
		got, v := k.take(t, oidAddr, text)
		if v != taken || !utf8.ValidString(text) {
			return
		}
		k.c.text([]byte(text))
		data := k.c.store.Take(testTypes(Types{}).arrowType(oidAddr, -1, 0))
		s := array.NewStructData(data)
		street, zip := s.Field(0).(*array.String), s.Field(1).(*array.Int32)
		written := "("
		if street.IsValid(0) {
			written += `"` + strings.NewReplacer(`\`, `\\`, `"`, `""`).Replace(street.Value(0)) + `"`
		}
		written += ","
		if zip.IsValid(0) {
			written += fmt.Sprint(zip.Value(0))
		}
		if other, v := k.take(t, oidAddr, written+")"); v != taken || other != got {
			t.Fatalf("%q: got %s, and of %q %s %v", text, got, written, other, v)
		}
	})
}

func FuzzHstore(f *testing.F) {
	for _, s := range []string{"", `"k"=>"v", "n"=>NULL`, `"q\"\\"=>"a b"`, `"k"=>`, `"k"=>"v",`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k := newTaker(t, oidHstore, -1)
		got, v := k.take(t, oidHstore, text)
		if v != taken || !utf8.ValidString(text) {
			return
		}
		k.c.text([]byte(text))
		data := k.c.store.Take(testTypes(Types{}).arrowType(oidHstore, -1, 0))
		m := array.NewMapData(data)
		keys, items := m.Keys().(*array.String), m.Items().(*array.String)
		var entries []string
		quote := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
		for i := range keys.Len() {
			value := "NULL"
			if items.IsValid(i) {
				value = quote(items.Value(i))
			}
			entries = append(entries, quote(keys.Value(i))+"=>"+value)
		}
		written := strings.Join(entries, ", ")
		if other, v := k.take(t, oidHstore, written); v != taken || other != got {
			t.Fatalf("%q: got %s, and of %q %s %v", text, got, written, other, v)
		}
	})
}
