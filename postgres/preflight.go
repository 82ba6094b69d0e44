package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Severity is how much a Finding matters.
type Severity string

// The severities, the gravest first.
const (
	Blocks Severity = "blocks" // the source will not work, or applications will not
	Warns  Severity = "warns"  // it works, and something will be lost or go wrong one day
	Notes  Severity = "notes"  // good to know before the first run
)

// Finding is something about a server that a person should know before its tables are read.
type Finding struct {
	Severity Severity
	Object   string // what it is about: a setting, a role, a publication, a table, a column
	Message  string // found and wanted
	Fix      string // the SQL that mends it, to be run by someone with the right to; "": none does
}

// Check looks at a server with the eyes of a Source with these options, and changes nothing. Findings come gravest first.
// They are about the settings of the server, the role, the publication, each table, and what of the values is lost on the
// way. Errors: those of the connection; CodeBadValue.
func Check(ctx context.Context, address string, options *Options) ([]Finding, error) {
	s, err := Look(ctx, address, options)
	if err != nil {
		return nil, err
	}
	return s.Findings, nil
}

// check finds what there is to find, the gravest first.
func (f *facts) check(o *Options) []Finding {
	found := slices.Concat(f.checkServer(), f.checkRole(o), f.checkPublication(o), f.checkTables(o), f.checkValues())
	slices.SortStableFunc(found, func(a, b Finding) int {
		rank := func(f Finding) int { return slices.Index([]Severity{Blocks, Warns, Notes}, f.Severity) }
		return cmp.Compare(rank(a), rank(b))
	})
	return found
}

// facts are what Check decides by.
type facts struct {
	version     int
	settings    map[string]string
	encoding    string
	standby     bool
	role        string
	replicates  bool // the role may
	slots       int64
	slotIsThere bool
	senders     int64
	owner       bool // the role may create a publication here
	publication *publication
	tables      []*catalogTable // that the options select
	types       *typeMap
}

// readFacts asks the server.
func readFacts(ctx context.Context, conn *pgconn.PgConn, o *Options) (*facts, error) {
	f := &facts{version: serverVersion(conn), settings: map[string]string{}, types: newTypeMap(o.Types)}
	rows, err := query(ctx, conn, `select name, setting from pg_catalog.pg_settings where name in ('wal_level',
'max_replication_slots', 'max_wal_senders', 'wal_sender_timeout', 'max_slot_wal_keep_size', 'hot_standby_feedback',
'idle_replication_slot_timeout')`)
	if err != nil {
		return nil, fmt.Errorf("read the settings of the server: %w", err)
	}
	for _, r := range rows {
		f.settings[string(r[0])] = string(r[1])
	}
	rows, err = query(ctx, conn, `select pg_encoding_to_char(d.encoding), pg_is_in_recovery(), current_user,
  r.rolsuper or r.rolreplication or exists (select from pg_catalog.pg_roles m where m.rolname = 'rds_replication'
    and pg_has_role(r.oid, m.oid, 'member')),
  (select count(*) from pg_catalog.pg_replication_slots),
  exists (select from pg_catalog.pg_replication_slots where slot_name = $1),
  (select count(*) from pg_catalog.pg_stat_replication), has_database_privilege(d.oid, 'create')
from pg_catalog.pg_database d, pg_catalog.pg_roles r where d.datname = current_database() and r.rolname = current_user`, o.Slot)
	if err != nil || len(rows) != 1 {
		return nil, fmt.Errorf("read what the role may: %d rows: %w", len(rows), err)
	}
	r := rows[0]
	is := func(i int) bool { return string(r[i]) == "t" }
	f.encoding, f.standby, f.role, f.replicates = string(r[0]), is(1), string(r[2]), is(3)
	f.slots, f.slotIsThere, f.senders, f.owner = number(r[4]), is(5), number(r[6]), is(7)
	if f.publication, err = readPublication(ctx, conn, o.Publication, f.version); err != nil {
		return nil, fmt.Errorf("read the publication %s: %w", o.Publication, err)
	}
	if err := f.types.load(ctx, conn); err != nil {
		return nil, err
	}
	tables, err := readTables(ctx, conn, o.Tables)
	for _, t := range tables {
		if f.wanted(t) {
			f.tables = append(f.tables, t)
		}
	}
	return f, err
}

// wanted reports whether the table is one that the log can have rows of, or that is in the publication. A partition counts
// as a part of its root, unless the publication names it.
func (f *facts) wanted(t *catalogTable) bool {
	if f.publication != nil {
		if _, in := f.publication.Tables[t.String()]; in {
			return true
		}
	}
	return !t.Partition && (t.Kind == 'r' || t.Kind == 'p') && t.Persistence != 't'
}

