package postgres

import (
	"context"
	"time"

	"github.com/freshet-io/freshet"
)

// SlotState is what the server keeps for the slot of a Source.
type SlotState struct {
	freshet.Held
	Status string // of the log that the slot needs: reserved, extended, unreserved, lost; "": the server does not say
	There  bool   // there is such a slot
}

// ReadSlot asks the server twice what it keeps for the slot, as long apart as over says, by which it measures how fast that grows.
// Errors: those of the connection.
func ReadSlot(ctx context.Context, address string, options *Options, over time.Duration) (*SlotState, error) {
	conn, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	o := options.withDefaults()
	w := &watch{o: &o, address: address, version: serverVersion(conn), conn: conn}
	defer w.close(ctx)
	var last reading
	for len(w.past) < 2 {
		r, there, err := w.read(ctx)
		if err != nil {
			return nil, refused("slot "+o.Slot, err)
		}
		if !there {
			return &SlotState{Held: freshet.Held{Place: "slot " + o.Slot, Safe: -1}}, nil
		}
		last, w.past = r, append(w.past, r)
		if len(w.past) == 1 {
			if err := sleep(ctx, over); err != nil {
				return nil, err
			}
		}
	}
	return &SlotState{Held: w.held(), Status: last.status, There: true}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
