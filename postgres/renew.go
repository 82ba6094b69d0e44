package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// Renewed is a slot that was made anew, and the hole before it.
type Renewed struct {
	Lane   freshet.Lane
	From   int64    // up to here every table holds everything
	To     int64    // where the new slot begins: what was committed in between is in no log that can be read
	Tables []string // that hold something, by their names in the lake
}

// Kept is what Renew needs to know of the tables in the lake, and to keep with them.
type Kept struct {
	// Held says up to where a table holds the log; false: nothing of it.
	Held func(table string, log freshet.Lane) (int64, bool, error)
	// Bookmark: as freshet.Downstream has it.
	Bookmark func(ctx context.Context, table, name string, mark []byte) ([]byte, error)
	// Begin is called before anything is done to the server.
	Begin func() error
}

// bookmarks are what of a Downstream timelines need, and nothing else.
type bookmarks struct {
	freshet.Downstream
	keep func(ctx context.Context, table, name string, mark []byte) ([]byte, error)
}

func (b bookmarks) Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error) {
	return b.keep(ctx, table, name, mark)
}

// Renew makes the slot of a source anew that has lost what its tables need next. Errors: those of the connection, and of what keeps the
// tables; CodeUsage where nothing is lost; CodeSourceRefused for a slot that is being read; CodeTimeline and others of checkServer for a
// server that has lost transactions itself.
func Renew(ctx context.Context, address string, options *Options, kept *Kept) (*Renewed, error) {
	conn, err := dial(ctx, address, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	o := options.withDefaults()
	on, err := identify(ctx, conn)
	if err != nil {
		return nil, err
	}
	r := &Renewed{Lane: on.lane()}
	at, err := r.ask(ctx, address, &o, kept.Held)
	if err != nil {
		return nil, err
	}
	s := &Source{o: o, down: bookmarks{keep: kept.Bookmark}}
	moved, err := s.followTimelines(ctx, conn, on, at)
	if err == nil {
		err = checkServer(on, at)
	}
	if err != nil {
		return nil, err
	}
	gone, err := r.lost(ctx, conn, &o, on, at)
	if err != nil {
		return nil, err
	}
	if err := kept.Begin(); err != nil {
		return nil, err
	}
	if gone {
		if _, err := conn.Exec(ctx, "DROP_REPLICATION_SLOT "+quoteName(o.Slot)).ReadAll(); err != nil {
			return nil, dropped("slot "+o.Slot, err)
		}
	}
	to, err := createSlot(ctx, conn, o.Slot, on)
	if err != nil {
		return nil, refused("slot "+o.Slot, fmt.Errorf("create it: %w", err))
	}
	r.To = int64(to)
	return r, s.noteTimelines(ctx, on, moved)
}

// ask asks up to where the tables hold the log.
func (r *Renewed) ask(ctx context.Context, address string, o *Options, held func(string, freshet.Lane) (int64, bool, error)) (
	map[string]pgoutput.LSN, error) {
	asking, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = asking.Close(context.WithoutCancel(ctx)) }()
	tables, err := readTables(ctx, asking, o.Tables)
	if err != nil {
		return nil, err
	}
	at := map[string]pgoutput.LSN{}
	for _, t := range tables {
		name := o.Table(t.Schema, t.Name)
		seq, is, err := held(name, r.Lane)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		if r.From == 0 || seq < r.From {
			r.From = seq
		}
		at[name] = pgoutput.LSN(seq)
		r.Tables = append(r.Tables, name)
	}
	if len(at) == 0 {
		return nil, nothingLost(o, "no table holds anything of the log of "+r.Lane.Origin)
	}
	return at, nil
}

// idleSlot is the slot as the server has it; nil: there is none. A connection that has ended and is still seen to read from it is waited for.
func idleSlot(ctx context.Context, conn *pgconn.PgConn, name string, version int) (*slot, error) {
	for until := time.Now().Add(farewell); ; {
		have, err := findSlot(ctx, conn, name, version)
		if err != nil || have == nil || !have.active || time.Now().After(until) {
			return have, err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// lost makes sure that the slot does not have what the tables need, and reports whether there is one that is to go.
func (r *Renewed) lost(ctx context.Context, conn *pgconn.PgConn, o *Options, on *server, at map[string]pgoutput.LSN) (bool, error) {
	have, err := idleSlot(ctx, conn, o.Slot, on.version)
	if have == nil || err != nil {
		return false, err
	}
	if have.active {
		return false, &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: "slot " + o.Slot,
			Msg: "the slot is being read by " + holder(ctx, conn, o.Slot), Fix: "end the pipeline, wherever it runs, then try again"}
	}
	err = have.check(o.Slot, on, at)
	var gap *freshet.Error
	switch {
	case err == nil:
		return false, nothingLost(o, "the slot has all that the tables need next")
	case errors.As(err, &gap) && (gap.Code == freshet.CodeSlotLost || gap.Code == freshet.CodeSlotMoved):
		return true, nil
	}
	return false, err
}

func nothingLost(o *Options, why string) error {
	return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: "slot " + o.Slot,
		Msg: "nothing is lost: " + why, Fix: "run the pipeline"}
}
