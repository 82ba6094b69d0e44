package lake

import (
	"context"
	"fmt"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// multiset reports whether the table is one without a key: its rows are told apart by all columns that their source has, and several
// may be alike. The source has to send whole rows then, also of what a delete or an update takes away.
func (o *TargetOptions) multiset(table string) bool {
	if o.Mode != Mirror || o.Key.Deletes != HardDeletes || o.Key.Of == nil {
		return false
	}
	key := o.Key.Of(table)
	return key != nil && len(key) == 0
}

// findAlike finds out what the gathered rows do to a table without a key, whose index shows the snapshot. Each takes a row away or
// brings one; of those that are alike it does not matter which.
func (u *upsert) findAlike(ctx context.Context) error {
	contents, err := u.contents()
	if err != nil {
		return err
	}
	u.hashes, u.lanes = contents, 1
	u.together = &collapser{rows: u.rows, keys: contents}
	arrived := u.together.arrived(u.ineffective())
	counts := make([]int64, len(arrived))
	if !u.rows.empties {
		all := make([]keyindex.Fingerprint, len(arrived))
		for i, changes := range arrived {
			all[i] = changes[0].key
		}
		if counts, err = u.index.count(all); err != nil {
			return err
		}
	}
	u.alike = map[keyindex.Fingerprint]int64{}
	for i, changes := range arrived {
		u.addAlike(changes, counts[i])
	}
	if err := u.findGone(); err != nil {
		return err
	}
	if err := u.findFiles(ctx); err != nil || !u.feed {
		return err
	}
	var gone []int
	for i, a := range u.acts {
		if a == actDelete {
			gone = append(gone, i)
		}
	}
	if len(gone) > 0 {
		u.stored, err = u.readStored(ctx, gone, nil)
	}
	return err
}

// contents is what tells each of the rows from others.
func (u *upsert) contents() ([]keyindex.Fingerprint, error) {
	var names []string
	for _, f := range u.rows.schema.Fields() {
		if containsFold(u.index.given, f.Name) {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("found no column of the source among %s", fieldNames(u.rows.schema))
	}
	return u.index.x.Hasher().AppendRows(nil, names, u.rows.named(names))
}

// ineffective are rows that do nothing: both sides of an update that changed no value, and parts of rows, which are no row that
// could be found. A part that is to be added is rejected.
func (u *upsert) ineffective() []bool {
	skip := make([]bool, len(u.rows.kinds))
	for row, kind := range u.rows.kinds {
		switch {
		case skip[row]:
		case kind == freshet.UpdatePreimage && u.together.idle(int32(row)):
			skip[row] = true
			if next := row + 1; next < len(skip) && u.rows.kinds[next] == freshet.UpdatePostimage && u.hashes[next] == u.hashes[row] {
				skip[next] = true
			}
		case kind == freshet.Truncate:
			skip[row] = true
		case u.rows.partial(int32(row)):
			skip[row] = true
			if u.rows.removes(int32(row)) {
				u.counts.missing++
				continue
			}
			u.reject(int32(row), freshet.CodePartialRow, "some columns were not sent, and the table has no key by which a row of it could tell them")
		}
	}
	return skip
}

// addAlike finds out what becomes of the rows of one content, of which the table has so many. A row that goes is one that came with
// this commit, if there is one. Else it is one that is stored; a row that comes then does not take it back. So a row that stays where it
// is was there all the time, which comparing the table with its source relies on.
func (u *upsert) addAlike(changes []change, stored int64) {
	content := changes[0].key
	left := stored
	var came, went []int32
	for _, c := range changes {
		switch {
		case !u.rows.removes(c.row):
			came = append(came, c.row)
		case len(came) > 0:
			came = came[:len(came)-1]
		case left > 0:
			left--
			went = append(went, c.row)
		default:
			u.counts.missing++
		}
	}
	for i, row := range went {
		u.act(keyChange{key: content.Numbered(stored - 1 - int64(i)), last: row, moved: noRow, delete: true}, actDelete)
	}
	for _, row := range came {
		u.act(keyChange{key: content, last: row, moved: noRow}, actInsert)
	}
	if len(came) > 0 {
		u.alike[content] = left
	}
}

func (u *upsert) act(k keyChange, a act) { u.keys, u.acts = append(u.keys, k), append(u.acts, a) }

// findGone finds where the rows lie that go.
func (u *upsert) findGone() error {
	u.at = make([]keyindex.Position, len(u.keys))
	var keys []keyindex.Fingerprint
	var of []int
	for i, a := range u.acts {
		if a == actDelete {
			keys, of = append(keys, u.keys[i].key), append(of, i)
		}
	}
	at := make([]keyindex.Position, len(keys))
	if err := u.index.x.Lookup(keys, at, nil); err != nil {
		return err
	}
	for n, i := range of {
		if u.at[i] = at[n]; !u.there(i) {
			return fmt.Errorf("%w: it has no row of a number below the last", keyindex.ErrCorrupt)
		}
	}
	return nil
}

// entry is what stands for a key's row, which was written, in the index: of rows that are alike the next number.
func (u *upsert) entry(i int) keyindex.Fingerprint {
	key := u.keys[i].key
	if u.alike == nil {
		return key
	}
	n := u.alike[key]
	u.alike[key]++
	return key.Numbered(n)
}
