package delta

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// statsRules say for which columns an add action has statistics, and how. Spec: "Per-file Statistics".
type statsRules struct {
	clustered   statsPaths // have them always
	columns     statsPaths // nil: the first indexed ones
	indexed     int        // leaf columns from the first on; -1: all
	prefix      int        // UTF-16 units of a string that are kept
	tightBounds bool       // the table can have deletion vectors, so that bounds must say that they are tight
}

// newStatsRules are the rules of a table with these properties that is clustered by the columns of these paths.
func newStatsRules(properties map[string]string, clustered []string) statsRules {
	r := statsRules{indexed: 32, prefix: 32}
	if n, err := strconv.Atoi(properties[propStatsCount]); err == nil {
		r.indexed = n
	}
	if n, err := strconv.Atoi(properties[propStatsPrefix]); err == nil && n > 0 {
		r.prefix = n
	}
	if list := strings.TrimSpace(properties[propStatsColumns]); list != "" {
		r.columns = statsPaths{}
		for _, path := range splitPaths(list) {
			r.columns.add(path)
		}
	}
	r.clustered = statsPaths{}
	for _, path := range clustered {
		r.clustered.add(splitPath(path))
	}
	r.tightBounds = strings.EqualFold(properties[propDeletionVectors], "true")
	return r
}

// statsPaths are columns, and fields of structs, with all that is below them.
type statsPaths map[string]bool

func (s statsPaths) add(path []string) { s[strings.ToLower(joinPath(path))] = true }

func (s statsPaths) hold(path []*parquet.Column) bool {
	if len(s) == 0 {
		return false
	}
	var parts []string
	for _, c := range path {
		if parts = append(parts, c.Source()); s[strings.ToLower(joinPath(parts))] {
			return true
		}
	}
	return false
}

// splitPaths splits a list of column paths at its commas; parts may be quoted by backticks, doubled inside.
func splitPaths(list string) (paths [][]string) {
	quoted, from := false, 0
	for i := range len(list) {
		switch {
		case list[i] == '`':
			quoted = !quoted
		case list[i] == ',' && !quoted:
			paths = append(paths, splitPath(strings.TrimSpace(list[from:i])))
			from = i + 1
		}
	}
	return append(paths, splitPath(strings.TrimSpace(list[from:])))
}

// joinPaths is the list that splitPaths reads.
func joinPaths(paths [][]string) string {
	list := make([]string, len(paths))
	for i, path := range paths {
		list[i] = joinPath(path)
	}
	return strings.Join(list, ",")
}

// checkStatsColumns makes sure that a list of columns with statistics names columns that the table has.
func checkStatsColumns(schema *Schema, list string) error {
	if strings.TrimSpace(list) == "" {
		return nil
	}
	for _, path := range splitPaths(list) {
		if _, err := findColumn(schema, joinPath(path)); err != nil {
			return fmt.Errorf("property %s: %w", propStatsColumns, err)
		}
	}
	return nil
}

// wants reports whether the n-th leaf, of this path, has statistics.
func (r *statsRules) wants(n int, path []*parquet.Column) bool {
	switch {
	case r.clustered.hold(path):
		return true
	case r.columns != nil:
		return r.columns.hold(path)
	}
	return r.indexed < 0 || n < r.indexed
}

// stats returns the statistics of a finished file.
func (l *fileLayout) stats(w *parquet.Writer) string {
	var lo, hi, nulls nestedJSON
	r, n := &l.rules, 0
	w.Visit(l.counted, func(path []*parquet.Column, s *parquet.Stats) {
		n++
		if !r.wants(n-1, path) {
			return
		}
		leaf := path[len(path)-1]
		if v, ok := r.bound(leaf, s, false); ok {
			lo.set(path, v)
		}
		if v, ok := r.bound(leaf, s, true); ok {
			hi.set(path, v)
		}
		nulls.set(path, strconv.FormatInt(s.Nulls, 10))
	})
	b := append([]byte(`{"numRecords":`), strconv.FormatInt(w.Rows(), 10)...)
	b = append(b, `,"minValues":`...)
	b = append(b, lo.close()...)
	b = append(b, `,"maxValues":`...)
	b = append(b, hi.close()...)
	b = append(b, `,"nullCount":`...)
	b = append(b, nulls.close()...)
	if r.tightBounds {
		b = append(b, `,"tightBounds":true`...)
	}
	return string(append(b, '}'))
}

// nestedJSON builds an object whose fields come as paths, those of one struct after another.
type nestedJSON struct {
	b    []byte
	open []*parquet.Column
}

