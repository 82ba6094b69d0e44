package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// Found is the table of a database whose rows go to a table.
type Found struct {
	Schema, Name string
	Key          []string // as Source.Key has it
}

// FindTable returns the table, of those that a source with these options may read, whose rows go to the table of this name.
// Errors: those of the connection; CodeBadValue where there is none.
func FindTable(ctx context.Context, address string, options *Options, table string) (*Found, error) {
	conn, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	o := options.withDefaults()
	all, err := readTables(ctx, conn, o.Tables)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if o.Table(t.Schema, t.Name) != table {
			continue
		}
		f := &Found{Schema: t.Schema, Name: t.Name, Key: []string{}}
		for _, c := range rowKey(&t.Table, t.PrimaryKey) {
			f.Key = append(f.Key, columnName(c))
		}
		return f, nil
	}
	return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: table,
		Msg: fmt.Sprintf("none of %s in the database is a table whose rows go there: it was dropped, or has another name",
			strings.Join(o.Tables, ", "))}
}

// DropSlot drops a slot, unless it is gone already. One from which a connection that has ended is still seen to read is waited
// for. Errors: those of the connection and the server.
func DropSlot(ctx context.Context, address, slot string) error {
	conn, err := dial(ctx, address, false)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for until := time.Now().Add(farewell); ; {
		err := dropSlot(ctx, conn, slot)
		if !slotInUse(err) || time.Now().After(until) {
			return dropped("slot "+slot, err)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func dropSlot(ctx context.Context, conn *pgconn.PgConn, slot string) error {
	_, err := query(ctx, conn,
		"select pg_drop_replication_slot(slot_name) from pg_catalog.pg_replication_slots where slot_name = $1", slot)
	var said *pgconn.PgError
	if errors.As(err, &said) && said.Code == "42704" { // undefined_object: it went meanwhile
		return nil
	}
	return err
}
