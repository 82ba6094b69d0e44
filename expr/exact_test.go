package expr_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet/expr"
)

// one evaluates an expression over a batch without columns of one row.
func one(t testing.TB, src string) string {
	t.Helper()
	rec := array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 1)
	return evaluate(t, src, rec)
}

// randomDigits is a number of that many digits, of either sign.
func randomDigits(r *rand.Rand, digits int) *big.Int {
	n := new(big.Int)
	for range digits {
		n.Mul(n, big.NewInt(10)).Add(n, big.NewInt(int64(r.IntN(10))))
	}
	if r.IntN(2) == 0 {
		n.Neg(n)
	}
	return n
}

// number is a random decimal of up to 38 digits as text, with its exact value.
func number(n *big.Int, scale int) (string, *big.Rat) {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
	rat := new(big.Rat).SetFrac(n, unit)
	return rat.FloatString(scale), rat
}

func TestDecimals_RandomArithmetic_ExactOrRefused(t *testing.T) {
	r := newRand(t)
	for range 3000 {
		text := [2]string{}
		rat := [2]*big.Rat{}
		for i := range 2 {
			digits := 2 + r.IntN(20)
			n := randomDigits(r, digits)
			text[i], rat[i] = number(n, 1+r.IntN(min(digits-1, 18)))
		}
		op := []string{"+", "-", "*", "/", "%", "<", "="}[r.IntN(7)]
		src := fmt.Sprintf("CAST((%s) %s (%s) AS string)", text[0], op, text[1])
		got := one(t, src)
		if strings.Contains(got, "error") || strings.Contains(got, "!") {
			if op == "<" || op == "=" || op == "+" || op == "-" || (op == "/" || op == "%") && rat[1].Sign() != 0 {
				t.Fatalf("%s: %s", src, got)
			}
			continue
		}
		got = strings.Trim(strings.TrimPrefix(got, "utf8: | "), "'")
		want := new(big.Rat)
		switch op {
		case "+":
			want.Add(rat[0], rat[1])
		case "-":
			want.Sub(rat[0], rat[1])
		case "*":
			want.Mul(rat[0], rat[1])
		case "/":
			want.Quo(rat[0], rat[1])
		case "%":
			whole := new(big.Rat).Quo(rat[0], rat[1])
			n := new(big.Int).Quo(whole.Num(), whole.Denom())
			want.Sub(rat[0], new(big.Rat).Mul(rat[1], new(big.Rat).SetInt(n)))
		case "<", "=":
			c := rat[0].Cmp(rat[1])
			if want := fmt.Sprint(op == "<" && c < 0 || op == "=" && c == 0); got != want {
				t.Fatalf("%s: got %s, want %s", src, got, want)
			}
			continue
		}
		_, fraction, _ := strings.Cut(got, ".")
		// FloatString rounds halves away from zero, as division does.
		rounded, _ := new(big.Rat).SetString(want.FloatString(len(fraction)))
		exact, ok := new(big.Rat).SetString(got)
		if !ok || exact.Cmp(rounded) != 0 || op != "/" && exact.Cmp(want) != 0 {
			t.Fatalf("%s: got %s, want %s", src, got, want.FloatString(len(fraction)+5))
		}
	}
}

func TestDecimals_ColumnsOfAllScales_CompareExactly(t *testing.T) {
	r := newRand(t)
	for range 300 {
		sa, sb := r.Int32N(39), r.Int32N(39)
		schema := arrow.NewSchema([]arrow.Field{
			{Name: "a", Type: &arrow.Decimal128Type{Precision: 38, Scale: sa}},
			{Name: "b", Type: &arrow.Decimal128Type{Precision: 38, Scale: sb}}}, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		var want []bool
		for range 20 {
			n := [2]*big.Int{}
			rat := [2]*big.Rat{}
			for i, scale := range []int32{sa, sb} {
				n[i] = randomDigits(r, 1+r.IntN(38))
				b.Field(i).(*array.Decimal128Builder).Append(decimal128.FromBigInt(n[i]))
				_, rat[i] = number(n[i], int(scale))
			}
			want = append(want, rat[0].Cmp(rat[1]) < 0)
		}
		rec := b.NewRecordBatch()
		e, _ := expr.Parse("a < b")
		bound, err := e.Bind(schema)
		if err != nil {
			t.Fatal(err)
		}
		arr, err := bound.Eval(context.Background(), rec)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if arr.(*array.Boolean).Value(i) != w {
				t.Fatalf("scales %d, %d: %s < %s is not %v", sa, sb,
					rec.Column(0).ValueStr(i), rec.Column(1).ValueStr(i), w)
			}
		}
	}
}

