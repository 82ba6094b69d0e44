package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// catalogTable is a Table with what only the catalog says of it: as it is now, which may be another moment than that of
// the log.
type catalogTable struct {
	Table
	Kind        byte     // of pg_class.relkind: r ordinary, p partitioned, and those that the log does not have
	Persistence byte     // p permanent, u unlogged, t temporary
	Rows        int64    // as last estimated; -1: never
	Pages       int64    // of 8 kB, of its own heap, with its partitions'
	PrimaryKey  []string // its columns, in the order of the index; nil: none
	Leaves      []leaf   // what holds the rows: the table itself, or its partitions
	Readable    bool     // our role may select from it
	Owned       bool     // our role may do what its owner may
	Candidate   string   // an index that could be its replica identity; "": there is none
	Partition   bool     // it is a partition of another
	Filter      string   // of the publication, on rows; "": none
}

// leaf is a heap: an ordinary table, or a partition.
type leaf struct {
	OID   uint32
	Name  string // quoted, with its schema
	Pages int64
}

// query runs a statement and returns its rows as text; a null is nil.
func query(ctx context.Context, conn *pgconn.PgConn, sql string, args ...string) ([][][]byte, error) {
	values := make([][]byte, len(args))
	for i, a := range args {
		values[i] = []byte(a)
	}
	result := conn.ExecParams(ctx, sql, values, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	return result.Rows, nil
}

// number is a whole number of the catalog; 0 for null.
func number(b []byte) int64 {
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return n
}

// load learns the types of the database that are not the server's own. Errors: those of the connection.
func (t *typeMap) load(ctx context.Context, conn *pgconn.PgConn) error {
	found, err := query(ctx, conn, `
select t.oid, pg_catalog.format_type(t.oid, null), t.typtype, t.typname, t.typelem, t.typbasetype, t.typtypmod, t.typdelim,
  t.typcategory, t.typrelid
from pg_catalog.pg_type t where t.oid >= 16384`)
	if err != nil {
		return fmt.Errorf("read the types of the database: %w", err)
	}
	attributes, err := loadAttributes(ctx, conn)
	if err != nil {
		return err
	}
	for _, r := range found {
		p := pgType{name: string(r[1]), kind: kindText, delimiter: ','}
		if len(r[7]) == 1 {
			p.delimiter = r[7][0]
		}
		switch {
		case r[2][0] == 'd':
			p.kind, p.of, p.modifier = kindDomain, uint32(number(r[5])), int32(number(r[6]))
		case r[2][0] == 'c':
			p.kind, p.fields = kindStruct, attributes[string(r[9])]
		case r[2][0] == 'b' && r[8][0] == 'A' && number(r[4]) != 0:
			p.kind, p.of = kindArray, uint32(number(r[4]))
		case r[2][0] == 'b':
			p.kind = extensionKind(string(r[3]))
		}
		t.add(uint32(number(r[0])), p)
	}
	return nil
}

// extensionKind is the kind of a base type that an extension brings, by its name, which is the same wherever the extension
// is installed.
func extensionKind(name string) kind {
	switch name {
	case "hstore":
		return kindMap
	case "geometry", "geography":
		return kindHex
	case "vector":
		return kindVector
	}
	return kindText
}

// loadAttributes returns the attributes of all composite types of users, by pg_type.typrelid.
func loadAttributes(ctx context.Context, conn *pgconn.PgConn) (map[string][]Column, error) {
	found, err := query(ctx, conn, `
select a.attrelid, a.attname, a.atttypid, a.atttypmod
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
where c.oid >= 16384 and c.relkind in ('c', 'r', 'p') and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum`)
	if err != nil {
		return nil, fmt.Errorf("read the composite types of the database: %w", err)
	}
	attributes := map[string][]Column{}
	for _, r := range found {
		of := string(r[0])
		attributes[of] = append(attributes[of],
			Column{Name: string(r[1]), Type: uint32(number(r[2])), Modifier: int32(number(r[3]))})
	}
	return attributes, nil
}

// readTables returns the tables that the patterns select, by schema and name: "public.orders", or with * for all of
// a schema or of all: "public.*", "*.*". What the server and extensions keep for themselves is left out.
func readTables(ctx context.Context, conn *pgconn.PgConn, patterns []string) ([]*catalogTable, error) {
	found, err := query(ctx, conn, `
select c.oid, n.nspname, c.relname, c.relreplident, c.relkind, c.relpersistence, c.reltuples::int8, c.relispartition,
  has_table_privilege(c.oid, 'select') and has_schema_privilege(n.oid, 'usage'), pg_has_role(c.relowner, 'usage'),
  (select min(x.relname) from pg_catalog.pg_index i join pg_catalog.pg_class x on x.oid = i.indexrelid
    where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
      and not exists (select from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum = any (i.indkey) and not a.attnotnull))
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'f', 'm', 'v') and n.nspname not like 'pg\_%' and n.nspname <> 'information_schema'
  and not exists (select from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid
    and d.deptype = 'e')
order by n.nspname, c.relname`)
	if err != nil {
		return nil, fmt.Errorf("read the tables of the database: %w", err)
	}
	var tables []*catalogTable
	byOID := map[string]*catalogTable{}
	for _, r := range found {
		if len(r[8]) == 0 || len(r[9]) == 0 { // nobody has rights to one that was dropped meanwhile
			continue
		}
		c := &catalogTable{Table: Table{OID: uint32(number(r[0])), Schema: string(r[1]), Name: string(r[2]),
			Identity: Identity(r[3][0])}, Kind: r[4][0], Persistence: r[5][0], Rows: number(r[6]),
			Partition: r[7][0] == 't', Readable: r[8][0] == 't', Owned: r[9][0] == 't',
			Candidate: string(r[10])}
		if selected(patterns, c.Schema, c.Name) {
			tables = append(tables, c)
			byOID[string(r[0])] = c
		}
	}
	if err := readColumns(ctx, conn, byOID); err != nil {
		return nil, err
	}
	return tables, readLeaves(ctx, conn, byOID)
}

// selected reports whether one of the patterns selects the table.
func selected(patterns []string, schema, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		s, n, both := strings.Cut(p, ".")
		if !both {
			s, n = "public", p
		}
		return (s == "*" || s == schema) && (n == "*" || n == name)
	})
}

