package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

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
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, refused(place(config), err)
	}
	return conn, nil
}

// place is the server and the database for people, without any secret.
func place(config *pgconn.Config) string { return hostPort(config) + "/" + config.Database }

func hostPort(config *pgconn.Config) string {
	return net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
}

// refused tells a server that does not let us in from one that does not answer.
func refused(place string, err error) error {
	e := &freshet.Error{Code: freshet.CodeSourceUnreachable, Class: freshet.ClassEnvironment, Place: place,
		Msg: "the PostgreSQL server does not answer", Err: err}
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return e
	}
	switch {
	case len(said.Code) == 5 && (said.Code[:2] == "28" || said.Code[:2] == "3D" || said.Code[:2] == "42"):
		e.Code, e.Msg = freshet.CodeSourceRefused, "the PostgreSQL server refuses us"
		e.Fix = "check user, password, database, pg_hba.conf and the rights of the role"
	case said.Code == "08P01":
		e.Msg = "what answers is no PostgreSQL server that takes our settings"
		e.Fix = "connect to the server itself: a pooler, as PgBouncer, forwards neither settings nor replication"
	}
	return e
}
