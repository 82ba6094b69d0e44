package format

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// Infer returns the columns of these records: those of known as they are, structs among them with fields
// added, and then the new ones, in the order of the lowest place that each has in a record, then by name; for
// Rescue, RescuedColumn. It returns known itself when there is nothing to add, and nil when known is nil and
// no record tells a type. Unless new fields are to be added, known is all columns there are, but for those
// that freshet.MoreColumns allows: a table keeps its columns when the source starts again. Records that would be
// rejected as JSON are passed over. It looks at all payloads it is given; bounding the sample is the
// source's.
//
// A column's type is the least that holds all its values, whatever their order:
//
//	null                                  tells nothing, nor does an object in which nothing tells
//	true, false                           boolean
//	whole numbers                         long; beyond 64 bits decimal(38,0); beyond 38 digits string
//	numbers with a point or exponent      double if all, also the whole ones, survive; else decimal(38,s); else
//	                                      string
//	text, all RFC 3339 with zone          timestamp, unless one is finer than microseconds
//	text, all YYYY-MM-DD                  date
//	other text, and mixtures              string (of what is no text, its JSON text)
//	objects                               struct; string if a key cannot be a column's name
//	arrays                                array of the least type of all elements; of string if nothing tells
//
// Names that differ only in case are one column, under the commonest spelling. When there would be more than
// Options.MaxColumns, fields of few columns go first, and what has no room is a field without a column.
func (f *JSON) Infer(payloads []freshet.Payload, known *arrow.Schema) (*arrow.Schema, error) {
	var root shape
	var zip gunzipper
	s := scanner{maxDepth: f.opts.MaxDepth}
	for _, p := range payloads {
		if record := s.validRecord(f.unpacked(&zip, p.Value), f.opts.MaxBytes); record != nil {
			root.observe(record)
		}
	}
	return f.schemaOf(&root, known), nil
}

// unpacked returns the payload without its compression, nil if that is broken. It is valid until the next call.
func (f *JSON) unpacked(zip *gunzipper, payload []byte) []byte {
	if !f.opts.Gzip || !gzipped(payload) {
		return payload
	}
	unpacked, err := zip.unpack(payload, f.opts.MaxBytes)
	if err != nil {
		return nil
	}
	return unpacked
}

// schemaOf returns the columns of known and those of the records that root has seen.
func (f *JSON) schemaOf(root *shape, known *arrow.Schema) *arrow.Schema {
	if f.opts.NewFields == Rescue {
		delete(root.fields, RescuedColumn)
	}
	return f.widen(root.fields, known)
}

// validRecord returns the payload without space around it, nil if it is not one valid object.
func (s *scanner) validRecord(payload []byte, maxBytes int) []byte {
	begin := skipSpace(payload, 0)
	if len(payload) > maxBytes || begin == len(payload) || payload[begin] != '{' {
		return nil
	}
	s.begin()
	end := s.skip(payload, begin)
	if end == failed || skipSpace(payload, end) != len(payload) {
		return nil
	}
	return payload[begin:end]
}

// onlyMore drops the fields that are not to become columns beside those of known, nor widen them.
func onlyMore(fields map[string]*fieldShape, known *arrow.Schema) {
	meta := known.Metadata()
	more, _ := meta.GetValue(freshet.MoreColumns)
	allowed := strings.Split(strings.ToLower(more), "\n")
	maps.DeleteFunc(fields, func(lower string, _ *fieldShape) bool {
		isKnown := slices.ContainsFunc(known.Fields(), func(f arrow.Field) bool {
			return strings.ToLower(f.Name) == lower
		})
		return isKnown || more != "*" && !slices.Contains(allowed, lower)
	})
}

func (f *JSON) widen(fields map[string]*fieldShape, known *arrow.Schema) *arrow.Schema {
	var old []arrow.Field
	var meta *arrow.Metadata
	if known != nil {
		old = known.Fields()
		m := known.Metadata()
		meta = &m
		if f.opts.NewFields != Add {
			onlyMore(fields, known)
		}
	}
	room := f.opts.MaxColumns - columnsIn(old)
	widened, changed := widenFields(old, fields, &room)
	if len(widened) == 0 {
		return known
	}
	isRescued := func(c arrow.Field) bool { return c.Name == RescuedColumn }
	if f.opts.NewFields == Rescue && !slices.ContainsFunc(widened, isRescued) {
		widened = append(widened, arrow.Field{Name: RescuedColumn, Type: arrow.BinaryTypes.String, Nullable: true})
		changed = true
	}
	if !changed {
		return known
	}
	return arrow.NewSchema(widened, meta)
}

// widenFields returns the old fields, widened, and the new ones behind them, as far as there is room for columns.
func widenFields(old []arrow.Field, seen map[string]*fieldShape, room *int) (fields []arrow.Field, changed bool) {
	fields = slices.Clone(old)
	isOld := make(map[string]bool, len(old))
	for i := range fields {
		lower := strings.ToLower(fields[i].Name)
		isOld[lower] = true
		if shape := seen[lower]; shape != nil {
			if t := widenType(fields[i].Type, &shape.shape, room); t != nil {
				fields[i].Type, changed = t, true
			}
		}
	}
	type newField struct {
		arrow.Field
		place int
	}
	var added []newField
	for lower, f := range seen {
		name := f.name()
		if isOld[lower] || !nameable([]byte(name)) {
			continue
		}
		if t := f.shape.resolve(); t != nil {
			added = append(added, newField{arrow.Field{Name: name, Type: t, Nullable: true}, f.place})
		}
	}
	slices.SortFunc(added, func(a, b newField) int {
		return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.Name, b.Name))
	})
	news := make([]arrow.Field, len(added))
	for i, f := range added {
		news[i] = f.Field
	}
	news = within(news, room)
	return append(fields, news...), changed || len(news) > 0
}

// widenType returns the known type with the fields added that the objects in it have; nil if there are none.
func widenType(t arrow.DataType, seen *shape, room *int) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StructType:
		if fields, changed := widenFields(t.Fields(), seen.fields, room); changed {
			return arrow.StructOf(fields...)
		}
	case *arrow.ListType:
		if seen.element != nil {
			element := t.ElemField()
			if element.Type = widenType(element.Type, seen.element, room); element.Type != nil {
				return arrow.ListOfField(element)
			}
		}
	case *arrow.MapType:
		var values shape
		for _, f := range seen.fields {
			values.join(&f.shape)
		}
		value := t.ItemField()
		if value.Type = widenType(value.Type, &values, room); value.Type != nil {
			return arrow.MapOfFields(t.KeyField(), value)
		}
	}
	return nil
}
