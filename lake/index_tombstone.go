package lake

import (
	"bytes"
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// showsTombstones reports whether the index has the tombstones that it is to show.
func (r *rowIndex) showsTombstones() bool {
	return r.t.tombstones == nil || r.x.Note() == markOf(r.tombs).String()
}

// bury brings into the change the tombstones that the index has not, or whose keys lose their rows in it. Errors:
// store.ErrNotFound when the index must be made anew.
func (r *rowIndex) bury(ctx context.Context, c *indexChange) error {
	if r.t.tombstones == nil {
		return nil
	}
	known, now := parseMark(r.x.Note()), markOf(r.tombs)
	if err := known.leadsTo(now); err != nil || r.tombs == nil {
		return err
	}
	if known.table != "" && known.version < now.version {
		if err := r.buryCommits(ctx, c, known.version+1); err != nil {
			return err
		}
	}
	if known.table == "" || c.moved || len(c.keys) > 0 {
		if err := r.buryAll(ctx, c); err != nil {
			return err
		}
	}
	c.Note(now.String())
	return nil
}

// buryAll brings all tombstones into the change.
func (r *rowIndex) buryAll(ctx context.Context, c *indexChange) error {
	var files []delta.Add
	for add, err := range r.tombs.Files(ctx, nil) {
		if err != nil {
			return err
		}
		files = append(files, *add)
	}
	return r.eachTombstone(ctx, r.tombs, files, func(keys []keyindex.Fingerprint, orders []byte) error {
		return r.buryKeys(c, keys, orders)
	})
}

// buryCommits brings into the change what the commits from a version on did to tombstones.
func (r *rowIndex) buryCommits(ctx context.Context, c *indexChange, from int64) error {
	var came, went []delta.Add
	for lc, err := range r.tombs.Table().Commits(ctx, from, r.tombs.Version()) {
		if err != nil {
			return err
		}
		for _, a := range lc.Actions {
			switch {
			case a.Add != nil && a.Add.DataChange:
				came = append(came, *a.Add)
			case a.Remove != nil && a.Remove.DataChange:
				went = append(went, removed(a.Remove))
			}
		}
	}
	err := r.eachTombstone(ctx, r.tombs, went, func(keys []keyindex.Fingerprint, orders []byte) error {
		return r.forgetKeys(c, keys, orders)
	})
	if err != nil {
		return err
	}
	return r.eachTombstone(ctx, r.tombs, came, func(keys []keyindex.Fingerprint, orders []byte) error {
		return r.buryKeys(c, keys, orders)
	})
}

// removed is the file as it was before it was removed.
func removed(r *delta.Remove) delta.Add {
	add := delta.Add{Path: r.Path, PartitionValues: r.PartitionValues, DeletionVector: r.DeletionVector}
	if r.Size != nil {
		add.Size = *r.Size
	}
	return add
}

// eachTombstone reads tombstones of these files, batch by batch: the key and the order of each.
func (r *rowIndex) eachTombstone(ctx context.Context, tombs *delta.Snapshot, files []delta.Add,
	take func(keys []keyindex.Fingerprint, orders []byte) error) error {
	columns := append(append([]string(nil), r.columns...), tombstoneOrigin, tombstoneOriginID, tombstoneLane, tombstoneSeq)
	for rows, err := range tombs.ScanFiles(ctx, files, &delta.ScanOptions{Columns: columns}) {
		if err != nil {
			return err
		}
		keys, orders, err := r.tombstoneOrders(rows.Batch)
		rows.Batch.Release()
		if err != nil {
			return err
		}
		if err := take(keys, orders); err != nil {
			return err
		}
	}
	return nil
}

// tombstoneOrders are the keys and orders of a batch of tombstones.
func (r *rowIndex) tombstoneOrders(b arrow.RecordBatch) ([]keyindex.Fingerprint, []byte, error) {
	columns := make([]arrow.Array, len(r.columns))
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range columns {
		var err error
		if columns[i], err = r.fields[i].Conform(b.Column(i)); err != nil {
			return nil, nil, err
		}
	}
	keys, err := r.x.Hasher().Append(nil, columns[:r.keys])
	if err != nil {
		return nil, nil, err
	}
	text := func(c, i int) string { return b.Column(len(columns) + c).(*array.String).Value(i) }
	seqs := b.Column(len(columns) + 3).(*array.Int64)
	w := r.sequence.width
	sequences := r.sequence.append(nil, columns[r.keys:], len(keys))
	var orders []byte
	for i := range keys {
		lane := freshet.Lane{Origin: text(0, i), OriginID: text(1, i), Name: text(2, i)}
		orders = append(orders, newOrder(sequences[i*w:(i+1)*w], lane, seqs.Value(i))...)
	}
	return keys, orders, nil
}

// buryKeys brings those of the tombstones into the change whose keys have no row, and no greater tombstone.
func (r *rowIndex) buryKeys(c *indexChange, keys []keyindex.Fingerprint, orders []byte) error {
	return r.pick(keys, orders, c.Bury, func(key keyindex.Fingerprint, at keyindex.Position, known, order order) bool {
		if path, has := r.x.Path(at.File); has && !c.files[path] && !c.keys[key] {
			return false
		}
		if at.File == keyindex.Tombstone && bytes.Compare(known, order) > 0 {
			return false
		}
		delete(c.keys, key)
		return true
	})
}

// forgetKeys takes out of the index the tombstones that are not above these.
func (r *rowIndex) forgetKeys(c *indexChange, keys []keyindex.Fingerprint, orders []byte) error {
	forget := func(keys []keyindex.Fingerprint, _ []byte) error { return c.Delete(keys) }
	return r.pick(keys, orders, forget, func(_ keyindex.Fingerprint, at keyindex.Position, known, order order) bool {
		return at.File == keyindex.Tombstone && bytes.Compare(known, order) <= 0
	})
}

// pick looks the keys up and passes on those that is says.
func (r *rowIndex) pick(keys []keyindex.Fingerprint, orders []byte, take func([]keyindex.Fingerprint, []byte) error,
	is func(key keyindex.Fingerprint, at keyindex.Position, known, order order) bool) error {
	at := make([]keyindex.Position, len(keys))
	known := make([]byte, len(orders))
	if err := r.x.Lookup(keys, at, known); err != nil {
		return err
	}
	var chosen []keyindex.Fingerprint
	var theirs []byte
	for i, key := range keys {
		if o := r.orderOf(orders, i); is(key, at[i], r.orderOf(known, i), o) {
			chosen, theirs = append(chosen, key), append(theirs, o...)
		}
	}
	return take(chosen, theirs)
}
