package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet"
)

// SlotState is what the server keeps for the slot of a Source, and what it has for it to read.
type SlotState struct {
	freshet.Held
	Status string // of the log that the slot needs: reserved, extended, unreserved, lost; "": the server does not say
	There  bool   // there is such a slot
	Active bool   // a connection reads from it
	Lost   string // why nothing can be read from it any more; "": it can
	Short  bool   // the server is about to give it up, or its disk is about to be full
	Log    freshet.Lane
	End    int64 // where the log ends, as a seq
	Tables []StateTable
}

// StateTable is a table that is read.
type StateTable struct {
	Schema, Name string
	History      freshet.Lane // of the rows that were there before; it is at WholeHistory once all are loaded
}

// Problem says what is wrong with the slot, or soon will be; "": nothing.
func (s *SlotState) Problem() string {
	switch {
	case !s.There:
		return s.Place + " is not there"
	case s.Lost != "":
		return s.Place + " is lost: " + s.Lost
	case s.Short || s.Status == "unreserved":
		return runsOut(s.Disk)
	}
	return ""
}

// ReadSlot asks the server twice what it keeps for the slot, as long apart as over says, by which it measures how fast that grows.
// Of a slot that is read that is a glimpse: the server drops log in steps. Errors: those of the connection.
func ReadSlot(ctx context.Context, address string, options *Options, over time.Duration) (*SlotState, error) {
	o := options.withDefaults()
	on, err := whoAnswers(ctx, address)
	if err != nil {
		return nil, err
	}
	conn, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	w := &watch{o: &o, address: address, version: on.version, conn: conn}
	defer w.close(ctx)
	s := &SlotState{Held: freshet.Held{Place: "slot " + o.Slot, Safe: -1}, Log: on.lane(), End: int64(on.flushed)}
	if err := s.read(ctx, w, over); err != nil {
		return nil, refused("slot "+o.Slot, err)
	}
	members, err := readMembers(ctx, conn, &o)
	if err != nil {
		return nil, refused("slot "+o.Slot, err)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if m := members[name]; m.published {
			history := s.Log
			history.Name = m.oid
			s.Tables = append(s.Tables, StateTable{Schema: m.schema, Name: strings.TrimPrefix(name, m.schema+"."), History: history})
		}
	}
	return s, nil
}

// whoAnswers asks the server at the address who it is.
func whoAnswers(ctx context.Context, address string) (*server, error) {
	conn, err := dial(ctx, address, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return identify(ctx, conn)
}

// read fills in what the server says of the slot.
func (s *SlotState) read(ctx context.Context, w *watch, over time.Duration) error {
	have, err := findSlot(ctx, w.conn, w.o.Slot, w.version)
	if err != nil || have == nil {
		return err
	}
	s.There, s.Lost = true, have.lost()
	for len(w.past) < 2 {
		r, there, err := w.read(ctx)
		if err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("it was dropped just now")
		}
		s.Status, s.Active = r.status, r.active
		if w.past = append(w.past, r); len(w.past) == 1 {
			if err := sleep(ctx, over); err != nil {
				return err
			}
		}
	}
	s.Held = w.held()
	s.Short = short(s.Held, !s.Active)
	return nil
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
