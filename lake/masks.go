package lake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// maskProperty begins the names of the table properties that say of which columns the table has hashes in the place of values, and what
// tells their key from others. Values and hashes, or hashes of two keys, in one column could not be told apart, and what was to be
// hidden would still be there: whoever writes must say the same as the table.
const maskProperty = "freshet.mask."

// maskOf is what the options say of a column.
func (o *TargetOptions) maskOf(column string) string {
	for name, mask := range o.Masks {
		if strings.EqualFold(name, column) {
			return mask
		}
	}
	return ""
}

// maskProperties are the properties that say so of a table.
func maskProperties(masks map[string]string) map[string]string {
	all := map[string]string{}
	for name, mask := range masks {
		all[maskProperty+strings.ToLower(name)] = mask
	}
	return all
}

// maskPolicies adds to set the properties that the table is to get for columns that it has not yet. Errors: CodeMaskChanged.
func (t *table) maskPolicies(snap *delta.Snapshot, set map[string]string) error {
	had := snap.Metadata().Configuration
	for property, mask := range maskProperties(t.opts.Masks) {
		column := strings.TrimPrefix(property, maskProperty)
		f, _ := snap.Schema().Lookup(column)
		switch {
		case had[property] == mask:
		case f == nil:
			set[property] = mask
		default:
			return t.maskChanged(f.Name, had[property], mask)
		}
	}
	for _, property := range slices.Sorted(maps.Keys(had)) {
		column, is := strings.CutPrefix(property, maskProperty)
		if !is || t.opts.maskOf(column) != "" {
			continue
		}
		if f, _ := snap.Schema().Lookup(column); f != nil {
			return t.maskChanged(f.Name, had[property], "")
		}
	}
	return nil
}

// otherLog is what to do about a change log.
const otherLog = "name another table for the change log, and delete this one: a change log is not loaded again"

func (t *table) maskChanged(column, had, mask string) error {
	fix := "load the table again: freshet pipeline resync PIPELINE --table " + t.name + "; what it had stays in its older versions until a vacuum"
	if t.a.lead != nil {
		fix = otherLog
	}
	return maskChanged(t.name, column, had, mask, fix)
}

func maskChanged(table, column, had, mask, fix string) error {
	text := func(mask string) string {
		if mask == "" {
			return "the values themselves"
		}
		return "hashes of the key " + mask
	}
	return &freshet.Error{Code: freshet.CodeMaskChanged, Class: freshet.ClassInput, Place: table,
		Msg: fmt.Sprintf("the column %s has %s, and is to get %s", column, text(had), text(mask)), Fix: fix}
}

// withoutMasks are properties less those of masks.
func withoutMasks(properties map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range properties {
		if !strings.HasPrefix(name, maskProperty) {
			out[name] = value
		}
	}
	return out
}

// logMasks refuses to load a table again whose change log has other masks: the log would be told of the rows as they were.
func (r *Resync) logMasks(log *delta.Snapshot) error {
	o := TargetOptions{Masks: r.Masks}
	for _, f := range log.Schema().Fields {
		if had, mask := log.Property(maskProperty+strings.ToLower(f.Name)), o.maskOf(f.Name); had != mask {
			return maskChanged(r.LogName, f.Name, had, mask, otherLog)
		}
	}
	return nil
}

// copySchema is the schema of a copy that has these masks, of a table that may have others: columns of which it has hashes now are
// text, and those of which it has values again come with their rows.
func (r *Resync) copySchema(main *delta.Snapshot) *delta.Schema {
	o := TargetOptions{Masks: r.Masks}
	var fields []delta.Field
	for _, f := range main.Schema().Fields {
		had, mask := main.Property(maskProperty+strings.ToLower(f.Name)), o.maskOf(f.Name)
		switch {
		case had == mask:
		case mask == "":
			continue
		default:
			f.Type = delta.String
		}
		fields = append(fields, f)
	}
	return &delta.Schema{Fields: fields}
}

// masked is the metadata of the table with the masks of the copy, whose columns of other masks are as the copy has them.
func (r *Resync) masked(main, copied *delta.Snapshot) (*delta.Metadata, bool, error) {
	had, has := maskProperties(nil), maskProperties(nil)
	for into, snap := range map[*map[string]string]*delta.Snapshot{&had: main, &has: copied} {
		for name, value := range snap.Metadata().Configuration {
			if strings.HasPrefix(name, maskProperty) {
				(*into)[name] = value
			}
		}
	}
	if maps.Equal(had, has) {
		return main.Metadata(), false, nil
	}
	fields := slices.Clone(main.Schema().Fields)
	for i, f := range fields {
		property := maskProperty + strings.ToLower(f.Name)
		if now, _ := copied.Schema().Lookup(f.Name); now != nil && had[property] != has[property] {
			fields[i].Type = now.Type
		}
	}
	meta, err := main.Metadata().WithSchema(&delta.Schema{Fields: fields})
	if err != nil {
		return nil, false, err
	}
	meta.Configuration = withoutMasks(meta.Configuration)
	maps.Copy(meta.Configuration, has)
	return meta, true, nil
}
