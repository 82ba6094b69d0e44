package delta_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// TestWriter_StatsOfRandomRows_AgainstBruteForce computes what the statistics must be from the rows as text.
func TestWriter_StatsOfRandomRows_AgainstBruteForce(t *testing.T) {
	const seed = 23
	r := rand.New(rand.NewPCG(seed, seed))
	s := fields("i", delta.Long, "d", delta.Decimal{Precision: 30, Scale: 3}, "s", delta.String,
		"n", &delta.Struct{Fields: []delta.Field{{Name: "i", Type: delta.Short, Nullable: true}}})
	for round := range 60 {
		distinct := 1 + r.IntN(300)
		var rows []string
		for range 1 + r.IntN(2000) {
			rows = append(rows, randomRow(r, distinct))
		}
		rec := batchOf(t, s, "["+strings.Join(rows, ",")+"]")
		cut := r.Int64N(rec.NumRows() + 1)
		adds := writeAll(t, store.NewMem(), s, nil, &delta.WriterOptions{RowGroupRows: 1 + r.Int64N(1000)},
			rec.NewSlice(0, cut), rec.NewSlice(cut, rec.NumRows()))
		checkStats(t, fmt.Sprintf("seed %d, round %d", seed, round), adds[0].Stats, rows)
	}
}

func randomRow(r *rand.Rand, distinct int) string {
	orNull := func(text string) string {
		if r.IntN(5) == 0 {
			return "null"
		}
		return text
	}
	v := r.IntN(distinct) - distinct/2
	alphabet := []rune("az~é漢😀\U0010ffff\x7f")
	var text []rune
	for range r.IntN(70) {
		text = append(text, alphabet[r.IntN(min(distinct, len(alphabet)))])
	}
	return fmt.Sprintf(`{"i":%s,"d":%s,"s":%s,"n":%s}`, orNull(fmt.Sprint(int64(v)<<40)),
		orNull(fmt.Sprintf(`"%d%09d.%03d"`, v, r.IntN(1e9), r.IntN(1000))), orNull(quoteJSON(string(text))),
		orNull(fmt.Sprintf(`{"i":%s}`, orNull(fmt.Sprint(v)))))
}

type statsRow struct {
	I *json.Number
	D *string
	S *string
	N *struct{ I *json.Number }
}

type fileStatsJSON struct {
	NumRecords           int
	MinValues, MaxValues struct {
		I, D *json.Number
		S    *string
		N    struct{ I *json.Number }
	}
	NullCount struct {
		I, D, S int
		N       struct{ I int }
	}
}

func checkStats(t *testing.T, name, stats string, rows []string) {
	t.Helper()
	var got fileStatsJSON
	if err := json.Unmarshal([]byte(stats), &got); err != nil {
		t.Fatalf("%s: %s: %v", name, stats, err)
	}
	var i, d, n bounds
	var nulls [4]int
	for _, text := range rows {
		var row statsRow
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			t.Fatal(err)
		}
		nulls[0] += i.take((*string)(row.I))
		nulls[1] += d.take(row.D)
		nulls[2] += textNull(t, name, row.S, got.MinValues.S, got.MaxValues.S)
		if row.N == nil {
			nulls[3]++
		} else {
			nulls[3] += n.take((*string)(row.N.I))
		}
	}
	if got.NumRecords != len(rows) {
		t.Errorf("%s: got %d rows, want %d", name, got.NumRecords, len(rows))
	}
	if c := got.NullCount; [4]int{c.I, c.D, c.S, c.N.I} != nulls {
		t.Errorf("%s: got null counts %+v, want %v", name, c, nulls)
	}
	i.check(t, name+" i", got.MinValues.I, got.MaxValues.I)
	d.check(t, name+" d", got.MinValues.D, got.MaxValues.D)
	n.check(t, name+" n.i", got.MinValues.N.I, got.MaxValues.N.I)
}

// bounds are exact: whole numbers and decimals as fractions.
type bounds struct{ lo, hi *big.Rat }

// take counts a null as 1.
func (b *bounds) take(text *string) int {
	if text == nil {
		return 1
	}
	v, ok := new(big.Rat).SetString(*text)
	if !ok {
		panic(*text)
	}
	if b.lo == nil || v.Cmp(b.lo) < 0 {
		b.lo = v
	}
	if b.hi == nil || v.Cmp(b.hi) > 0 {
		b.hi = v
	}
	return 0
}

func (b *bounds) check(t *testing.T, name string, lo, hi *json.Number) {
	t.Helper()
	if b.lo == nil {
		if lo != nil || hi != nil {
			t.Errorf("%s: nulls only, but bounds %v and %v", name, lo, hi)
		}
		return
	}
	if lo == nil || hi == nil {
		t.Errorf("%s: no bounds, want %s and %s", name, b.lo, b.hi)
		return
	}
	gotLo, _ := new(big.Rat).SetString(lo.String())
	gotHi, _ := new(big.Rat).SetString(hi.String())
	if gotLo.Cmp(b.lo) != 0 || gotHi.Cmp(b.hi) != 0 {
		t.Errorf("%s: got %s to %s, want %s to %s", name, lo, hi, b.lo, b.hi)
	}
}

// textNull checks that a text lies between its bounds, which are cut to 32 units of UTF-16 and a tie-breaker.
func textNull(t *testing.T, name string, v, lo, hi *string) int {
	t.Helper()
	switch {
	case v == nil:
		return 1
	case lo == nil || *v < *lo:
		t.Errorf("%s: %q is below the minimum", name, *v)
	case hi != nil && *v > *hi:
		t.Errorf("%s: %q is above the maximum %q", name, *v, *hi)
	}
	return 0
}
