package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// checkTables looks at what the log will tell of each table.
func (f *facts) checkTables(o *Options) (found []Finding) {
	by := map[string]*catalogTable{}
	for _, t := range f.tables {
		object := "table " + t.String()
		if t.Persistence == 'u' {
			found = append(found, Finding{f.leaves(o, t), object, "found it UNLOGGED, wanted its changes in the log",
				"ALTER TABLE " + t.quoted() + " SET LOGGED;"})
		}
		found = append(found, f.checkIdentity(o, t, object)...)
		if names := f.unsentGenerated(t); len(names) > 0 {
			found = append(found, Finding{Notes, object, "the log does not send its generated columns: " +
				strings.Join(names, ", ") + "; they are left out", ""})
		}
		if _, err := f.types.schema(&t.Table); err != nil {
			found = append(found, Finding{Blocks, object, err.Error(), ""})
		}
		name := o.Table(t.Schema, t.Name)
		if other := by[name]; other != nil {
			found = append(found, Finding{Blocks, object, fmt.Sprintf("found the name %q for its table in Delta, which %s has: "+
				"wanted {schema} and {table} in the name of the target's table so that each has its own", name, other), ""})
		}
		if f.leftOut(o, t) == "" {
			by[name] = t
		}
		if strings.ContainsAny(name, "/\\") {
			found = append(found, Finding{Blocks, object, fmt.Sprintf("found the name %q for its table in Delta, wanted one "+
				"that can be a folder's", name), ""})
		}
	}
	return found
}

// leaves is how much it matters that a table cannot be published: one that a pattern selects is left out of the publication that
// the source makes.
func (f *facts) leaves(o *Options, t *catalogTable) Severity {
	if f.publication == nil && !named(o.Tables, t.Schema, t.Name) {
		return Warns
	}
	return Blocks
}

// checkIdentity looks at what the log says of rows that are updated or deleted. While a table that publishes updates has no
// identity, the server refuses them to everyone. Source: "Publication".
func (f *facts) checkIdentity(o *Options, t *catalogTable, object string) []Finding {
	keyed := slices.ContainsFunc(t.Columns, func(c Column) bool { return c.Key })
	byIndex := ""
	if t.Candidate != "" {
		byIndex = "ALTER TABLE " + t.quoted() + " REPLICA IDENTITY USING INDEX " + quoteName(t.Candidate) + ";"
	}
	switch {
	case t.virtualIdentity() && len(t.PrimaryKey) > 0:
		byIndex = "ALTER TABLE " + t.quoted() + " REPLICA IDENTITY DEFAULT;"
		fallthrough
	case t.virtualIdentity():
		return []Finding{{f.leaves(o, t), object, "found REPLICA IDENTITY FULL and virtual generated columns, which are in no log: while the table " +
			"is published, the server refuses updates and deletes of applications", byIndex}}
	case keyed && o.Alike && t.keyless(o) != "":
		return []Finding{{f.leaves(o, t), object, "found partitions without REPLICA IDENTITY FULL, and no key: the log would not tell which " +
			"row of them a delete or an update takes away; a partition does not follow its table in that", fullIdentity(&t.Table)}}
	case keyed && t.keyless(o) != "":
		return []Finding{{f.leaves(o, t), object, "found neither a primary key nor an index as its replica identity: " + t.keyless(o) +
			"; mode mirror with deletes: hard and no filter takes it as it is, and mode append its changes", byIndex}}
	case t.Identity == IdentityFull && len(t.PrimaryKey) == 0:
		return []Finding{{Notes, object, "found no primary key: rows are told apart by all of their columns, and several may be alike; " +
			"it is loaded in one transaction, and read whole when it is compared", ""}}
	case keyed:
		return nil
	case len(t.PrimaryKey) > 0:
		return []Finding{{f.leaves(o, t), object, "found REPLICA IDENTITY NOTHING, wanted the primary key: while the table is " +
			"published, the server refuses updates and deletes of applications",
			"ALTER TABLE " + t.quoted() + " REPLICA IDENTITY DEFAULT;"}}
	}
	if byIndex == "" && (!o.Keyed || o.Alike) {
		byIndex = fullIdentity(&t.Table)
	}
	why := ""
	switch {
	case o.Keyed && byIndex == "":
		why = "; give it a primary key: the mode, the policy for deletes or a step of the pipeline needs one"
	case o.Alike:
		why = ". That is so where rows are only inserted, too: the statement costs nothing there, as the log has more only of updates " +
			"and deletes"
	}
	return []Finding{{f.leaves(o, t), object, "found neither a primary key nor another replica identity: while the table is published, " +
		"the server refuses updates and deletes of applications" + why, byIndex}}
}

