package lake

import (
	"context"
	"errors"

	freshet "github.com/freshet-io/freshet"
)

// A table that its source cannot read is held back as one is that cannot take its changes. Where there is no table yet nothing is to be parked:
// it begins anew once it can be.

var (
	_ freshet.Holder = (*Target)(nil)
	_ freshet.Holder = (*Group)(nil)
)

// Hold holds the table back for an error that its source has met. Errors: cause, unless ParkOptions.OnError takes it.
func (a *Target) Hold(ctx context.Context, table string, cause error) (there bool, err error) {
	t, err := a.table(table)
	if err != nil {
		return false, err
	}
	if err := t.failed(ctx, cause); !errors.Is(err, freshet.ErrStale) {
		return false, err
	}
	snap, err := t.look(ctx)
	if snap != nil || err != nil {
		return snap != nil, err
	}
	k, err := t.kept(ctx)
	if err != nil {
		return false, err
	}
	t.drop(ctx, k)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts = nil
	return false, nil
}

// Hold holds the table back, and those beside it: none of them gets what the source cannot read.
func (g *Group) Hold(ctx context.Context, table string, cause error) (there bool, err error) {
	for i, p := range g.parts {
		is, err := p.Target.Hold(ctx, p.name(table), cause)
		if err != nil {
			return false, err
		}
		there = there || is && i == 0
	}
	return there, nil
}