// named reports whether one of the patterns names the table, and not only tables like it.
func named(patterns []string, schema, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return !strings.Contains(p, "*") && selected([]string{p}, schema, name)
	})
}

// readColumns fills in the columns of the tables, and which of them are keys.
func readColumns(ctx context.Context, conn *pgconn.PgConn, tables map[string]*catalogTable) error {
	found, err := query(ctx, conn, `
select a.attrelid, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated, a.attndims,
  coalesce((select array_position(i.indkey::int2[], a.attnum) from pg_catalog.pg_index i
    where i.indrelid = a.attrelid and i.indisprimary), -1),
  exists (select from pg_catalog.pg_index i where i.indrelid = a.attrelid and a.attnum = any (i.indkey)
    and (i.indisreplident and c.relreplident = 'i' or i.indisprimary and c.relreplident = 'd')),
  a.attnum, a.atthasdef or a.atthasmissing or a.attidentity <> ''
from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
where a.attnum > 0 and not a.attisdropped and a.attrelid = any ($1::oid[])
order by a.attrelid, a.attnum`, oids(tables))
	if err != nil {
		return fmt.Errorf("read the columns of the tables: %w", err)
	}
	keys := map[string]map[int64]string{}
	for _, r := range found {
		of := string(r[0])
		c := tables[of]
		full := c.Identity == IdentityFull
		c.Columns = append(c.Columns, Column{Name: string(r[1]), Type: uint32(number(r[2])), Modifier: int32(number(r[3])),
			NotNull: r[4][0] == 't', Generated: string(r[5]) == "s", Virtual: string(r[5]) == "v", Dimensions: int(number(r[6])), Key: full || r[8][0] == 't',
			Number: int(number(r[9])), Filled: r[10][0] == 't'})
		if at := number(r[7]); at >= 0 {
			if keys[of] == nil {
				keys[of] = map[int64]string{}
			}
			keys[of][at] = string(r[1])
		}
	}
	for of, byPlace := range keys {
		places := make([]int64, 0, len(byPlace))
		for at := range byPlace {
			places = append(places, at)
		}
		slices.Sort(places)
		for _, at := range places {
			tables[of].PrimaryKey = append(tables[of].PrimaryKey, byPlace[at])
		}
	}
	for _, t := range tables {
		key := t.rowKey()
		for i := range t.Columns {
			t.Columns[i].Unique = slices.Contains(key, t.Columns[i].Name)
		}
	}
	return nil
}

