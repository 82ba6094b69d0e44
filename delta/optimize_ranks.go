package delta

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

const (
	sampleRows  = 1 << 16 // rows that stand for all when ranges are drawn
	sampleFiles = 32      // files they come from
)

// ranks turn values of a column into numbers that are spread evenly: the number of the range that a value falls in.
// Null is 0, as if it were less than all values.
type ranks struct {
	path  []string // of the column, as of the table's schema
	ints  []uint64 // lower bounds of ranges but the first; of types whose order a number keeps
	texts []string // the same of strings and binaries
}

// of returns the rank of each row. Errors: a column of a type that has no order.
func (r *ranks) of(rec arrow.RecordBatch, out []uint32) error {
	arr, err := columnAt(rec, r.path)
	if err != nil {
		return err
	}
	ints, texts, err := sortKeys(arr)
	if err != nil {
		return fmt.Errorf("column %q: %w", strings.Join(r.path, "."), err)
	}
	for i := range out {
		switch {
		case arr.IsNull(i):
			out[i] = 0
		case ints != nil:
			out[i] = rankOf(r.ints, ints(i))
		default:
			out[i] = rankOf(r.texts, texts(i))
		}
	}
	return nil
}

// rankOf is how many bounds are not above the value.
func rankOf[T cmp.Ordered](bounds []T, v T) uint32 {
	at, found := slices.BinarySearch(bounds, v)
	if found {
		at++
	}
	return uint32(at)
}

// columnAt finds a column, or a field of a struct. A null struct counts as nulls in its fields.
func columnAt(rec arrow.RecordBatch, path []string) (arrow.Array, error) {
	var arr arrow.Array
	for i := range rec.NumCols() {
		if strings.EqualFold(rec.ColumnName(int(i)), path[0]) {
			arr = rec.Column(int(i))
		}
	}
	for _, name := range path[1:] {
		s, ok := arr.(*array.Struct)
		if !ok {
			break
		}
		arr = nil
		for i, f := range s.DataType().(*arrow.StructType).Fields() {
			if strings.EqualFold(f.Name, name) {
				arr = s.Field(i)
			}
		}
	}
	if arr == nil {
		return nil, fmt.Errorf("column %q: the table has no such column", strings.Join(path, "."))
	}
	return arr, nil
}

// sortKeys are numbers or texts that sort as the values of the array do.
func sortKeys(arr arrow.Array) (ints func(int) uint64, texts func(int) string, err error) {
	switch a := arr.(type) {
	case *array.Boolean:
		return func(i int) uint64 { return map[bool]uint64{true: 1}[a.Value(i)] }, nil, nil
	case *array.Int8:
		return func(i int) uint64 { return signed(int64(a.Value(i))) }, nil, nil
	case *array.Int16:
		return func(i int) uint64 { return signed(int64(a.Value(i))) }, nil, nil
	case *array.Int32:
		return func(i int) uint64 { return signed(int64(a.Value(i))) }, nil, nil
	case *array.Int64:
		return func(i int) uint64 { return signed(a.Value(i)) }, nil, nil
	case *array.Date32:
		return func(i int) uint64 { return signed(int64(a.Value(i))) }, nil, nil
	case *array.Timestamp:
		return func(i int) uint64 { return signed(int64(a.Value(i))) }, nil, nil
	case *array.Float32:
		return func(i int) uint64 { return floating(float64(a.Value(i))) }, nil, nil
	case *array.Float64:
		return func(i int) uint64 { return floating(a.Value(i)) }, nil, nil
	case *array.Decimal128: // as floats some neighbours fall together, none change places
		return func(i int) uint64 { return floating(a.Value(i).ToFloat64(0)) }, nil, nil
	case *array.String:
		return nil, a.Value, nil
	case *array.Binary:
		return nil, a.ValueString, nil
	}
	return nil, nil, fmt.Errorf("rows cannot be laid out by a column of type %s", arr.DataType())
}

func signed(v int64) uint64 { return uint64(v) ^ 1<<63 }

