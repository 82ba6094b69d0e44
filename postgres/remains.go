package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// Remains are what a Source has on the server: they stay when it is given up, until they are dropped.
type Remains struct {
	Slot        string // "": there is none that is its own
	Kept        int64  // bytes of log that the server keeps for the slot
	Publication string // "": likewise
	// Others are what has such a name and is not the source's own, each with the reason and the SQL that drops it.
	Others []Finding

	address string
}

// FindRemains looks for the slot and the publication of a source with these options, and changes nothing. A publication is its own
// if the source made it, which it bears as a comment. A slot bears no mark: it is the source's own if holds reports of one of the
// tables that it goes on where the log of this very database is. Errors: those of the connection, and of holds; CodeSourceRefused
// for a slot that is being read.
func FindRemains(ctx context.Context, address string, options *Options, holds func(table string, log freshet.Lane) (bool, error)) (*Remains, error) {
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
	asking, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = asking.Close(context.WithoutCancel(ctx)) }()
	r := &Remains{address: address}
	return r, errors.Join(r.findSlot(ctx, asking, &o, on, holds), r.findPublication(ctx, asking, &o, on.version))
}

func (r *Remains) findSlot(ctx context.Context, conn *pgconn.PgConn, o *Options, on *server,
	holds func(string, freshet.Lane) (bool, error)) error {
	s, err := findSlot(ctx, conn, o.Slot, on.version)
	if s == nil || err != nil {
		return err
	}
	other := func(why string) error {
		r.Others = append(r.Others, Finding{Warns, "slot " + o.Slot, why,
			"SELECT pg_drop_replication_slot(" + quoteText(o.Slot) + ");"})
		return nil
	}
	switch {
	case s.plugin != "pgoutput" || s.database != on.database:
		return other(fmt.Sprintf("it is of the plugin %s and the database %s", s.plugin, s.database))
	case s.active:
		return &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: "slot " + o.Slot,
			Msg: "the slot is being read by " + holder(ctx, conn, o.Slot), Fix: "end the pipeline, wherever it runs, then try again"}
	}
	tables, err := readTables(ctx, conn, o.Tables)
	if err != nil {
		return err
	}
	for _, t := range tables {
		is, err := holds(o.Table(t.Schema, t.Name), on.lane())
		if err != nil {
			return err
		}
		if is {
			r.Slot, r.Kept = o.Slot, max(0, int64(on.flushed)-int64(s.restart))
			return nil
		}
	}
	return other("no table of the pipeline has read the log of this database: somebody else may read from it")
}

func (r *Remains) findPublication(ctx context.Context, conn *pgconn.PgConn, o *Options, version int) error {
	p, err := readPublication(ctx, conn, o.Publication, version)
	switch {
	case p == nil || err != nil:
		return err
	case p.Ours:
		r.Publication = o.Publication
	default:
		r.Others = append(r.Others, Finding{Warns, "publication " + o.Publication, "it was not made by the pipeline",
			"DROP PUBLICATION " + quoteName(o.Publication) + ";"})
	}
	return nil
}

// Drop drops the slot and the publication that are the source's own. What is gone already is no error.
func (r *Remains) Drop(ctx context.Context) error {
	conn, err := dial(ctx, r.address, false)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var faults []error
	if r.Slot != "" {
		faults = append(faults, dropped("slot "+r.Slot, dropSlot(ctx, conn, r.Slot)))
	}
	if r.Publication != "" {
		_, err := conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+quoteName(r.Publication)).ReadAll()
		faults = append(faults, dropped("publication "+r.Publication, err))
	}
	return errors.Join(faults...)
}

func dropped(what string, err error) error {
	if err == nil {
		return nil
	}
	return refused(what, fmt.Errorf("drop it: %w", err))
}

// madeByUs is what the comment on a publication says that a Source has made.
const madeByUs = "made by Freshet, which drops it with its slot"

// makePublication is the SQL that makes a publication that bears our mark.
func makePublication(name string, tables []*catalogTable, version int) string {
	return createPublication(name, tables, version) + "; COMMENT ON PUBLICATION " + quoteName(name) + " IS " + quoteText(madeByUs)
}
