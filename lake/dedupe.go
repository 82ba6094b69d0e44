package lake

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// DedupeOptions have Append take no row twice: one is dropped when the table has a row of the same key whose time is less
// than Within apart. Rows of the table that are older than its greatest time less Within are not looked at, so that what comes
// late is added without being compared with them.
type DedupeOptions struct {
	Key    []string      // columns of atomic types. None may be null
	Within time.Duration // of the source
	Time   string        // a timestamp column, not null
}

func (d *DedupeOptions) columns() []string { return append(slices.Clone(d.Key), d.Time) }

// check finds what is wrong.
func (d *DedupeOptions) check(fault func(string, ...any)) {
	if len(d.Key) == 0 || d.Time == "" {
		fault("dedupe: found the key %q and the time %q, wanted columns for both", d.Key, d.Time)
	}
	if d.Within < time.Microsecond {
		fault("dedupe: found %v for within, wanted at least a microsecond", d.Within)
	}
	seen := map[string]bool{}
	for _, c := range d.columns() {
		low := strings.ToLower(c)
		if seen[low] {
			fault("dedupe: the column %q is named twice", c)
		}
		seen[low] = true
	}
}

// gathers reports whether rows wait until the commit, which finds out what they do to the table.
func (o *TargetOptions) gathers() bool { return o.Mode.keyed() || o.Dedupe != nil }

// key are the columns by which rows of the table are told apart.
func (t *table) key() []string { return t.opts.keyOf(t.name) }

func (o *TargetOptions) keyOf(table string) []string {
	switch {
	case o.Dedupe != nil:
		return o.Dedupe.Key
	case o.Key.Of != nil:
		return o.Key.Of(table)
	}
	return o.Key.Columns
}

// orderColumns are those by which the index of the table orders rows of one key.
func (o *TargetOptions) orderColumns(table *delta.Schema) []string {
	if o.Dedupe != nil {
		return []string{o.Dedupe.Time}
	}
	return o.Key.orderColumns(table)
}

// watch makes the index one of the window.
func (r *rowIndex) watch(d *DedupeOptions) error {
	f := r.fields[r.keys]
	if delta.ArrowType(f.Type).ID() != arrow.TIMESTAMP {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: r.t.name,
			Msg: fmt.Sprintf("dedupe: found a time column %q of type %s, wanted a timestamp", f.Name, f.Type),
			Fix: "derive a timestamp in a step, and name that"}
	}
	r.window = newWindow(d.Within)
	r.identity.NullKeys = true // rows that were there before
	r.identity.Columns = append(r.identity.Columns,
		keyindex.Column{Name: fmt.Sprint(f.Name, windowWord, d.Within), Type: "long"})
	return nil
}

// dedupe finds out which of the gathered rows the table has not. A row counts as soon as it is taken, so that it does
// not matter which rows a commit has together.
func (u *upsert) dedupe() (err error) {
	index := u.index
	columns := u.rows.named(u.t.opts.Dedupe.columns())
	n := len(u.rows.kinds)
	u.seqs = index.sequence.append(nil, columns[index.keys:], n)
	near := &nearby{window: *index.window, taken: map[keyindex.Fingerprint]int64{}}
	for i, later := range []int64{-1, 0, 1} {
		if near.keys[i], err = index.hashAt(columns, later); err != nil {
			return err
		}
		at, orders := make([]keyindex.Position, n), make([]byte, n*index.identity.SequenceBytes)
		if err := index.x.Lookup(near.keys[i], at, orders); err != nil {
			return err
		}
		near.stored[i] = make([]storedTime, n)
		for row, p := range at {
			near.stored[i][row] = storedTime{p.File != 0, timeOf(index.orderOf(orders, row))}
		}
	}
	times := columns[index.keys].(*array.Timestamp)
	for row := range n {
		if slices.ContainsFunc(columns, func(c arrow.Array) bool { return c.IsNull(row) }) {
			continue // it is a reject
		}
		if at := int64(times.Value(row)); near.take(row, at) {
			u.keys = append(u.keys, keyChange{key: near.keys[1][row], last: int32(row),
				order: u.order(int32(row))})
			u.acts = append(u.acts, actInsert)
		} else {
			u.counts.duplicates++
		}
	}
	u.at = make([]keyindex.Position, len(u.keys))
	return nil
}

// timeOf is the time that an order of the index of a window is of.
func timeOf(o order) int64 { return int64(binary.BigEndian.Uint64(o) ^ 1<<63) }

type storedTime struct {
	there bool
	at    int64
}

// nearby is what there is of rows that others may be the same as: in the table, and in the commit.
type nearby struct {
	window
	keys   [3][]keyindex.Fingerprint // of each row: in the bucket before its own, in it, and behind it
	stored [3][]storedTime           // what the table has of these
	taken  map[keyindex.Fingerprint]int64
}

// take reports whether a row is none that is there, and then counts it as one that is.
func (n *nearby) take(row int, at int64) bool {
	for i := range n.keys {
		if s := n.stored[i][row]; s.there && n.same(s.at, at) {
			return false
		}
		if other, ok := n.taken[n.keys[i][row]]; ok && n.same(other, at) {
			return false
		}
	}
	n.taken[n.keys[1][row]] = at
	n.newest = max(n.newest, at)
	return true
}

// same reports whether a row of one key at this time is the same as one that is there.
func (n *nearby) same(there, at int64) bool {
	return there >= n.horizon() && max(there, at)-min(there, at) < n.within
}