// floating sorts NaN above all, as Spark does.
func floating(v float64) uint64 {
	if v != v {
		return math.MaxUint64
	}
	bits := math.Float64bits(v + 0) // -0.0 + 0 is 0.0
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

// sample is a fair choice among the rows seen.
type sample struct {
	rng   *rand.Rand
	seen  int
	ints  [][]uint64 // a column, then a row; what sorts as text is in texts
	texts [][]string
	nulls [][]bool
}

// drawRanks reads the columns in some of the files, and draws 2^bits ranges of each, with about as many rows in each.
func (s *Snapshot) drawRanks(ctx context.Context, files []Add, paths [][]string, bits int) ([]*ranks, error) {
	var chosen []Add
	for i := 0; i < len(files); i += (len(files) + sampleFiles - 1) / sampleFiles {
		chosen = append(chosen, files[i])
	}
	n := len(paths)
	m := &sample{rng: rand.New(rand.NewPCG(1, 2)), ints: make([][]uint64, n), texts: make([][]string, n),
		nulls: make([][]bool, n)}
	var columns []string
	for _, p := range paths {
		if !slices.Contains(columns, p[0]) {
			columns = append(columns, p[0])
		}
	}
	for rows, err := range s.ScanFiles(ctx, chosen, &ScanOptions{Columns: columns, Concurrency: 2}) {
		if err != nil {
			return nil, err
		}
		err = m.take(rows.Batch, paths)
		rows.Batch.Release()
		if err != nil {
			return nil, err
		}
	}
	all := make([]*ranks, n)
	for c, path := range paths {
		all[c] = &ranks{path: path, ints: bounds(m.ints[c], m.nulls[c], bits), texts: bounds(m.texts[c], m.nulls[c], bits)}
	}
	return all, nil
}

// take looks at a batch: each row seen so far is in the sample with the same chance.
func (m *sample) take(rec arrow.RecordBatch, paths [][]string) error {
	arrays := make([]arrow.Array, len(paths))
	for c, p := range paths {
		var err error
		if arrays[c], err = columnAt(rec, p); err != nil {
			return err
		}
	}
	places := make([]int, rec.NumRows()) // in the sample; -1: not chosen
	for i := range places {
		places[i] = m.seen
		if m.seen >= sampleRows {
			if places[i] = m.rng.IntN(m.seen + 1); places[i] >= sampleRows {
				places[i] = -1
			}
		}
		m.seen++
	}
	for c, arr := range arrays {
		ints, texts, err := sortKeys(arr)
		if err != nil {
			return fmt.Errorf("column %q: %w", strings.Join(paths[c], "."), err)
		}
		for i, at := range places {
			if at < 0 {
				continue
			}
			null := arr.IsNull(i)
			m.nulls[c] = put(m.nulls[c], at, null)
			switch {
			case ints != nil && null:
				m.ints[c] = put(m.ints[c], at, 0)
			case ints != nil:
				m.ints[c] = put(m.ints[c], at, ints(i))
			case null:
				m.texts[c] = put(m.texts[c], at, "")
			default:
				m.texts[c] = put(m.texts[c], at, strings.Clone(texts(i)))
			}
		}
	}
	return nil
}

// put sets an element, or the one after the last.
func put[T any](list []T, at int, v T) []T {
	if at == len(list) {
		return append(list, v)
	}
	list[at] = v
	return list
}

// bounds cuts sorted values into up to 2^bits ranges: the first value of each but the first range.
func bounds[T cmp.Ordered](values []T, nulls []bool, bits int) []T {
	var sorted []T
	for i, v := range values {
		if !nulls[i] {
			sorted = append(sorted, v)
		}
	}
	slices.Sort(sorted)
	ranges := 1<<bits - 1 // one less, for the nulls
	var cut []T
	for k := range ranges {
		if at := k * len(sorted) / ranges; at < len(sorted) && (len(cut) == 0 || sorted[at] != cut[len(cut)-1]) {
			cut = append(cut, sorted[at])
		}
	}
	return cut
}
