package postgres

import "fmt"

// kind is how the text of a type's values is read.
type kind uint8

const (
	kindText    kind = iota // as it stands; also of types that are not known
	kindPadded              // char(n): without the blanks at its end, which SQL does not see either
	kindBool                // t, f
	kindInt                 // smallint, integer, bigint, and the unsigned oid, xid, cid
	kindXID8                // unsigned, of 64 bits
	kindFloat               // real, double precision
	kindNumeric             // numeric
	kindMoney               // with our lc_monetary: $1,234.56
	kindBytes               // bytea: \x and hexadecimal digits
	kindHex                 // geometry, geography: hexadecimal digits of EWKB
	kindDate                // date
	kindStamp               // timestamp
	kindInstant             // timestamp with time zone, which our TimeZone makes UTC
	kindArray               // {a,"b c",NULL}
	kindVector              // pgvector's [1,2,3]
	kindStruct              // a composite type: (a,"b c",)
	kindMap                 // hstore: "k"=>"v", "n"=>NULL
	kindDomain              // of another type, whose values it has
)

// pgType is a type of the source's database.
type pgType struct {
	name      string // as format_type has it: "numeric", "public.mood"
	kind      kind
	bits      int    // of an integer or a float; 33: an unsigned integer of 32
	of        uint32 // the element of an array, the base of a domain
	modifier  int32  // of the base of a domain
	delimiter byte   // between the elements of an array of it
	fields    []Column
}

// typeMap knows the types of one database and into which columns their values go. Used by one goroutine.
type typeMap struct {
	types   map[uint32]pgType
	choices Types
}

// Types says how values become Delta's where there is a choice.
type Types struct {
	// Numeric is the type of numeric columns without a precision: NumericText (the default), NumericDouble, or a
	// decimal, as "decimal(38,18)".
	Numeric string
	// Beyond says what becomes of a value that the type of its column cannot hold (infinity, a date out of the years
	// 1 to 9999, NaN in a decimal, an array of two dimensions): BeyondNull (the default), or BeyondReject. In a key it
	// is always BeyondReject.
	Beyond string
	// Columns are exceptions, by "schema.table.column": AsText keeps the text that the server writes.
	Columns map[string]string
	// Hidden says what is hidden of a column: of a table, "public.orders", the column as its Delta table calls it. nil: nothing is.
	Hidden func(table, column string) Hiding
}

// What Types may say.
const (
	NumericText   = "text"
	NumericDouble = "double" // rounds to the nearest float of 64 bits
	BeyondNull    = "null"   // a null, which is counted
	BeyondReject  = "reject" // the row goes to quarantine
	AsText        = "text"
)

func newTypeMap(choices Types) *typeMap {
	t := &typeMap{types: map[uint32]pgType{}, choices: choices}
	for _, b := range builtins {
		t.types[b.oid] = pgType{name: b.name, kind: b.kind, bits: b.bits, delimiter: delimiterOf(b.oid)}
		if b.array != 0 {
			t.types[b.array] = pgType{name: b.name + "[]", kind: kindArray, of: b.oid, delimiter: ','}
		}
	}
	return t
}

// oidBox is the type box, the only one of the server's whose arrays have another delimiter than a comma.
const oidBox = 603

func delimiterOf(oid uint32) byte {
	if oid == oidBox {
		return ';'
	}
	return ','
}

