package delta

import (
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// checkpointColumns gathers actions as rows of a checkpoint. Spec: "Checkpoint Schema".
type checkpointColumns struct {
	schema     *Schema
	columns    []parquet.Column
	rows       *array.RecordBuilder
	n          int
	partitions []Field        // typed in partitionValues_parsed; nil when it is not written
	stats      *statsParser   // nil when stats_parsed is not written
	json       bool           // stats are written as JSON
	index      map[string]int // of the columns
}

var (
	stringMapType  = &Map{Key: String, Value: String, ValueContainsNull: true}
	stringListType = &Array{Element: String, ContainsNull: true}
)

func nullable(name string, t Type) Field { return Field{Name: name, Type: t, Nullable: true} }

func structOf(fields ...Field) *Struct { return &Struct{Fields: fields} }

// allColumns are the actions that a classic checkpoint holds.
var allColumns = []string{"txn", "add", "remove", "metaData", "protocol", "domainMetadata"}

// newCheckpointColumns lays out the columns of these actions for the table: statistics as its properties say, by
// default both as JSON and as columns, as Spark does.
func newCheckpointColumns(s *Snapshot, actions []string) (*checkpointColumns, error) {
	meta, schema := s.state.meta, s.schema
	c := &checkpointColumns{json: meta.boolean(propStatsAsJSON, true), index: map[string]int{}}
	vector := structOf(nullable("storageType", String), nullable("pathOrInlineDv", String),
		nullable("offset", Integer), nullable("sizeInBytes", Integer), nullable("cardinality", Long))
	add := structOf(nullable("path", String), nullable("partitionValues", stringMapType), nullable("size", Long),
		nullable("modificationTime", Long), nullable("dataChange", Boolean), nullable("tags", stringMapType),
		nullable("deletionVector", vector), nullable("baseRowId", Long), nullable("defaultRowCommitVersion", Long),
		nullable("clusteringProvider", String))
	if c.json {
		add.Fields = append(add.Fields, nullable("stats", String))
	}
	if meta.boolean(propStatsAsStruct, true) {
		c.partitions = partitionFields(meta, schema)
		if len(c.partitions) > 0 {
			add.Fields = append(add.Fields, nullable("partitionValues_parsed", structOf(c.partitions...)))
		}
		clustered, err := s.ClusteringColumns()
		if err != nil {
			return nil, err
		}
		stats, err := newStatsParser(meta, schema, clustered)
		if err != nil {
			return nil, err
		}
		c.stats = stats
		add.Fields = append(add.Fields, nullable("stats_parsed", structOf(stats.fields...)))
	}
	c.schema = &Schema{Fields: []Field{
		nullable("txn", structOf(nullable("appId", String), nullable("version", Long),
			nullable("lastUpdated", Long))),
		nullable("add", add),
		nullable("remove", structOf(nullable("path", String), nullable("deletionTimestamp", Long),
			nullable("dataChange", Boolean), nullable("extendedFileMetadata", Boolean),
			nullable("partitionValues", stringMapType), nullable("size", Long), nullable("deletionVector", vector),
			nullable("baseRowId", Long), nullable("defaultRowCommitVersion", Long))),
		nullable("metaData", structOf(nullable("id", String), nullable("name", String),
			nullable("description", String),
			nullable("format", structOf(nullable("provider", String), nullable("options", stringMapType))),
			nullable("schemaString", String), nullable("partitionColumns", stringListType),
			nullable("configuration", stringMapType), nullable("createdTime", Long))),
		nullable("protocol", structOf(nullable("minReaderVersion", Integer), nullable("minWriterVersion", Integer),
			nullable("readerFeatures", stringListType), nullable("writerFeatures", stringListType))),
		nullable("domainMetadata", structOf(nullable("domain", String), nullable("configuration", String),
			nullable("removed", Boolean))),
	}}
	c.schema.Fields = slices.DeleteFunc(c.schema.Fields, func(f Field) bool {
		return !slices.Contains(actions, f.Name)
	})
	for i, f := range c.schema.Fields {
		column, err := byName.parquetColumn(f, f.Name)
		if err != nil {
			return nil, err
		}
		c.columns = append(c.columns, column)
		c.index[f.Name] = i
	}
	c.rows = array.NewRecordBuilder(memory.NewGoAllocator(), c.schema.Arrow())
	return c, nil
}

// partitionFields are the table's partition columns, by their names in the log, with their types.
func partitionFields(meta *Metadata, schema *Schema) (fields []Field) {
	m := mappingOf(meta.Configuration)
	for _, name := range meta.PartitionColumns {
		if f, _ := schema.Lookup(name); f != nil {
			fields = append(fields, nullable(m.physicalName(f), f.Type))
		}
	}
	return fields
}

// take returns the gathered rows, one array a column, and begins anew.
func (c *checkpointColumns) take() ([]arrow.Array, int) {
	rec := c.rows.NewRecordBatch()
	n := c.n
	c.n = 0
	return rec.Columns(), n
}

// append adds the action as a row.
func (c *checkpointColumns) append(a *Action) error {
	name, write := c.writer(a)
	if write == nil {
		return fmt.Errorf("an action that has no place in a checkpoint: %+v", *a)
	}
	at := c.index[name]
	for i, b := range c.rows.Fields() {
		if i != at {
			b.AppendNull()
			continue
		}
		s := b.(*array.StructBuilder)
		s.Append(true)
		write(&structWriter{b: s})
	}
	c.n++
	return nil
}

func (c *checkpointColumns) writer(a *Action) (column string, write func(*structWriter)) {
	switch {
	case a.Add != nil:
		return "add", func(w *structWriter) { c.writeAdd(w, a.Add) }
	case a.Remove != nil:
		return "remove", a.Remove.columns
	case a.Txn != nil:
		return "txn", func(w *structWriter) {
			w.text(a.Txn.AppID)
			w.int(&a.Txn.Version)
			w.int(a.Txn.LastUpdated)
		}
	case a.Metadata != nil:
		return "metaData", a.Metadata.columns
	case a.Protocol != nil:
		return "protocol", a.Protocol.columns
	case a.DomainMetadata != nil:
		return "domainMetadata", func(w *structWriter) {
			w.text(a.DomainMetadata.Domain)
			w.text(a.DomainMetadata.Configuration)
			w.bool(&a.DomainMetadata.Removed)
		}
	}
	return "", nil
}

func (c *checkpointColumns) writeAdd(w *structWriter, a *Add) {
	change := false // a checkpoint changes nothing
	w.text(a.Path)
	w.texts(a.PartitionValues, true)
	w.int(&a.Size)
	w.int(&a.ModificationTime)
	w.bool(&change)
	w.texts(a.Tags, false)
	a.DeletionVector.columns(w)
	w.int(a.BaseRowID)
	w.int(a.DefaultRowCommitVersion)
	w.optionalText(a.ClusteringProvider)
	if c.json {
		w.optionalText(a.Stats)
	}
	if len(c.partitions) > 0 {
		parsed := w.child()
		parsed.b.Append(true)
		for _, f := range c.partitions {
			appendParsed(parsed.next(), f.Type, a.PartitionValues[f.Name])
		}
	}
	if c.stats != nil {
		c.stats.append(w.child().b, a.Stats)
	}
}

func (a *Remove) columns(w *structWriter) {
	change := false
	w.text(a.Path)
	w.int(a.DeletionTimestamp)
	w.bool(&change)
	w.bool(a.ExtendedFileMetadata)
	w.texts(a.PartitionValues, false)
	w.int(a.Size)
	a.DeletionVector.columns(w)
	w.int(a.BaseRowID)
	w.int(a.DefaultRowCommitVersion)
}

func (v *DeletionVector) columns(w *structWriter) {
	s := w.child()
	if v == nil {
		s.b.AppendNull()
		return
	}
	s.b.Append(true)
	s.text(v.StorageType)
	s.text(v.PathOrInlineDv)
	s.int32(v.Offset)
	s.int32(&v.SizeInBytes)
	s.int(&v.Cardinality)
}

func (m *Metadata) columns(w *structWriter) {
	w.text(m.ID)
	w.optionalText(m.Name)
	w.optionalText(m.Description)
	format := w.child()
	format.b.Append(true)
	format.text(m.Provider)
	format.texts(withNulls(m.FormatOptions), true)
	w.text(m.SchemaString)
	w.list(m.PartitionColumns, true)
	w.texts(withNulls(m.Configuration), true)
	w.int(m.CreatedTime)
}

func (p *Protocol) columns(w *structWriter) {
	reader, writer := int32(p.MinReaderVersion), int32(p.MinWriterVersion)
	w.int32(&reader)
	w.int32(&writer)
	w.list(p.ReaderFeatures, p.MinReaderVersion >= featureReaderVersion)
	w.list(p.WriterFeatures, p.MinWriterVersion >= featureWriterVersion)
}

func withNulls(m map[string]string) map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}

