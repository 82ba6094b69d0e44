package quality

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// candidate is a key whose rows differed when they were read. It is looked at on both sides in turn, until it is proven that
// they are the same, or that they are not:
//
//	table[0] ≤ source[1] ≤ table[1] ≤ source[2] ≤ …    each shows all that the one before shows
//
// Where the row of the source is one and the same before and behind a look at the table, or that of the table before and behind
// one at the source, what lies between shows that row, too: it must be equal.
type candidate struct {
	source, table looked // the newest
	before        [2]looked
}

// looked is what one look has found of a key.
type looked struct {
	is       bool // it has looked
	rows     []rowState
	rejected bool
	values   []string // of rows that have no key, for people
}

// rowState is a row as far as it is compared.
type rowState struct {
	mark   uint64
	time   int64
	hashes []uint64 // of its values
}

func (l *looked) equal(o *looked) bool {
	return len(l.rows) == len(o.rows) &&
		slices.EqualFunc(l.rows, o.rows, func(a, b rowState) bool { return slices.Equal(a.hashes, b.hashes) })
}

// mark is that of the only row; 0: there is none.
func (l *looked) mark() uint64 {
	if len(l.rows) != 1 {
		return 0
	}
	return l.rows[0].mark
}

// same reports whether both looks have found one and the same row.
func (l *looked) same(o *looked) bool {
	return l.is && o.is && len(l.rows) == 1 && len(o.rows) == 1 && l.rows[0].mark == o.rows[0].mark
}

// settle finds out which of the keys are wrong, and forgets them. Errors: those of both sides.
func (v *verifier) settle(ctx context.Context, keys map[string]*candidate) error {
	v.result.Rechecked += int64(len(keys))
	if len(keys) == 0 {
		return nil
	}
	if err := v.lookAtTable(ctx, keys, 0); err != nil {
		return err
	}
	if !v.rows.alike {
		v.decide(keys, func(c *candidate) (Class, bool) { return Duplicate, len(c.table.rows) > 1 })
	}
	until := time.Now().Add(v.o.Wait)
	for len(keys) > 0 && !v.result.More {
		high, settled, err := v.lookAtSource(ctx, keys)
		if err != nil {
			return err
		}
		v.decide(keys, func(c *candidate) (Class, bool) {
			if v.rows.alike {
				return Missing, settled && c.source.stayed(&c.before[0]) > len(c.table.rows)
			}
			return c.verdict(settled && c.source.same(&c.before[0]))
		})
		if len(keys) == 0 || time.Now().After(until) {
			break
		}
		if err := v.lookAtTable(ctx, keys, high); err != nil {
			return err
		}
		v.decide(keys, func(c *candidate) (Class, bool) {
			if v.rows.alike {
				return Extra, settled && c.table.stayed(&c.before[1]) > len(c.source.rows)
			}
			return c.verdict(settled && c.table.same(&c.before[1]))
		})
	}
	v.result.Undecided += int64(len(keys))
	clear(keys)
	return nil
}

// stayed is how many rows both looks have found: so many there were all the time between.
func (l *looked) stayed(o *looked) (n int) {
	if !l.is || !o.is {
		return 0
	}
	before := make(map[uint64]bool, len(o.rows))
	for _, r := range o.rows {
		before[r.mark] = true
	}
	for _, r := range l.rows {
		if before[r.mark] {
			n++
		}
	}
	return n
}

// verdict is what is wrong with the key; certain says that the newest looks at both sides must be equal.
func (c *candidate) verdict(certain bool) (Class, bool) {
	switch source, table := c.source.rows, c.table.rows; {
	case len(table) > 1:
		return Duplicate, true
	case !certain:
		return "", false
	case len(source) == 0:
		return Extra, true
	case len(table) == 0:
		return Missing, true
	case source[0].time > 0 && table[0].time > 0 && source[0].time > table[0].time:
		return Stale, true
	}
	return Different, true
}

// decide takes the keys out of which something is known: that they are equal, in quarantine, or what is wrong.
func (v *verifier) decide(keys map[string]*candidate, judge func(c *candidate) (Class, bool)) {
	for key, c := range keys {
		class, wrong := judge(c)
		switch {
		case wrong && class == Duplicate:
		case c.source.rejected:
			v.result.Rejected++
			wrong = false
		case c.source.is && c.source.equal(&c.table):
			wrong = false
		case !wrong:
			continue
		}
		delete(keys, key)
		if !wrong {
			continue
		}
		d := Difference{Class: class, Rows: 1, Key: splitKey(key), Mark: c.source.mark()}
		if v.rows.alike {
			d.Rows, d.Key = int64(len(c.source.rows)-len(c.table.rows)), c.source.values
			if class == Extra {
				d.Rows, d.Key = -d.Rows, c.table.values
			}
		}
		if class == Stale || class == Different {
			for i, hash := range c.source.rows[0].hashes {
				if c.table.rows[0].hashes[i] != hash {
					d.Columns = append(d.Columns, v.rows.names[i])
				}
			}
		}
		v.found(d)
		if v.o.Mend != nil {
			v.wrong = append(v.wrong, d)
		}
	}
}

// lookAtSource looks at the rows of the keys in the source.
func (v *verifier) lookAtSource(ctx context.Context, keys map[string]*candidate) (high int64, settled bool, err error) {
	all := make([][]string, 0, len(keys))
	for key, c := range keys {
		c.before[0], c.source = c.source, looked{is: true}
		all = append(all, splitKey(key))
	}
	return v.origin.Look(ctx, all, func(rows Rows) error {
		return v.look(rows, keys, func(c *candidate) *looked { return &c.source })
	})
}

// lookAtTable looks at the rows of the keys in the table, once it holds everything up to least.
func (v *verifier) lookAtTable(ctx context.Context, keys map[string]*candidate, least int64) error {
	for _, c := range keys {
		c.before[1], c.table = c.table, looked{is: true}
	}
	wanted := func(columns arrow.RecordBatch) ([]bool, error) {
		return v.rows.choose(columns, func(key []string) bool { return keys[joinKey(key)] != nil })
	}
	within, cancel := context.WithTimeout(ctx, v.o.Wait)
	defer cancel()
	_, err := v.table.Read(within, least, wanted, func(rows Rows) error {
		return v.look(rows, keys, func(c *candidate) *looked { return &c.table })
	})
	if err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
		return &BehindError{Keys: len(keys), Wait: v.o.Wait}
	}
	return err
}

// look takes note of rows of the keys.
func (v *verifier) look(rows Rows, keys map[string]*candidate, side func(c *candidate) *looked) error {
	if err := v.rows.bind(rows.Batch); err != nil {
		return err
	}
	for row := range int(rows.Batch.NumRows()) {
		key, whole, err := v.rows.keyOf(row)
		if err != nil {
			return err
		}
		c := keys[joinKey(key)]
		if !whole || c == nil {
			continue
		}
		at := side(c)
		if rows.Rejected != nil && rows.Rejected[row] {
			at.rejected = true
			continue
		}
		state := rowState{mark: rows.Marks[row]}
		if rows.Times != nil {
			state.time = rows.Times[row]
		}
		switch {
		case !v.rows.alike:
			state.hashes, err = v.rows.hashes(row)
		case at.values == nil:
			at.values = v.rows.values(row)
		}
		if err != nil {
			return err
		}
		at.rows = append(at.rows, state)
	}
	return nil
}