func (j *nestedJSON) set(path []*parquet.Column, value string) {
	if j.b == nil {
		j.b = append(j.b, '{')
	}
	parents := path[:len(path)-1]
	common := 0
	for common < min(len(parents), len(j.open)) && parents[common] == j.open[common] {
		common++
	}
	for range len(j.open) - common {
		j.b = append(j.b, '}')
	}
	j.open = append(j.open[:common], parents[common:]...)
	for _, c := range parents[common:] {
		j.key(c.Name)
		j.b = append(j.b, '{')
	}
	j.key(path[len(path)-1].Name)
	j.b = append(j.b, value...)
}

func (j *nestedJSON) key(name string) {
	if j.b[len(j.b)-1] != '{' {
		j.b = append(j.b, ',')
	}
	j.b = append(appendJSONString(j.b, name), ':')
}

func (j *nestedJSON) close() []byte {
	if j.b == nil {
		return []byte("{}")
	}
	return append(j.b, strings.Repeat("}", len(j.open)+1)...)
}

// bound returns the least or greatest value of a column as JSON; ok is false where there is none that readers of any
// engine may prune by.
func (r *statsRules) bound(c *parquet.Column, s *parquet.Stats, upper bool) (text string, ok bool) {
	if !s.HasBounds {
		return "", false
	}
	v := s.MinInt
	if upper {
		v = s.MaxInt
	}
	switch c.Kind {
	case parquet.Int8, parquet.Int16, parquet.Int32, parquet.Int64:
		return strconv.FormatInt(v, 10), true
	case parquet.Date:
		return quoteMoment(time.Unix(v*86400, 0).UTC(), "2006-01-02")
	case parquet.Timestamp:
		return quoteMoment(time.UnixMicro(v).UTC(), "2006-01-02T15:04:05.000Z") // cuts off, so it floors
	case parquet.TimestampNTZ:
		return quoteMoment(time.UnixMicro(v).UTC(), "2006-01-02T15:04:05.000")
	case parquet.Decimal:
		return decimalBound(c, s, upper), true
	case parquet.Float:
		return floatBound(s, upper, 32)
	case parquet.Double:
		return floatBound(s, upper, 64)
	case parquet.String:
		return r.stringBound(s, upper)
	}
	return "", false
}

func quoteMoment(t time.Time, layout string) (string, bool) {
	if t.Year() < 0 || t.Year() > 9999 {
		return "", false
	}
	return `"` + t.Format(layout) + `"`, true
}

func decimalBound(c *parquet.Column, s *parquet.Stats, upper bool) string {
	v := s.MinDecimal
	switch {
	case c.Precision <= 18 && upper:
		v = decimal128.FromI64(s.MaxInt)
	case c.Precision <= 18:
		v = decimal128.FromI64(s.MinInt)
	case upper:
		v = s.MaxDecimal
	}
	return v.ToString(int32(c.Scale))
}

// floatBound leaves out infinities, which JSON cannot say, and the maximum of values that have a NaN, which is
// greater than all numbers.
func floatBound(s *parquet.Stats, upper bool, bits int) (string, bool) {
	v := s.MinFloat
	if upper {
		v = s.MaxFloat
	}
	if math.IsInf(v, 0) || upper && s.HasNaN {
		return "", false
	}
	text := strconv.FormatFloat(v, 'g', -1, bits)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text, true
}

func (r *statsRules) stringBound(s *parquet.Stats, upper bool) (string, bool) {
	text, ok := string(s.MinBytes), true
	if upper {
		text = string(s.MaxBytes)
	}
	if !utf8.ValidString(text) {
		return "", false
	}
	if upper {
		text, ok = truncateMax(text, r.prefix)
	} else {
		text = text[:unitsPrefix(text, r.prefix)]
	}
	if !ok {
		return "", false
	}
	return string(appendJSONString(nil, text)), true
}

// unitsPrefix returns the bytes of the longest prefix of at most n UTF-16 units that splits no character.
func unitsPrefix(s string, n int) int {
	if len(s) <= n {
		return len(s)
	}
	for i, r := range s {
		if n -= units(r); n < 0 {
			return i
		}
	}
	return len(s)
}

func units(r rune) int {
	if r > 0xffff {
		return 2
	}
	return 1
}

// truncateMax shortens a greatest value to a text that is not less than any with its prefix: the prefix and one
// character that is greater than the one that was cut off. U+10FFFF has no greater one, so it stays in the prefix,
// which may become twice as long; ok is false when that does not suffice.
func truncateMax(s string, n int) (string, bool) {
	cut := unitsPrefix(s, n)
	if cut == len(s) {
		return s, true
	}
	for i, r := range s[cut:] {
		if unitsPrefix(s[:cut+i], 2*n) < cut+i {
			break
		}
		if r < 0x7f {
			return s[:cut+i] + "\x7f", true
		}
		if r < utf8.MaxRune {
			return s[:cut+i] + string(utf8.MaxRune), true
		}
	}
	return "", false
}
