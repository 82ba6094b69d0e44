package postgres

import "github.com/freshet-io/freshet/postgres/internal/pgoutput"

// Table is a table of the source as the catalog, or a Relation message of the log, tells it.
type Table struct {
	OID      uint32
	Schema   string
	Name     string
	Identity Identity
	Columns  []Column // in the order in which rows have them
	Loose    []string // partitions, quoted, that have an identity of their own which is not FULL; only the catalog tells
}

// Identity is what the log tells of a row before an update or a delete: REPLICA IDENTITY.
type Identity byte

// The identities, in the letters of pg_class.relreplident.
const (
	IdentityKey     Identity = 'd' // the columns of the primary key; nothing where there is none
	IdentityNothing Identity = 'n'
	IdentityFull    Identity = 'f' // all columns
	IdentityIndex   Identity = 'i' // the columns of an index
)

// Column is a column of a Table.
type Column struct {
	Name      string
	Type      uint32 // the type's OID
	Modifier  int32  // of the type, -1: none
	Key       bool   // it is part of the replica identity
	Unique    bool   // it is part of the key by which rows are told apart, which a full identity does not say
	NotNull   bool   // as far as is known: Relation messages do not say
	Generated bool   // and stored; likewise
	Virtual   bool   // generated when it is read, which no log tells of; likewise
	// Number is its place among all that the table ever had, from 1 on; Filled says that rows got a value in it when it was added,
	// or get one. Only the catalog tells either.
	Number int
	Filled bool
	// Out leaves it out of what its table becomes.
	Out bool
	// Dimensions is how many an array is declared with, as far as is known: 0 where it is none.
	Dimensions int
}

// String is the table's name as people write it: "public.orders".
func (t *Table) String() string { return t.Schema + "." + t.Name }

// relationOf is a table as the log would describe it.
func relationOf(t *Table) *pgoutput.Rel {
	rel := &pgoutput.Rel{OID: t.OID, Schema: t.Schema, Name: t.Name, Identity: byte(t.Identity)}
	for _, c := range t.Columns {
		rel.Columns = append(rel.Columns, pgoutput.Column{Key: c.Key, Name: c.Name, Type: c.Type, Modifier: c.Modifier})
	}
	return rel
}
