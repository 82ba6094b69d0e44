package delta_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
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

// statColumns are the columns that have bounds and counts of nulls in each live file.
func statColumns(t *testing.T, table *delta.Table) (columns []string) {
	t.Helper()
	for f, err := range snapshot(t, table).Files(context.Background(), &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		var stats struct {
			NullCount, MinValues map[string]any
		}
		if err := json.Unmarshal([]byte(f.Stats), &stats); err != nil {
			t.Fatal(err)
		}
		lows, nulls := slices.Sorted(maps.Keys(stats.MinValues)), slices.Sorted(maps.Keys(stats.NullCount))
		if !slices.Equal(lows, nulls) {
			t.Errorf("bounds of %v, counts of nulls of %v", lows, nulls)
		}
		columns = append(columns, strings.Join(nulls, " "))
	}
	return columns
}

// Clustering columns have statistics wherever they stand, also in files that are written anew and in checkpoints.
func TestStats_ClusteringColumns_HaveThemAlways(t *testing.T) {
	ctx := context.Background()
	s := fields("a", delta.Long, "b", delta.Long, "c.d", delta.Long,
		"s", &delta.Struct{Fields: fields("x", delta.Long, "y", delta.Long).Fields})
	for properties, want := range map[string]string{
		"delta.dataSkippingNumIndexedCols=0":   "c.d s",
		"delta.dataSkippingNumIndexedCols=1":   "a c.d s",
		"delta.dataSkippingNumIndexedCols=-1":  "a b c.d s",
		"delta.dataSkippingStatsColumns=b":     "b c.d s",
		"delta.dataSkippingStatsColumns=`c.d`": "c.d s",
	} {
		key, value, _ := strings.Cut(properties, "=")
		table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: s, ClusterBy: []string{"`c.d`", "s.y"},
			Properties: map[string]string{key: value}})
		if err != nil {
			t.Fatal(err)
		}
		row := `[{"a":1,"b":2,"c.d":3,"s":{"x":4,"y":5}}]`
		write(t, table, s, row, nil)
		write(t, table, s, row, nil)
		if got := statColumns(t, table); !slices.Equal(got, []string{want, want}) {
			t.Errorf("%s: got %v, want twice %s", properties, got, want)
		}
		if _, err := table.Update(ctx, set(t, "a", "a + 1"), nil, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Optimize(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if got := statColumns(t, table); !slices.Equal(got, []string{want}) {
			t.Errorf("%s, optimized: got %v, want %s", properties, got, want)
		}
		if err := table.Checkpoint(ctx, snapshot(t, table)); err != nil {
			t.Fatal(err)
		}
		opts := &delta.ScanOptions{Where: parse(t, "s.y = 6 OR `c.d` = 4")}
		if got := scanLines(t, snapshot(t, table), opts); len(got) != 0 {
			t.Errorf("%s: got %v, want no row", properties, got)
		}
	}
}

func TestSetProperties_StatsColumns_MustBeThereAndFollowRenames(t *testing.T) {
	ctx := context.Background()
	s := fields("a,b", delta.Long, "c.d", delta.Long,
		"s", &delta.Struct{Fields: fields("x", delta.Long, "y", delta.Long).Fields})
	table := made(t, s, map[string]string{"delta.columnMapping.mode": "name"})
	list := func(want string) {
		t.Helper()
		if got := snapshot(t, table).Property("delta.dataSkippingStatsColumns"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	const key = "delta.dataSkippingStatsColumns"
	_, err := table.SetProperties(ctx, map[string]string{key: "c"}, nil)
	refused(t, err, `column "c": the table has no such column`)
	r, err := table.SetProperties(ctx, map[string]string{key: "`a,b`, `c.d`,s.x"}, nil)
	done(t, r, err)
	r, err = table.RenameColumn(ctx, "`c.d`", "e.f", nil)
	done(t, r, err)
	list("`a,b`,`e.f`,s.x")
	r, err = table.RenameColumn(ctx, "s", "t", nil)
	done(t, r, err)
	list("`a,b`,`e.f`,t.x")
	r, err = table.DropColumns(ctx, []string{"`a,b`", "t.x"}, nil)
	done(t, r, err)
	list("`e.f`")
	write(t, table, fields("e.f", delta.Long), `[{"e.f":1}]`, nil)
	if got := statColumns(t, table); len(got) != 1 || strings.Contains(got[0], " ") {
		t.Errorf("got %v, want one column", got)
	}
}
