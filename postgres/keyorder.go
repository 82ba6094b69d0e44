package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// keyColumn is a column by whose order a table is cut into chunks.
type keyColumn struct {
	name      string
	typed     string                // its type, as SQL takes it
	collation string                // " COLLATE …", or ""
	compare   func(a, b []byte) int // as the server orders the values, given as text; nil: only the server can
}

// ordered reports whether the order of keys is known here, and not to the server alone.
func ordered(key []keyColumn) bool {
	return !slices.ContainsFunc(key, func(k keyColumn) bool { return k.compare == nil })
}

// oidUUID is the type uuid.
const oidUUID = 2950

// keyColumns are the columns by which rows of the table can be told apart and put in order: those of the primary key, or of the index
// that is the replica identity, since the log names deleted rows by it; nil: there are none. The order of some is the server's alone, as
// that of text in most languages. Errors: those of the connection.
func (t *typeMap) keyColumns(ctx context.Context, conn *pgconn.PgConn, table *catalogTable) ([]keyColumn, error) {
	found, err := query(ctx, conn, `
select a.attname, a.atttypid, a.atttypmod, case
  when a.attcollation = 0 or co.collname in ('C', 'POSIX', 'ucs_basic') then true
  when co.collname = 'default' then (select coalesce(to_jsonb(d)->>'datlocprovider', 'c') = 'b'
    or coalesce(to_jsonb(d)->>'datlocprovider', 'c') = 'c' and d.datcollate in ('C', 'POSIX')
    from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
  else false end, pg_catalog.format_type(a.atttypid, a.atttypmod),
  (select quote_ident(s.nspname) || '.' || quote_ident(co.collname) from pg_catalog.pg_namespace s where s.oid = co.collnamespace)
from pg_catalog.pg_index i
  cross join lateral unnest(i.indkey::int2[]) with ordinality k(attnum, place)
  join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
  left join pg_catalog.pg_collation co on co.oid = a.attcollation
where i.indrelid = $1::oid and k.place <= i.indnkeyatts and (case when $2 = 'i' then i.indisreplident else i.indisprimary end)
order by k.place`, strconv.FormatUint(uint64(table.OID), 10), string(table.Identity))
	if err != nil {
		return nil, fmt.Errorf("read the key of %s: %w", table, err)
	}
	var key []keyColumn
	for _, r := range found {
		k := keyColumn{name: string(r[0]), typed: string(r[4]), compare: t.comparison(uint32(number(r[1])), int32(number(r[2])), r[3][0] == 't')}
		if len(r[5]) > 0 {
			k.collation = " collate " + string(r[5])
		}
		key = append(key, k)
	}
	return key, nil
}

// comparison orders values of a type as the server does; nil: only the server can. plain says that text is ordered by its
// bytes.
func (t *typeMap) comparison(oid uint32, modifier int32, plain bool) func(a, b []byte) int {
	p, _ := t.resolve(oid, modifier)
	base := oid
	for range maxDomains {
		if d := t.types[base]; d.kind == kindDomain {
			base = d.of
		}
	}
	switch p.kind {
	case kindInt:
		return compareInts
	case kindXID8:
		return compareUnsigned
	case kindBool, kindBytes:
		return bytes.Compare
	case kindNumeric:
		return compareNumerics
	case kindDate, kindStamp, kindInstant:
		return compareTimes
	case kindPadded:
		if plain {
			return func(a, b []byte) int { return bytes.Compare(bytes.TrimRight(a, " "), bytes.TrimRight(b, " ")) }
		}
	case kindText:
		if base == oidUUID || plain && (base == 25 || base == 1043 || base == 19) {
			return bytes.Compare
		}
	}
	return nil
}

func compareInts(a, b []byte) int {
	x, _ := parseInt(a)
	y, _ := parseInt(b)
	return cmp.Compare(x, y)
}

func compareUnsigned(a, b []byte) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b))
}

// compareNumerics has infinities at both ends, and what is not a number beyond them.
func compareNumerics(a, b []byte) int {
	rank := func(v []byte) int {
		switch string(v) {
		case "-Infinity":
			return -1
		case "Infinity":
			return 1
		case "NaN":
			return 2
		}
		return 0
	}
	if x, y := rank(a), rank(b); x != 0 || y != 0 {
		return cmp.Compare(x, y)
	}
	x, _ := new(big.Rat).SetString(string(a))
	y, _ := new(big.Rat).SetString(string(b))
	if x == nil || y == nil {
		return bytes.Compare(a, b)
	}
	return x.Cmp(y)
}

// compareTimes orders dates and times as ISO writes them, with years before our era and beyond 9999, and infinities.
func compareTimes(a, b []byte) int {
	x, y := eraOf(a), eraOf(b)
	if x != y || x == -2 || x == 2 {
		return cmp.Compare(x, y)
	}
	yearA, restA, _ := bytes.Cut(a, []byte("-"))
	yearB, restB, _ := bytes.Cut(b, []byte("-"))
	years := cmp.Or(cmp.Compare(len(yearA), len(yearB)), bytes.Compare(yearA, yearB))
	if x < 0 {
		years = -years
		restA, restB = bytes.TrimSuffix(restA, []byte(" BC")), bytes.TrimSuffix(restB, []byte(" BC"))
	}
	return cmp.Or(years, bytes.Compare(restA, restB))
}

// eraOf is -2 and 2 for the infinities, -1 before our era, 0 in it.
func eraOf(v []byte) int {
	switch {
	case string(v) == "-infinity":
		return -2
	case string(v) == "infinity":
		return 2
	case bytes.HasSuffix(v, []byte("BC")):
		return -1
	}
	return 0
}