func TestCalendar_RandomTimes_AgreeWithTimePackage(t *testing.T) {
	r := newRand(t)
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}}}, nil))
	var times []time.Time
	for range 2000 {
		at := time.UnixMicro(-62_135_596_800_000_000 + r.Int64N(315_537_897_600_000_000)).UTC()
		times = append(times, at)
		b.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(at.UnixMicro()))
	}
	rec := b.NewRecordBatch()
	yes := func(time.Time) string { return "true" }
	week := func(at time.Time) int { _, w := at.ISOWeek(); return w }
	monday := func(at time.Time) time.Time { return at.AddDate(0, 0, -(int(at.Weekday())+6)%7) }
	for src, want := range map[string]func(time.Time) string{
		"year(ts)":      func(at time.Time) string { return fmt.Sprint(at.Year()) },
		"month(ts)":     func(at time.Time) string { return fmt.Sprint(int(at.Month())) },
		"day(ts)":       func(at time.Time) string { return fmt.Sprint(at.Day()) },
		"dayofyear(ts)": func(at time.Time) string { return fmt.Sprint(at.YearDay()) },
		"week(ts)":      func(at time.Time) string { return fmt.Sprint(week(at)) },
		"hour(ts)":      func(at time.Time) string { return fmt.Sprint(at.Hour()) },
		"second(ts)":    func(at time.Time) string { return fmt.Sprint(at.Second()) },
		"CAST(ts AS string)": func(at time.Time) string {
			return "'" + at.Format("2006-01-02 15:04:05.999999") + "'"
		},
		"strftime(ts, '%a %A %b %B %d %j %I %p %y %f')": func(at time.Time) string {
			return fmt.Sprintf("'%s %06d'", at.Format("Mon Monday Jan January 02 002 03 PM 06"), at.Nanosecond()/1000)
		},
		"strftime(date_trunc('week', ts), '%Y-%m-%d')": func(at time.Time) string {
			return "'" + monday(at).Format("2006-01-02") + "'"
		},
		"to_timestamp(strftime(ts, '%d/%b/%Y %H:%M:%S.%f'), '%d/%b/%Y %H:%M:%S.%f') = ts":    yes,
		"to_timestamp(date_format(ts, 'yyyyMMddHHmmssSSSSSS'), 'yyyyMMddHHmmssSSSSSS') = ts": yes,
		"CAST(CAST(ts AS string) AS timestamp) = ts AND epoch_us(epoch_us(ts)) = ts":         yes,
		"date_trunc('day', ts) = CAST(CAST(ts AS date) AS timestamp)":                        yes,
	} {
		for i, got := range cells(t, src, rec) {
			if w := want(times[i]); got != w {
				// At the very ends of the range a week begins outside of it.
				if strings.Contains(src, "'week'") && times[i].Year() == 1 {
					continue
				}
				t.Fatalf("%s of %v: got %s, want %s", src, times[i], got, w)
			}
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"x\u00e9\n"}],"c":-1.5e+3}`, `[`, `"\ud83d\ude00"`, `01`, `{"a":1,}`,
		` null `, `tru`, `[[]]`} {
		f.Add(s)
	}
	e, err := expr.Parse("json_valid(j)")
	if err != nil {
		f.Fatal(err)
	}
	get, err := expr.Parse("json_extract_string(j, '$.a[1].b')")
	if err != nil {
		f.Fatal(err)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "j", Type: arrow.BinaryTypes.String}}, nil)
	valid, err := e.Bind(schema)
	if err != nil {
		f.Fatal(err)
	}
	extract, err := get.Bind(schema)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		b.Append(s)
		rec := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 1)
		arr, err := valid.Eval(context.Background(), rec)
		if err != nil {
			t.Fatal(err)
		}
		got, want := arr.(*array.Boolean).Value(0), json.Valid([]byte(s))
		if got != want && strings.Count(s, "[")+strings.Count(s, "{") < 500 {
			t.Fatalf("%q: valid is %v, want %v", s, got, want)
		}
		if _, err := extract.Eval(context.Background(), rec); (err != nil) == got {
			t.Fatalf("%q: valid is %v, extract says %v", s, got, err)
		}
	})
}