func (f *facts) checkServer() (found []Finding) {
	add := func(s Severity, object, fix, message string, args ...any) {
		found = append(found, Finding{s, object, fmt.Sprintf(message, args...), fix})
	}
	switch {
	case f.version < 120000:
		add(Blocks, "server", "", "found PostgreSQL %d, wanted 12 or newer", f.version/10_000)
	case f.version < 140000:
		add(Warns, "server", "", "found PostgreSQL %d, which is no longer mended: wanted 14 or newer", f.version/10_000)
	case f.version < 150002 && f.version >= 150000:
		add(Warns, "server", "", "found PostgreSQL 15.%d, whose publications of some columns have faults: wanted 15.2 or newer",
			f.version%10_000)
	}
	if level := f.settings["wal_level"]; level != "logical" {
		add(Blocks, "wal_level", "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server",
			"found %s, wanted logical: the log does not say what happened to rows", level)
	}
	for name, used := range map[string]int64{"max_replication_slots": f.slots, "max_wal_senders": f.senders} {
		if most := number([]byte(f.settings[name])); used >= most && !f.slotIsThere {
			add(Blocks, name, fmt.Sprintf("ALTER SYSTEM SET %s = %d; -- then restart the server", name, most+10),
				"found %d of %d in use, wanted one more", used, most)
		}
	}
	switch {
	case f.standby && f.version < 160000:
		add(Blocks, "server", "", "found a standby of PostgreSQL %d, wanted the primary: standbys decode the log from 16 on",
			f.version/10_000)
	case f.standby && f.settings["hot_standby_feedback"] != "on":
		add(Warns, "hot_standby_feedback", "ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();",
			"found off on a standby, wanted on: vacuum on the primary invalidates the slot")
	}
	if size := f.settings["max_slot_wal_keep_size"]; size == "-1" {
		add(Notes, "max_slot_wal_keep_size", "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();",
			"found no limit: while we do not read, the log can fill the server's disk; with a limit the slot is lost instead")
	}
	if idle := f.settings["idle_replication_slot_timeout"]; idle != "" && idle != "0" {
		add(Warns, "idle_replication_slot_timeout", "",
			"found %s seconds: the slot is lost when we do not read for that long", idle)
	}
	if f.encoding == "SQL_ASCII" {
		add(Warns, "database", "", "found the encoding SQL_ASCII: bytes that are not UTF-8 become U+FFFD")
	}
	return found
}

func (f *facts) checkRole(o *Options) (found []Finding) {
	if !f.replicates {
		found = append(found, Finding{Blocks, "role " + f.role, "found no right to replicate, wanted it",
			"ALTER ROLE " + quoteName(f.role) + " REPLICATION;"})
	}
	for _, t := range f.tables {
		severity := Blocks
		if o.History.Skip || f.leftOut(o, t) != "" {
			severity = Warns
		}
		if !t.Readable {
			found = append(found, Finding{severity, "table " + t.String(),
				"found no right to select, wanted it: the rows that are there cannot be read, nor compared",
				fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %s;", quoteName(t.Schema),
					quoteName(f.role), t.quoted(), quoteName(f.role))})
		}
	}
	return found
}

// createPublication is the SQL that makes the publication of the tables: each with its partitions, not these by themselves.
func createPublication(name string, tables []*catalogTable, version int) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.quoted()
	}
	with := "publish_via_partition_root = true"
	if version >= generates {
		with += ", publish_generated_columns = stored"
	}
	return "CREATE PUBLICATION " + quoteName(name) + " FOR TABLE " + strings.Join(names, ", ") +
		" WITH (" + with + ")"
}

// checkPublication looks at the publication, or at what keeps us from making it.
func (f *facts) checkPublication(o *Options) (found []Finding) {
	p := f.publication
	object := "publication " + o.Publication
	if p == nil {
		if len(f.tables) == 0 {
			return []Finding{{Blocks, "tables", fmt.Sprintf("found no table like %s, wanted one",
				strings.Join(o.Tables, ", ")), ""}}
		}
		read := slices.DeleteFunc(slices.Clone(f.tables), func(t *catalogTable) bool { return t.unfit(o) != "" })
		if len(read) == 0 {
			return nil // each of them is told of
		}
		severity, why := Notes, "found none: it is made when the source is opened"
		notOwned := func(t *catalogTable) bool { return !t.Owned }
		if !f.owner || slices.ContainsFunc(read, notOwned) {
			severity, why = Blocks, "found none, wanted one: the role must not make it, as it may create nothing in the database, or "+
				"does not own each table"
		}
		return []Finding{{severity, object, why, createPublication(o.Publication, read, f.version) + ";"}}
	}
	if !p.Insert || !p.Update || !p.Delete || !p.Truncate {
		found = append(found, Finding{Warns, object, "found kinds of change that it leaves out, wanted insert, update, delete " +
			"and truncate: the tables will differ from the source",
			"ALTER PUBLICATION " + quoteName(p.Name) + " SET (publish = 'insert, update, delete, truncate');"})
	}
	for _, t := range f.tables {
		of, in := p.Tables[t.String()]
		switch {
		case !in && t.Kind == 'p' && !p.ViaRoot:
		case !in:
			found = append(found, Finding{Warns, "table " + t.String(), "found it missing in the " + object +
				", wanted it there, or not among tables", "ALTER PUBLICATION " + quoteName(p.Name) + " ADD TABLE " +
				t.quoted() + ";"})
		case of.Filter != "":
			found = append(found, Finding{Notes, "table " + t.String(), "the " + object + " sends only rows where " + of.Filter, ""})
		}
		if in && p.unsaid(t) {
			found = append(found, Finding{Blocks, "table " + t.String(), fmt.Sprintf("found REPLICA IDENTITY FULL and generated columns that the "+
				"%s leaves out: the server refuses updates and deletes of applications", object),
				"ALTER PUBLICATION " + quoteName(p.Name) + " SET (publish_generated_columns = stored);"})
		}
		if missing := missingKeys(t, of.Columns); in && of.Columns != nil && len(missing) > 0 && (p.Update || p.Delete) {
			found = append(found, Finding{Blocks, "table " + t.String(), fmt.Sprintf("found columns of the replica identity "+
				"that the %s leaves out: %s; updates and deletes of applications fail", object, strings.Join(missing, ", ")),
				"ALTER TABLE " + t.quoted() + " REPLICA IDENTITY DEFAULT; -- or publish all of its columns"})
		}
	}
	return found
}

func missingKeys(t *catalogTable, columns []string) (missing []string) {
	for _, c := range t.Columns {
		if c.Key && !slices.Contains(columns, c.Name) {
			missing = append(missing, c.Name)
		}
	}
	return missing
}