// structWriter appends the fields of one struct in their order.
type structWriter struct {
	b  *array.StructBuilder
	at int
}

func (w *structWriter) next() array.Builder {
	w.at++
	return w.b.FieldBuilder(w.at - 1)
}

func (w *structWriter) child() *structWriter {
	return &structWriter{b: w.next().(*array.StructBuilder)}
}

func (w *structWriter) text(s string) { w.next().(*array.StringBuilder).Append(s) }

// optionalText writes null for "".
func (w *structWriter) optionalText(s string) {
	if b := w.next().(*array.StringBuilder); s == "" {
		b.AppendNull()
	} else {
		b.Append(s)
	}
}

func (w *structWriter) int(v *int64) {
	if b := w.next().(*array.Int64Builder); v == nil {
		b.AppendNull()
	} else {
		b.Append(*v)
	}
}

func (w *structWriter) int32(v *int32) {
	if b := w.next().(*array.Int32Builder); v == nil {
		b.AppendNull()
	} else {
		b.Append(*v)
	}
}

func (w *structWriter) bool(v *bool) {
	if b := w.next().(*array.BooleanBuilder); v == nil {
		b.AppendNull()
	} else {
		b.Append(*v)
	}
}

// list writes a list of strings; an empty one is null unless it is to be there.
func (w *structWriter) list(v []string, there bool) {
	b := w.next().(*array.ListBuilder)
	if len(v) == 0 && !there {
		b.AppendNull()
		return
	}
	b.Append(true)
	for _, s := range v {
		b.ValueBuilder().(*array.StringBuilder).Append(s)
	}
}

// texts writes a map; an empty one is null unless it is to be there.
func (w *structWriter) texts(m map[string]*string, there bool) {
	b := w.next().(*array.MapBuilder)
	if len(m) == 0 && !there {
		b.AppendNull()
		return
	}
	b.Append(true)
	keys, values := b.KeyBuilder().(*array.StringBuilder), b.ItemBuilder().(*array.StringBuilder)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		keys.Append(k)
		if m[k] == nil {
			values.AppendNull()
		} else {
			values.Append(*m[k])
		}
	}
}
