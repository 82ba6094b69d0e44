package delta

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/expr"
)

// statsSieve passes over files whose statistics rule out a condition, before their add actions are made. What
// it does not understand it lets pass: fileStats, which knows more, decides of what is left.
type statsSieve struct {
	ranges []sieveRange
}

// sieveRange is what must hold of a column's statistics: its values reach into [lo, hi].
type sieveRange struct {
	path     []string // of physical names
	typ      Type
	text     bool   // the statistics' JSON is compared with from and to, as text
	form     string // of texts that are moments or dates: all that have this form stand in the order of what they mean
	lo, hi   int64
	from, to []byte
	hasLo    bool
	hasHi    bool
}

// The forms of moments that the sieve compares as texts; a digit is 0.
const (
	dateForm    = "0000-00-00"
	instantForm = "0000-00-00T00:00:00.000Z"
	clockForm   = "0000-00-00T00:00:00.000"
)

// newSieve is the sieve of the plan's condition; nil when nothing can be told by it.
func (p *scanPlan) newSieve() *statsSieve {
	if p.where == nil {
		return nil
	}
	s := &statsSieve{}
	for _, r := range p.where.Ranges() {
		c := p.column(r.Column)
		if c.typ == nil || c.partition {
			continue
		}
		if out := newSieveRange(c, r); out.hasLo || out.hasHi {
			s.ranges = append(s.ranges, out)
		}
	}
	if len(s.ranges) == 0 {
		return nil
	}
	return s
}

// newSieveRange has no bounds when the type has none here.
func newSieveRange(c columnStats, r expr.Range) sieveRange {
	out := sieveRange{path: c.path, typ: c.typ, hasLo: r.Lo != nil, hasHi: r.Hi != nil}
	out.lo, _ = r.Lo.(int64)
	out.hi, _ = r.Hi.(int64)
	switch c.typ {
	case Byte, Short, Integer, Long:
	case String:
		out.text = true
		lo, _ := r.Lo.(string)
		hi, _ := r.Hi.(string)
		out.from, out.to = []byte(lo), []byte(hi)
	case Date:
		out.moments(86_400_000_000, dateForm, "2006-01-02")
	case Timestamp:
		out.moments(1, instantForm, "2006-01-02T15:04:05.000Z")
	case TimestampNTZ:
		out.moments(1, clockForm, "2006-01-02T15:04:05.000")
	default:
		out.hasLo, out.hasHi = false, false
	}
	return out
}

// moments makes the bounds texts, as statistics spell them: a unit is so many µs. Statistics floor to
// milliseconds; so do these texts, which leaves room for what was cut off on both sides. Bounds far away,
// whose years have no four digits, are let go.
func (r *sieveRange) moments(unit int64, form, layout string) {
	const century = 36_525 * 864_000_000_00
	r.text, r.form = true, form
	r.hasLo = r.hasLo && -18*century/unit < r.lo && r.lo < 79*century/unit
	r.hasHi = r.hasHi && -18*century/unit < r.hi && r.hi < 79*century/unit
	if r.hasLo {
		r.from = []byte(time.UnixMicro(r.lo * unit).UTC().Format(layout))
	}
	if r.hasHi {
		r.to = []byte(time.UnixMicro(r.hi * unit).UTC().Format(layout))
	}
}

// rejects reports whether no row of a file with these statistics can satisfy the condition. It reads no
// further than it takes to tell.
func (s *statsSieve) rejects(stats []byte) bool {
	r := &jsonReader{data: stats}
	seen := 0
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "minValues":
			err, seen = s.test(r, (*sieveRange).above), seen+1
		case "maxValues":
			err, seen = s.test(r, (*sieveRange).below), seen+1
		default:
			return r.skip()
		}
		if err == nil && seen == 2 {
			return errStop
		}
		return err
	})
	return errors.Is(err, errFound)
}

// test consumes the least or the greatest values of a file; errFound when one of them is outside of its
// range.
func (s *statsSieve) test(r *jsonReader, outside func(r *sieveRange, value []byte) bool) error {
	if r.peek() != '{' {
		return r.skip()
	}
	return r.object(func(key []byte) error {
		var value []byte
		for i := range s.ranges {
			of := &s.ranges[i]
			if string(key) != of.path[0] {
				continue
			}
			if value == nil {
				var err error
				if value, err = r.raw(); err != nil {
					return err
				}
			}
			v := value
			if len(of.path) > 1 {
				v = findJSON(value, of.path[1:])
			}
			if outside(of, v) {
				return errFound
			}
		}
		if value == nil {
			return r.skip()
		}
		return nil
	})
}

// above reports whether a least value is above the range.
func (r *sieveRange) above(v []byte) bool {
	if !r.hasHi {
		return false
	}
	if r.text {
		text, ok := r.plainText(v)
		return ok && bytes.Compare(text, r.to) > 0
	}
	n, ok := plainInt(v)
	return ok && n > r.hi
}

// below reports whether a greatest value is below the range.
func (r *sieveRange) below(v []byte) bool {
	if !r.hasLo {
		return false
	}
	if r.text {
		text, ok := r.plainText(v)
		return ok && bytes.Compare(text, r.from) < 0
	}
	n, ok := plainInt(v)
	return ok && n < r.lo
}

// plainText is what a JSON string says that has no escapes and the form of the range.
func (r *sieveRange) plainText(v []byte) ([]byte, bool) {
	if len(v) < 2 || v[0] != '"' || bytes.IndexByte(v, '\\') >= 0 {
		return nil, false
	}
	v = v[1 : len(v)-1]
	if r.form == "" {
		return v, true
	}
	if len(v) != len(r.form) {
		return nil, false
	}
	for i, c := range v {
		if f := r.form[i]; f == '0' && (c < '0' || c > '9') || f != '0' && c != f {
			return nil, false
		}
	}
	return v, true
}

