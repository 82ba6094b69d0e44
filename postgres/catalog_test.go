package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const catalogSQL = `
create type mood as enum ('sad', 'ok');
create domain price as numeric(12,2);
create type addr as (street text, zip int);
create table orders (id bigint, region text, m mood, a addr, tags mood[], p price, g int[][],
  total numeric(10,2) generated always as (p * 2) stored, primary key (region, id));
create table "We.ird Name" (id int not null, v text);
create unique index weird on "We.ird Name" (id);
alter table "We.ird Name" replica identity using index weird;
create table parts (id int, at date, primary key (id, at)) partition by range (at);
create table parts_1 partition of parts for values from ('2024-01-01') to ('2024-02-01');
create table parts_2 partition of parts for values from ('2024-02-01') to ('2024-03-01');
create unlogged table scratch (id int);
create view seen as select 1 as one;
alter table parts replica identity full;
insert into parts select i, '2024-01-15' from generate_series(1, 1000) i;
insert into parts select i, '2024-02-15' from generate_series(1, 10) i;
create publication p for table orders, parts with (publish = 'insert, update', publish_via_partition_root = true);
`

func TestCatalog_TablesOfEachKind_AreDescribed(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		do(t, conn, "set search_path to public;"+catalogSQL)
		tables, err := readTables(t.Context(), conn, []string{"public.*"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range tables {
			line := fmt.Sprintf("%s %c%c%c key=%v leaves=%d:", c, c.Kind, c.Persistence, c.Identity, c.PrimaryKey, len(c.Leaves))
			for _, col := range c.Columns {
				line += " " + col.Name
				for mark, is := range map[string]bool{"*": col.Key, "!": col.NotNull, "=": col.Generated} {
					if is {
						line += mark
					}
				}
				if col.Dimensions > 0 {
					line += fmt.Sprintf("[%d]", col.Dimensions)
				}
			}
			got = append(got, line)
		}
		text := strings.Join(got, "\n")
		for _, want := range []string{
			"public.We.ird Name rpi key=[] leaves=1: id", "public.orders rpd key=[region id] leaves=1: ",
			"public.parts ppf key=[id at] leaves=2:", "public.parts_1 rpd key=[id at]", "public.scratch rud", "public.seen vp",
			"g[2]", "tags[1]",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("got\n%s\nwant %q in it", text, want)
			}
		}
		i := slices.IndexFunc(tables, func(c *catalogTable) bool { return c.Name == "parts" })
		if tables[i].Pages < 4 || !tables[i].Readable || tables[i].Leaves[0].Name != `"public"."parts_1"` {
			t.Errorf("parts: got %+v", tables[i])
		}
		m := newTypeMap(Types{})
		if err := m.load(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		i = slices.IndexFunc(tables, func(c *catalogTable) bool { return c.Name == "orders" })
		schema, err := m.schema(&tables[i].Table)
		if err != nil {
			t.Fatal(err)
		}
		want := "id: type=int64, nullable, region: type=utf8, nullable, m: type=utf8, nullable, " +
			"a: type=struct<street: utf8 nullable, zip: int32 nullable>, nullable, tags: type=list<element: utf8, nullable>, nullable, " +
			"p: type=decimal(12, 2), nullable, g: type=utf8, nullable, total: type=decimal(10, 2), nullable"
		if got := schemaText(schema.String()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// schemaText is Arrow's text of a schema on one line.
func schemaText(s string) string {
	var fields []string
	for _, line := range strings.Split(s, "\n") {
		if f, is := strings.CutPrefix(line, "    - "); is {
			fields = append(fields, f)
		} else if f, is := strings.CutPrefix(line, "  - "); is {
			fields = append(fields, f)
		}
	}
	return strings.Join(fields, ", ")
}

func TestCatalog_Publication_SaysWhatItPublishes(t *testing.T) {
	onServers(t, func(t *testing.T, address string) {
		conn := connect(t, address)
		if serverVersion(conn) < 150000 {
			t.Skip("needs column lists and row filters: PostgreSQL 15")
		}
		do(t, conn, "set search_path to public;"+catalogSQL+
			"create publication f for table orders (region, id, p) where (region > 'a');")
		p, err := readPublication(t.Context(), conn, "p", serverVersion(conn))
		if err != nil || p == nil || !p.Insert || p.Delete || p.Truncate || !p.ViaRoot || len(p.Tables) != 2 {
			t.Fatalf("got %+v, %v", p, err)
		}
		p, err = readPublication(t.Context(), conn, "f", serverVersion(conn))
		if err != nil || p == nil || p.ViaRoot || !p.Truncate {
			t.Fatalf("got %+v, %v", p, err)
		}
		of := p.Tables["public.orders"]
		if !slices.Equal(of.Columns, []string{"id", "region", "p"}) || !strings.Contains(of.Filter, "region > 'a'") {
			t.Errorf("got %+v", of)
		}
		if p, err := readPublication(t.Context(), conn, "none", serverVersion(conn)); p != nil || err != nil {
			t.Errorf("got %+v, %v, want none", p, err)
		}
	})
}