// builtins are the types that have the same OID in every database. Source: pg_type.dat.
var builtins = []struct {
	oid, array uint32
	name       string
	kind       kind
	bits       int
}{
	{16, 1000, "boolean", kindBool, 0},
	{17, 1001, "bytea", kindBytes, 0},
	{18, 1002, `"char"`, kindText, 0},
	{19, 1003, "name", kindText, 0},
	{20, 1016, "bigint", kindInt, 64},
	{21, 1005, "smallint", kindInt, 16},
	{23, 1007, "integer", kindInt, 32},
	{24, 1008, "regproc", kindText, 0},
	{25, 1009, "text", kindText, 0},
	{26, 1028, "oid", kindInt, 33},
	{27, 1010, "tid", kindText, 0},
	{28, 1011, "xid", kindInt, 33},
	{29, 1012, "cid", kindInt, 33},
	{114, 199, "json", kindText, 0},
	{142, 143, "xml", kindText, 0},
	{600, 1017, "point", kindText, 0},
	{601, 1018, "lseg", kindText, 0},
	{602, 1019, "path", kindText, 0},
	{oidBox, 1020, "box", kindText, 0},
	{604, 1027, "polygon", kindText, 0},
	{628, 629, "line", kindText, 0},
	{650, 651, "cidr", kindText, 0},
	{700, 1021, "real", kindFloat, 32},
	{701, 1022, "double precision", kindFloat, 64},
	{718, 719, "circle", kindText, 0},
	{774, 775, "macaddr8", kindText, 0},
	{790, 791, "money", kindMoney, 0},
	{829, 1040, "macaddr", kindText, 0},
	{869, 1041, "inet", kindText, 0},
	{1042, 1014, "character", kindPadded, 0},
	{1043, 1015, "character varying", kindText, 0},
	{1082, 1182, "date", kindDate, 0},
	{1083, 1183, "time", kindText, 0},
	{1114, 1115, "timestamp", kindStamp, 0},
	{1184, 1185, "timestamp with time zone", kindInstant, 0},
	{1186, 1187, "interval", kindText, 0},
	{1266, 1270, "time with time zone", kindText, 0},
	{1560, 1561, "bit", kindText, 0},
	{1562, 1563, "bit varying", kindText, 0},
	{1700, 1231, "numeric", kindNumeric, 0},
	{2950, 2951, "uuid", kindText, 0},
	{2970, 2949, "txid_snapshot", kindText, 0},
	{3220, 3221, "pg_lsn", kindText, 0},
	{3614, 3643, "tsvector", kindText, 0},
	{3615, 3645, "tsquery", kindText, 0},
	{3802, 3807, "jsonb", kindText, 0},
	{3904, 3905, "int4range", kindText, 0},
	{3906, 3907, "numrange", kindText, 0},
	{3908, 3909, "tsrange", kindText, 0},
	{3910, 3911, "tstzrange", kindText, 0},
	{3912, 3913, "daterange", kindText, 0},
	{3926, 3927, "int8range", kindText, 0},
	{4072, 4073, "jsonpath", kindText, 0},
	{4451, 6150, "int4multirange", kindText, 0},
	{4532, 6151, "nummultirange", kindText, 0},
	{4533, 6152, "tsmultirange", kindText, 0},
	{4534, 6153, "tstzmultirange", kindText, 0},
	{4535, 6155, "datemultirange", kindText, 0},
	{4536, 6157, "int8multirange", kindText, 0},
	{5038, 5039, "pg_snapshot", kindText, 0},
	{5069, 271, "xid8", kindXID8, 0},
}

// add tells of a type of the database, replacing what was known under its OID.
func (t *typeMap) add(oid uint32, p pgType) { t.types[oid] = p }

// knows reports whether all types of the table's columns are known. Else the types are to be loaded anew: one was made
// since.
func (t *typeMap) knows(table *Table) bool {
	for _, c := range table.Columns {
		if _, known := t.types[c.Type]; !known {
			return false
		}
	}
	return true
}

// resolve follows domains to the type whose values they have. An unknown type is one of text.
func (t *typeMap) resolve(oid uint32, modifier int32) (pgType, int32) {
	for range maxDomains {
		p, known := t.types[oid]
		if !known {
			return pgType{name: fmt.Sprintf("the type %d", oid), delimiter: ','}, -1
		}
		if p.kind != kindDomain {
			return p, modifier
		}
		oid, modifier = p.of, p.modifier
	}
	return pgType{name: fmt.Sprintf("the type %d", oid), delimiter: ','}, -1
}

// maxDomains bounds domains of domains: beyond it the catalog that told of them is broken.
const maxDomains = 64

// maxNested bounds types within types likewise. Deeper ones are text.
const maxNested = 16

// precision is the precision and the scale of a numeric; ok is false where it has none. Source: numeric_typmod.
func precision(modifier int32) (p, s int, ok bool) {
	if modifier < 4 {
		return 0, 0, false
	}
	modifier -= 4
	return int(modifier >> 16 & 0xffff), int(modifier&0x7ff^0x400) - 0x400, true
}

// describe is the type as people write it: "numeric(10,2)".
func (t *typeMap) describe(oid uint32, modifier int32) string {
	p, known := t.types[oid]
	if !known {
		return fmt.Sprintf("type %d", oid)
	}
	switch {
	case p.kind == kindNumeric:
		if precision, scale, ok := precision(modifier); ok {
			return fmt.Sprintf("numeric(%d,%d)", precision, scale)
		}
	case p.kind == kindArray && modifier >= 0:
		return t.describe(p.of, modifier) + "[]"
	case p.kind == kindPadded && modifier > 4:
		return fmt.Sprintf("character(%d)", modifier-4)
	}
	return p.name
}
