package delta

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// statsFromColumns makes the statistics' JSON of a row from the columns of stats_parsed, for checkpoints that
// hold no JSON. Values whose type we cannot say are left out, which never hides rows. Spec: "Checkpoint
// Schema".
func statsFromColumns(leaves []*leaf) fieldRead {
	type column struct {
		leaf   *leaf
		path   []string // below stats_parsed
		format func(value int) (string, bool)
	}
	var columns []column
	for _, l := range leaves {
		if l.maxRep == 0 && len(l.path) > 2 {
			columns = append(columns, column{l, l.path[2:], l.jsonFormat()})
		}
	}
	next := func(a *Add) {
		var o nestedObject
		for _, c := range columns {
			i := c.leaf.next()
			if i < 0 || c.format == nil || a == nil {
				continue
			}
			if text, ok := c.format(i); ok {
				o.set(c.path, text)
			}
		}
		if a != nil && a.Stats == "" {
			a.Stats = o.close()
		}
	}
	return func(rows []Action) error {
		for i := range rows {
			next(rows[i].Add)
		}
		return nil
	}
}

// nestedObject builds a JSON object from leaves that come struct by struct.
type nestedObject struct {
	b    []byte
	open []string
}

func (o *nestedObject) set(path []string, value string) {
	if o.b == nil {
		o.b = append(o.b, '{')
	}
	parents := path[:len(path)-1]
	common := 0
	for common < min(len(parents), len(o.open)) && parents[common] == o.open[common] {
		common++
	}
	for range len(o.open) - common {
		o.b = append(o.b, '}')
	}
	o.open = append(o.open[:common], parents[common:]...)
	for _, name := range parents[common:] {
		o.key(name)
		o.b = append(o.b, '{')
	}
	o.key(path[len(path)-1])
	o.b = append(o.b, value...)
}

func (o *nestedObject) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(appendJSONString(o.b, name), ':')
}

// close returns "" when nothing was set.
func (o *nestedObject) close() string {
	if o.b == nil {
		return ""
	}
	return string(o.b) + strings.Repeat("}", len(o.open)+1)
}

// jsonFormat returns what writes a value as it stands in statistics; nil for types that statistics do not
// have.
func (l *leaf) jsonFormat() func(value int) (string, bool) {
	logical := l.column.LogicalType()
	if d, ok := logical.(schema.DecimalLogicalType); ok {
		return l.decimalFormat(d.Scale())
	}
	whole := func(i int) int64 {
		v, _ := l.int(i)
		return v
	}
	switch l.stored {
	case parquet.PhysicalBoolean:
		return func(i int) (string, bool) { return strconv.FormatBool(l.batch.Fixed[i] != 0), true }
	case parquet.PhysicalInt32:
		if _, ok := logical.(schema.DateLogicalType); ok {
			return func(i int) (string, bool) { return `"` + formatDate(whole(i)) + `"`, true }
		}
		return func(i int) (string, bool) { return strconv.FormatInt(whole(i), 10), true }
	case parquet.PhysicalInt64:
		if ts, ok := logical.(schema.TimestampLogicalType); ok {
			return l.timestampFormat(ts)
		}
		return func(i int) (string, bool) { return strconv.FormatInt(whole(i), 10), true }
	case parquet.PhysicalInt96:
		return func(i int) (string, bool) { return int96Text(arrowparquet.Int96(l.fixed(i))), true }
	case parquet.PhysicalFloat:
		return func(i int) (string, bool) {
			return floatText(float64(math.Float32frombits(binary.LittleEndian.Uint32(l.fixed(i)))), 32)
		}
	case parquet.PhysicalDouble:
		return func(i int) (string, bool) {
			return floatText(math.Float64frombits(binary.LittleEndian.Uint64(l.fixed(i))), 64)
		}
	case parquet.PhysicalBytes:
		if _, ok := logical.(schema.StringLogicalType); ok {
			return func(i int) (string, bool) {
				return string(appendJSONString(nil, string(l.bytes(i)))), utf8.Valid(l.bytes(i))
			}
		}
	}
	return nil
}

func (l *leaf) decimalFormat(scale int32) func(value int) (string, bool) {
	bytes := l.fixed
	switch l.stored {
	case parquet.PhysicalInt32, parquet.PhysicalInt64:
		return func(i int) (string, bool) {
			v, err := l.int(i)
			return decimal128.FromI64(v).ToString(scale), err == nil
		}
	case parquet.PhysicalBytes:
		bytes = l.bytes
	case parquet.PhysicalFixed:
	default:
		return nil
	}
	return func(i int) (string, bool) {
		b := bytes(i)
		if len(b) == 0 || len(b) > 16 {
			return "", false
		}
		return bigEndianDecimal(b).ToString(scale), true
	}
}

func bigEndianDecimal(b []byte) decimal128.Num {
	v := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return decimal128.FromBigInt(v)
}

func (l *leaf) timestampFormat(ts schema.TimestampLogicalType) func(value int) (string, bool) {
	micros := func(v int64) int64 { return v }
	switch ts.TimeUnit() {
	case schema.TimeUnitMillis:
		micros = func(v int64) int64 { return v * 1000 }
	case schema.TimeUnitNanos:
		micros = func(v int64) int64 { return floorDiv(v, 1000) }
	}
	zone := ""
	if ts.IsAdjustedToUTC() {
		zone = "Z"
	}
	return func(i int) (string, bool) {
		v, err := l.int(i)
		return microsText(micros(v), zone), err == nil
	}
}

func floorDiv(v, by int64) int64 {
	q := v / by
	if v%by < 0 {
		q--
	}
	return q
}

func microsText(us int64, zone string) string {
	t := time.UnixMicro(us).UTC()
	return `"` + formatYear(t.Year()) + t.Format("-01-02T15:04:05.000000") + zone + `"`
}

// int96Text formats the Julian day and the nanoseconds of the day; there is no way to overflow.
func int96Text(v arrowparquet.Int96) string {
	const epoch = 2440588 // the Julian day of 1970-01-01
	nanos := int64(binary.LittleEndian.Uint64(v[:8]))
	days := int64(int32(binary.LittleEndian.Uint32(v[8:])))
	return microsText((days-epoch)*86_400_000_000+floorDiv(nanos, 1000), "Z")
}

func floatText(v float64, bits int) (string, bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "", false
	}
	return strconv.FormatFloat(v, 'g', -1, bits), true
}