// unsentGenerated are the generated columns that the publication does not send.
func (f *facts) unsentGenerated(t *catalogTable) (names []string) {
	sent := f.version >= generates
	if f.publication != nil {
		sent = f.publication.Generated
	}
	for _, c := range t.Columns {
		if c.Virtual || c.Generated && !sent {
			names = append(names, c.Name)
		}
	}
	return names
}

// checkValues lists the columns whose values do not all arrive as they are.
func (f *facts) checkValues() (found []Finding) {
	for _, t := range f.tables {
		for i := range t.Columns {
			c := &t.Columns[i]
			if f.types.hiding(&t.Table, c) != (Hiding{}) {
				continue
			}
			to := f.types.columnType(&t.Table, c)
			loss := f.types.loss(c.Type, c.Modifier, to, 0)
			if name := columnName(c.Name); name != c.Name {
				loss = append(loss, fmt.Sprintf("the column is called %s, since Delta has no such names", name))
			}
			if len(loss) > 0 {
				found = append(found, Finding{Notes, fmt.Sprintf("column %s.%s", &t.Table, c.Name),
					fmt.Sprintf("%s becomes %s: %s", f.types.describe(c.Type, c.Modifier), deltaName(to), strings.Join(loss, "; ")), ""})
			}
		}
	}
	return found
}

// deltaName is a type by the name that Delta has for it.
func deltaName(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.StringType:
		return "string"
	case *arrow.Decimal128Type:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case *arrow.TimestampType:
		if t.TimeZone == "" {
			return "timestamp_ntz"
		}
		return "timestamp"
	case *arrow.Date32Type:
		return "date"
	case *arrow.Int16Type:
		return "short"
	case *arrow.Int32Type:
		return "integer"
	case *arrow.Int64Type:
		return "long"
	case *arrow.Float32Type:
		return "float"
	case *arrow.Float64Type:
		return "double"
	case *arrow.ListType:
		return "array<" + deltaName(t.Elem()) + ">"
	case *arrow.MapType:
		return "map<" + deltaName(t.KeyType()) + ", " + deltaName(t.ItemType()) + ">"
	case *arrow.StructType:
		return "struct"
	}
	return t.String()
}

// loss says which values of a type change on their way into a column of a type of Delta; nil: none.
func (t *typeMap) loss(oid uint32, modifier int32, to arrow.DataType, depth int) []string {
	p, modifier := t.resolve(oid, modifier)
	becomes := "become null"
	if t.choices.Beyond == BeyondReject {
		becomes = "go to quarantine"
	}
	if _, text := to.(*arrow.StringType); text {
		if p.kind == kindPadded {
			return []string{"blanks at the end are left out"}
		}
		return nil
	}
	switch p.kind {
	case kindNumeric:
		if to.ID() == arrow.FLOAT64 {
			return []string{"numbers are rounded to 15 to 17 digits"}
		}
		if _, _, has := precision(modifier); !has {
			return []string{fmt.Sprintf("NaN, Infinity and numbers of more digits %s", becomes)}
		}
		return []string{"NaN " + strings.Replace(becomes, "become", "becomes", 1)}
	case kindDate, kindStamp, kindInstant:
		return []string{fmt.Sprintf("infinity and what is not in the years 1 to 9999 %s", becomes)}
	case kindArray:
		loss := []string{fmt.Sprintf("arrays of several dimensions, or whose first index is not 1, %s", becomes)}
		if list, is := to.(*arrow.ListType); is && depth < maxNested {
			loss = append(loss, t.loss(p.of, modifier, list.Elem(), depth+1)...)
		}
		return loss
	case kindStruct:
		s, is := to.(*arrow.StructType)
		if !is || depth >= maxNested {
			return nil
		}
		var loss []string
		for _, a := range p.fields {
			if f, there := s.FieldByName(a.Name); there {
				loss = append(loss, t.loss(a.Type, a.Modifier, f.Type, depth+1)...)
			}
		}
		return slices.Compact(loss)
	}
	return nil
}
