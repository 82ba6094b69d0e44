package postgres

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// Survey is what a server has for a Source.
type Survey struct {
	Server   string     // "PostgreSQL 15.18"
	Tables   []Surveyed // those that the options select, by schema and name; partitions are a part of their root
	Findings []Finding  // as Check has them
}

// Surveyed is a table that a Source would read, or could.
type Surveyed struct {
	Schema, Name string
	Columns      []string // as its Delta table would call them
	Key          []string // the columns by which rows are told apart; nil: by all of them
	Rows         int64    // as the server estimates them; -1: it has not yet
	Bytes        int64    // of its rows on the server's disk
	LeftOut      string   // why it is not read although the options select it; "": it is
}

// Look looks at a server with the eyes of a Source with these options, and changes nothing. Errors: as Check.
func Look(ctx context.Context, address string, options *Options) (*Survey, error) {
	conn, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	o := options.withDefaults()
	f, err := readFacts(ctx, conn, &o)
	if err != nil {
		return nil, err
	}
	s := &Survey{Server: "PostgreSQL " + conn.ParameterStatus("server_version"), Findings: f.check(&o)}
	for _, t := range f.tables {
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, columnName(c.Name))
		}
		s.Tables = append(s.Tables, Surveyed{Schema: t.Schema, Name: t.Name, Columns: columns, Key: t.rowKey(), Rows: t.Rows, Bytes: t.Pages * 8192,
			LeftOut: f.leftOut(&o, t)})
	}
	return s, nil
}

// leftOut says why the source does not read the table; "": it does.
func (f *facts) leftOut(o *Options, t *catalogTable) string {
	if f.publication == nil {
		return t.unfit(o)
	}
	if _, in := f.publication.Tables[t.String()]; !in && (t.Kind != 'p' || f.publication.ViaRoot) {
		return "not in the publication"
	}
	return t.keyless(o)
}

// unfit says why the table is not published for a source with these options; "": it is. While a table that publishes updates has
// no identity, the server refuses them to everyone. Source: "Publication".
func (t *catalogTable) unfit(o *Options) string {
	switch {
	case t.Persistence != 'p':
		return "it is not in the log: UNLOGGED"
	case t.Identity == IdentityNothing && len(t.PrimaryKey) > 0:
		return "REPLICA IDENTITY NOTHING, although it has a primary key: the server would refuse updates and deletes of applications"
	case t.virtualIdentity():
		return "REPLICA IDENTITY FULL, and virtual generated columns: the server would refuse updates and deletes of applications"
	case t.Identity != IdentityFull && !slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Key }):
		return "no primary key, nor another replica identity: the server would refuse updates and deletes of applications"
	}
	return t.keyless(o)
}

// virtualIdentity reports whether the log would have to tell virtual columns of rows that go. Source: "Publication", "Generated Columns".
func (t *Table) virtualIdentity() bool {
	return t.Identity == IdentityFull && slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Virtual })
}

// unsaid reports whether the publication would have to tell generated columns of rows that go, and does not.
func (p *publication) unsaid(t *catalogTable) bool {
	return p.Strict && !p.Generated && t.Identity == IdentityFull && slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Generated })
}

// keyless says that the table has no key where it needs one.
func (t *catalogTable) keyless(o *Options) string { return keyless(o, &t.Table, t.PrimaryKey) }

// tellsRows reports whether the log has the whole row that a delete or an update takes away.
func (t *Table) tellsRows() bool { return t.Identity == IdentityFull && len(t.Loose) == 0 }

// needsFull says why a table without a key is not mirrored.
const needsFull = "no key, and no REPLICA IDENTITY FULL: the log would not tell which row a delete or an update takes away"

func keyless(o *Options, t *Table, primary []string) string {
	switch {
	case !o.Keyed || len(rowKey(t, primary)) > 0 || o.Alike && t.tellsRows():
		return ""
	case o.Alike:
		return needsFull
	}
	return "no key, and the mode, the policy for deletes or a step of the pipeline needs one"
}

// rowKey is the key that rows of the table are told apart by: the columns of the index that is its replica identity, since the log
// names rows by it alone, or else the primary key.
func (t *catalogTable) rowKey() []string { return rowKey(&t.Table, t.PrimaryKey) }

func rowKey(t *Table, primary []string) (key []string) {
	if t.Identity != IdentityIndex {
		return slices.Clone(primary)
	}
	for _, c := range t.Columns {
		if c.Key {
			key = append(key, c.Name)
		}
	}
	return key
}

// Address is where a database is, as people may see it.
type Address struct {
	Database string // its name
	Shown    string // the address, less what is secret in it
	Secret   bool   // it has a password, or something like it
}

// ParseAddress takes an address apart: a URL, or a list of KEY=VALUE as libpq has them. What the environment adds to it is no part
// of it. Errors: CodeBadValue.
func ParseAddress(address string) (*Address, error) {
	config, err := pgconn.ParseConfig(address)
	if err != nil {
		return nil, badAddress(err)
	}
	a := &Address{Database: config.Database, Shown: address}
	if a.Database == "" {
		a.Database = config.User
	}
	of, err := url.Parse(address)
	if err != nil || of.Scheme != "postgres" && of.Scheme != "postgresql" {
		if a.Secret = strings.Contains(strings.ToLower(address), "password"); a.Secret {
			a.Shown = (&url.URL{Scheme: "postgres", User: url.User(config.User), Host: hostPort(config), Path: "/" + a.Database}).String()
		}
		return a, nil
	}
	if _, has := of.User.Password(); has {
		a.Secret, of.User = true, url.User(of.User.Username())
	}
	values := of.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if values.Has(name) {
			a.Secret = true
			values.Del(name)
		}
	}
	if a.Secret {
		of.RawQuery = values.Encode()
		a.Shown = of.String()
	}
	return a, nil
}

func badAddress(err error) error {
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Msg: "the address of the PostgreSQL server",
		Err: err,
		Fix: "write it as postgres://USER@HOST:PORT/DATABASE?sslmode=MODE; a mode is disable, allow, prefer, require, verify-ca or verify-full"}
}
