package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/freshet-io/freshet"
)

// settings are those of every connection, replication too: they decide what text the server makes of values, and that
// nothing of ours is ended by a setting of the role or the database. Source: "Client Connection Defaults".
func settings() map[string]string {
	return map[string]string{
		"client_encoding":                     "UTF8",
		"DateStyle":                           "ISO",
		"IntervalStyle":                       "iso_8601",
		"TimeZone":                            "UTC",
		"extra_float_digits":                  "3",
		"bytea_output":                        "hex",
		"search_path":                         "",
		"lc_monetary":                         "C",
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"idle_in_transaction_session_timeout": "0",
	}
}

// readBytes is how much is read of a connection at once: servers send 8 KiB, and more of that waits where we are the slower.
const readBytes = 64 << 10

// dial opens a connection with our settings. The address is a URL or a list of KEY=VALUE as libpq has them. Errors:
// *freshet.Error with CodeSourceUnreachable or CodeSourceRefused, CodeBadValue for the address.
func dial(ctx context.Context, address string, replication bool) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return nil, badAddress(err)
	}
	maps.Copy(config.RuntimeParams, settings())
	if _, named := config.RuntimeParams["application_name"]; !named {
		config.RuntimeParams["application_name"] = "freshet"
	}
	if replication {
		config.RuntimeParams["replication"] = "database"
	}
	config.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		return pgproto3.NewFrontend(bufio.NewReaderSize(r, readBytes), w)
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	var said *pgconn.PgError
	switch {
	case errors.As(err, &said) && said.Code == "42501" && replication:
		return nil, &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: place(config),
			Msg: "the role " + config.User + " has no right to replicate", Err: plain(err),
			Fix: "ALTER ROLE " + quoteName(config.User) + " REPLICATION;"}
	case err != nil:
		return nil, refused(place(config), err)
	}
	if err := heeded(conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// heeded finds that the server does not have our settings: a pooler that shares connections has dropped them, and values would be in
// other forms than we read.
func heeded(conn *pgconn.PgConn) error {
	for _, name := range []string{"client_encoding", "DateStyle", "IntervalStyle", "TimeZone"} {
		// the server names the order of fields, too: "ISO, MDY"
		if got, want := conn.ParameterStatus(name), settings()[name]; !strings.HasPrefix(got, want) {
			return pooler(fmt.Sprintf("the setting %s is %q, and was asked to be %q", name, got, want))
		}
	}
	return nil
}

// pooler says that what answers is not the server itself.
func pooler(why string) error {
	return &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment,
		Msg: "what answers is no PostgreSQL server, but something before it, as a pooler: " + why,
		Fix: "connect to the server itself: a pooler, as PgBouncer, forwards neither settings nor replication"}
}

// place is the server and the database for people, without any secret.
func place(config *pgconn.Config) string { return hostPort(config) + "/" + config.Database }

func hostPort(config *pgconn.Config) string {
	return net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
}

// Execute runs statements at the address. Errors: as those of a Source, and the server's.
func Execute(ctx context.Context, address, sql string) error {
	conn, err := dial(ctx, address, false)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, sql).ReadAll()
	return err
}
