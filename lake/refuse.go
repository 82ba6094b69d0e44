package lake

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// refuse makes rejects of the changes that give a key a row which the table does not take, for this reason, and finds out what
// becomes of the key without them.
func (w *upsertWriter) refuse(ctx context.Context, i int, code freshet.Code, why string) (act, error) {
	k := &w.keys[i]
	if w.alike != nil {
		w.reject(k.last, code, why)
		w.acts[i] = actNone
		return actNone, nil
	}
	blamed, err := w.blamed(ctx, i)
	if err != nil {
		return actNone, err
	}
	if len(blamed) == 0 {
		w.reject(k.last, code, why)
		blamed = []int32{k.last}
	}
	k.changes = slices.DeleteFunc(k.changes, func(c change) bool { return slices.Contains(blamed, c.row) })
	w.logged = slices.DeleteFunc(w.logged, func(d deletion) bool { return d.key == i })
	counts := w.counts
	w.acts[i] = w.walk(i)
	w.counts = counts
	return w.acts[i], nil
}

// objection is what the table has against a row.
type objection struct {
	code freshet.Code
	why  string
}

// upon tries each of some, from the first on, upon those before it that the table takes, and tells refuse of the others. It
// returns those that it takes. try has no objection where there is none.
func upon[T any](some []T, try func(taken []T, next T) (*objection, error), refuse func(next T, o *objection)) (
	taken []T, err error) {
	for _, next := range some {
		o, err := try(taken, next)
		switch {
		case err != nil:
			return nil, err
		case o != nil:
			refuse(next, o)
		default:
			taken = append(taken, next)
		}
	}
	return taken, nil
}

// blamed rejects, of the changes that make the row of a key together, each that spoils what those before it make.
func (w *upsertWriter) blamed(ctx context.Context, i int) (blamed []int32, err error) {
	k := &w.keys[i]
	row := w.puts([]int{i})[0]
	upwards := slices.Clone(k.puts())
	slices.Reverse(upwards)
	_, err = upon(upwards, func(taken []int32, next int32) (*objection, error) {
		older := slices.Clone(taken)
		slices.Reverse(older)
		row.keyChange = &keyChange{key: k.key, last: next, moved: noRow, few: &keyRest{older: older}}
		rows, err := w.assemble([]put{row})
		if err != nil {
			return nil, err
		}
		return against(ctx, w.edit, rows)
	}, func(next int32, o *objection) {
		w.reject(next, o.code, o.why)
		blamed = append(blamed, next)
	})
	return blamed, err
}

// against is what the table has against rows, which it releases.
func against(ctx context.Context, edit *delta.Edit, rows arrow.RecordBatch) (*objection, error) {
	defer rows.Release()
	err := edit.Check(ctx, rows)
	if code, why, refused := refusedRow(err); refused {
		return &objection{code, why}, nil
	}
	return nil, err
}

// refused finds by halves the keys of a history that the table does not accept, and what was said of them that it refuses.
func (w *historyWriter) refused(ctx context.Context, keys []int, err error) error {
	switch _, _, refused := refusedRow(err); {
	case !refused:
		return err
	case len(keys) > 1:
		if err := w.putKeys(ctx, keys[:len(keys)/2]); err != nil {
			return err
		}
		return w.putKeys(ctx, keys[len(keys)/2:])
	}
	i := keys[0]
	all, counts := w.said[i], w.history.counts
	w.unreject(all)
	w.said[i], err = upon(all, func(taken []saying, next saying) (*objection, error) {
		w.said[i] = append(slices.Clone(taken), next)
		return w.tried(ctx, i)
	}, func(next saying, o *objection) { w.history.reject(next.by, o.code, o.why) })
	if err != nil {
		return err
	}
	w.plan(i)
	w.history.counts = counts
	return w.putKeys(ctx, keys)
}

// unreject takes back what planning has rejected of what was said: it is planned anew.
func (h *history) unreject(all []saying) {
	mine := func(r keyReject) bool {
		return slices.ContainsFunc(all, func(s saying) bool { return s.by == r.row })
	}
	h.rejects, h.stays = slices.DeleteFunc(h.rejects, mine), slices.DeleteFunc(h.stays, mine)
}

// tried plans a key and tells what the table has against its rows. It rejects nothing.
func (w *historyWriter) tried(ctx context.Context, i int) (*objection, error) {
	h := w.history
	rejects, stays := len(h.rejects), len(h.stays)
	h.plan(i)
	h.rejects, h.stays = h.rejects[:rejects], h.stays[:stays]
	k := w.differs(i)
	if len(k.put) == 0 {
		return nil, nil
	}
	rows, err := w.assemblePeriods(k.put)
	if err != nil {
		return nil, err
	}
	return against(ctx, w.edit, rows)
}
