package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
)

// bound is a place in the order of a table's key: the values of the key's columns, as text. nil: before the first row, or
// behind the last.
type bound []string

// chunk is the rows of a table behind one bound up to and with another: what is read at once.
//
//	nil ──chunk 1──▶ bound ──chunk 2──▶ bound … ──chunk n──▶ nil
//
// Its bookmark is kept before its rows are committed: who reads the chunk again reads the rows between the same bounds.
type chunk struct {
	seq   int64
	after bound
	upto  bound // nil: all that follows
	rows  int64 // up to its end, as planned
}

// chunkMark is the bookmark of a chunk: where it ends, in the order of which columns, and how many rows there were up to there
// when it was planned.
type chunkMark struct {
	Key  []string `json:"key,omitempty"`
	Upto bound    `json:"upto"`
	Rows int64    `json:"rows"`
}

func parseMark(b []byte) (*chunkMark, error) {
	var m chunkMark
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("found %.100q, wanted the bookmark of a chunk: %w", b, err)
	}
	if m.Upto != nil && len(m.Upto) != len(m.Key) {
		return nil, fmt.Errorf("found %.100q, wanted a bound of as many values as the key has columns", b)
	}
	return &m, nil
}

// where is the condition that selects the rows of the chunk.
func (c *chunk) where(key []keyColumn) string {
	var parts []string
	if c.after != nil {
		parts = append(parts, keyTuple(key)+" > "+c.after.tuple())
	}
	if c.upto != nil {
		parts = append(parts, keyTuple(key)+" <= "+c.upto.tuple())
	}
	return strings.Join(parts, " and ")
}

// boundQuery asks for where the row stands that is so many rows behind a bound: nothing, if there are not as many.
func boundQuery(from string, key []keyColumn, after bound, rows int64) string {
	var where string
	if after != nil {
		where = " where " + keyTuple(key) + " > " + after.tuple()
	}
	return fmt.Sprintf("select %[1]s from %[2]s%[3]s order by %[1]s offset %[4]d limit 1", keyNames(key), from, where, rows-1)
}

// keyTuple is the columns of the key as a row of SQL.
func keyTuple(key []keyColumn) string { return "(" + keyNames(key) + ")" }

func keyNames(key []keyColumn) string {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = quoteName(k.name)
	}
	return strings.Join(names, ", ")
}

// tuple is the bound as a row of SQL, whose values take the types of the columns that they are compared with.
func (b bound) tuple() string {
	values := make([]string, len(b))
	for i, v := range b {
		values[i] = quoteText(v)
	}
	return "(" + strings.Join(values, ", ") + ")"
}

// compare puts a row's key before (-1), at (0) or behind (1) the bound, which is not nil.
func (b bound) compare(key []keyColumn, values [][]byte) int {
	for i, k := range key {
		if n := k.compare(values[i], []byte(b[i])); n != 0 {
			return n
		}
	}
	return 0
}