// readLeaves fills in what holds the rows of the tables.
func readLeaves(ctx context.Context, conn *pgconn.PgConn, tables map[string]*catalogTable) error {
	found, err := query(ctx, conn, `
select root.oid, t.relid::oid, n.nspname, c.relname, pg_catalog.pg_relation_size(t.relid) / 8192, c.reltuples::int8,
  c.relreplident
from unnest($1::oid[]) root(oid)
  join pg_catalog.pg_class r on r.oid = root.oid and r.relkind in ('r', 'p'),
  lateral (select root.oid as relid where r.relkind = 'r'
    union all select relid from pg_catalog.pg_partition_tree(root.oid) where r.relkind = 'p' and isleaf) t
  join pg_catalog.pg_class c on c.oid = t.relid and c.relkind = 'r'
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
order by root.oid, n.nspname, c.relname`, oids(tables))
	if err != nil {
		return fmt.Errorf("read the partitions of the tables: %w", err)
	}
	for _, r := range found {
		c := tables[string(r[0])]
		l := leaf{OID: uint32(number(r[1])), Name: quoteName(string(r[2])) + "." + quoteName(string(r[3])),
			Pages: number(r[4])}
		c.Leaves = append(c.Leaves, l)
		c.Pages += l.Pages
		if c.Kind == 'p' && number(r[5]) > 0 {
			c.Rows = max(c.Rows, 0) + number(r[5])
		}
		if c.Kind == 'p' && Identity(r[6][0]) != IdentityFull {
			c.Loose = append(c.Loose, l.Name)
		}
	}
	return nil
}

func oids(tables map[string]*catalogTable) string {
	all := make([]string, 0, len(tables))
	for oid := range tables {
		all = append(all, oid)
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ",") + "}"
}

// quoteName is a name as SQL takes it, whatever it holds.
func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteText is a text as SQL takes it. Source: "String Constants with C-Style Escapes".
func quoteText(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return " E'" + strings.ReplaceAll(s, `\`, `\\`) + "'"
	}
	return "'" + s + "'"
}

// quoted is the table's name as SQL takes it.
func (t *Table) quoted() string { return quoteName(t.Schema) + "." + quoteName(t.Name) }

// publication is what a publication says.
type publication struct {
	Name                             string
	Insert, Update, Delete, Truncate bool
	ViaRoot                          bool
	Generated                        bool // it publishes stored generated columns
	Strict                           bool // the server refuses updates of rows whose identity has columns that are not published
	Ours                             bool // a Source made it
	Owned                            bool // our role may do what its owner may
	Tables                           map[string]published
}

// published is what a publication says of a table.
type published struct {
	Columns []string // nil: all
	Filter  string   // "": all rows
}

// viaRoot reports whether the rows of a partition come as those of the table that it is a part of. The log describes it all the same.
func (p *publication) viaRoot(t *Table) bool {
	if p == nil {
		return false
	}
	_, itself := p.Tables[t.String()]
	return p.ViaRoot && !itself
}

// restrict leaves the columns of the table that the publication has, and notes which rows.
func (p *publication) restrict(t *catalogTable) {
	of := p.Tables[t.String()]
	t.Filter = of.Filter
	t.Columns = slices.DeleteFunc(t.Columns, func(c Column) bool {
		return c.Virtual || c.Generated && !p.Generated || of.Columns != nil && !slices.Contains(of.Columns, c.Name)
	})
}

// generates is the version of servers from which on publications can have generated columns, and must have those of an identity.
const generates = 180000

// readPublication returns what the publication says, nil: there is none of this name. The version is that of the server:
// 150004.
func readPublication(ctx context.Context, conn *pgconn.PgConn, name string, version int) (*publication, error) {
	generated := "'n'"
	if version >= generates {
		generated = "pubgencols"
	}
	viaRoot := "false"
	if version >= 130000 {
		viaRoot = "pubviaroot"
	}
	found, err := query(ctx, conn, `select pubinsert, pubupdate, pubdelete, pubtruncate, `+viaRoot+`, `+generated+`,
  pg_catalog.obj_description(oid, 'pg_publication'), pg_has_role(pubowner, 'usage')
from pg_catalog.pg_publication where pubname = $1`, name)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	is := func(i int) bool { return found[0][i][0] == 't' }
	p := &publication{Name: name, Insert: is(0), Update: is(1), Delete: is(2), Truncate: is(3), ViaRoot: is(4), Strict: version >= generates,
		Generated: found[0][5][0] == 's', Ours: string(found[0][6]) == madeByUs, Owned: is(7), Tables: map[string]published{}}
	columns, filter := "null", "null"
	if version >= 150000 {
		columns, filter = "to_json(attnames)", "rowfilter"
	}
	found, err = query(ctx, conn, `select schemaname, tablename, `+columns+`, `+filter+`
from pg_catalog.pg_publication_tables where pubname = $1`, name)
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		of := published{Filter: string(r[3])}
		if r[2] != nil {
			if err := json.Unmarshal(r[2], &of.Columns); err != nil {
				return nil, fmt.Errorf("the columns of publication %s: %w", name, err)
			}
		}
		p.Tables[string(r[0])+"."+string(r[1])] = of
	}
	return p, nil
}

// serverVersion is the version of the server as a number: 150004 for 15.4.
func serverVersion(conn *pgconn.PgConn) int {
	major, minor := 0, 0
	_, _ = fmt.Sscanf(conn.ParameterStatus("server_version"), "%d.%d", &major, &minor)
	return major*10_000 + minor
}