func plainInt(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 20 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	return n, err == nil
}

// statsParts are the parts of a file's statistics, each as JSON; nil when it is not there.
type statsParts struct {
	min, max, nulls []byte
	rows            int64 // -1: not known
}

// splitStats takes statistics apart.
func splitStats(stats []byte) (parts statsParts, err error) {
	parts.rows = -1
	r := &jsonReader{data: stats}
	err = r.object(func(key []byte) (err error) {
		switch string(key) {
		case "numRecords":
			if r.null() {
				return nil
			}
			parts.rows, err = r.int()
		case "minValues":
			parts.min, err = r.raw()
		case "maxValues":
			parts.max, err = r.raw()
		case "nullCount":
			parts.nulls, err = r.raw()
		default:
			err = r.skip()
		}
		return err
	})
	return parts, err
}

var errFound = errors.New("found")

// findJSON returns the value at a path of keys in nested objects, as JSON; nil when there is none.
func findJSON(object []byte, path []string) (value []byte) {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	r := &jsonReader{data: object}
	err := r.object(func(key []byte) (err error) {
		if string(key) != path[0] {
			return r.skip()
		}
		if value, err = r.raw(); err != nil {
			return err
		}
		return errFound
	})
	if !errors.Is(err, errFound) {
		return nil
	}
	if len(path) > 1 {
		return findJSON(value, path[1:])
	}
	return value
}

// sievedAtOnce is how many rows of a checkpoint are sieved at once.
const sievedAtOnce = 512

// sieveGroup tells which rows of a row group of a checkpoint the sieve lets pass; any is false when it is
// none. A row that is no add passes.
func (s *statsSieve) sieveGroup(f *parquetFile, group int) (pass []bool, any bool, err error) {
	tests, columns := s.tests(f, f.RowGroup(group).MetaData())
	if len(tests) == 0 {
		return nil, true, nil
	}
	room := f.src.room()
	leaves, err := openLeaves(f, group, columns, room)
	if err != nil {
		return nil, false, err
	}
	readers := readersOf(leaves)
	pass = make([]bool, f.RowGroup(group).NumRows())
	for from := 0; from < len(pass); {
		n, err := fewer(min(len(pass)-from, sievedAtOnce), room, readers, func(n int) error {
			return loadAll(leaves, n, []expr.Span{{From: 0, To: n}})
		})
		if err != nil {
			return nil, false, err
		}
		part := pass[from : from+n]
		for j := range part {
			part[j] = true
			for i, l := range leaves {
				if at := l.next(); at >= 0 && part[j] {
					part[j] = !tests[i](l, at)
				}
			}
		}
		any, from = any || slices.Contains(part, true), from+n
	}
	return pass, any, nil
}

// sieveTest reports whether a value of a leaf rules a file out.
type sieveTest func(l *leaf, at int) bool

// tests chooses the columns of a checkpoint that the sieve looks at: those of stats_parsed where the types
// are what they seem, else the JSON.
func (s *statsSieve) tests(f *parquetFile, meta *metadata.RowGroupMetaData) (tests []sieveTest, columns []int) {
	all := f.MetaData().Schema
	for i := range s.ranges {
		r := &s.ranges[i]
		if at := all.ColumnIndexByName(parsedStats + "minValues." + strings.Join(r.path, ".")); r.hasHi && at >= 0 {
			if test := r.columnTest(all.Column(at), true); test != nil {
				tests, columns = append(tests, test), append(columns, at)
			}
		}
		if at := all.ColumnIndexByName(parsedStats + "maxValues." + strings.Join(r.path, ".")); r.hasLo && at >= 0 {
			if test := r.columnTest(all.Column(at), false); test != nil {
				tests, columns = append(tests, test), append(columns, at)
			}
		}
	}
	if len(tests) > 0 {
		return tests, columns
	}
	if at := all.ColumnIndexByName(statsColumn); at >= 0 && !allNull(meta, at) {
		return []sieveTest{func(l *leaf, at int) bool {
			text, err := l.text(at)
			return err == nil && s.rejects(text)
		}}, []int{at}
	}
	return nil, nil
}

// columnTest tests values of a column of stats_parsed, the least or the greatest of a file; nil when its type
// is another than the table's.
func (r *sieveRange) columnTest(c *schema.Column, least bool) sieveTest {
	if c.MaxRepetitionLevel() != 0 {
		return nil
	}
	slack := int64(0) // what statistics may have cut off
	ok := false
	switch logical := c.LogicalType().(type) {
	case schema.StringLogicalType:
		if r.typ != String || c.PhysicalType() != arrowparquet.Types.ByteArray {
			return nil
		}
		return func(l *leaf, at int) bool {
			if least {
				return bytes.Compare(l.bytes(at), r.to) > 0
			}
			return bytes.Compare(l.bytes(at), r.from) < 0
		}
	case schema.DateLogicalType:
		ok = r.typ == Date
	case schema.TimestampLogicalType:
		ok = (r.typ == Timestamp || r.typ == TimestampNTZ) && logical.TimeUnit() == schema.TimeUnitMicros
		slack = 999
	case schema.IntLogicalType:
		ok = !r.text && logical.IsSigned()
	default:
		ok = !r.text && (logical == nil || logical.IsNone())
	}
	t := c.PhysicalType()
	if !ok || t != arrowparquet.Types.Int32 && t != arrowparquet.Types.Int64 {
		return nil
	}
	return func(l *leaf, at int) bool {
		v, err := l.int(at)
		return err == nil && (least && v > r.hi || !least && v < r.lo-slack)
	}
}
