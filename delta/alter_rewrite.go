package delta

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"golang.org/x/sync/errgroup"
)

// unmap ends the mapping of columns: files are written again under the names that columns have, all of them, since what
// they have of dropped columns would come back with a new column of that name. Spec: "Column Mapping".
func (a *alteration) unmap() error {
	delete(a.meta.Configuration, propColumnMapping)
	delete(a.meta.Configuration, propMaxColumnID)
	if mappingOf(a.snap.state.meta.Configuration) == byName {
		return nil
	}
	clustered, err := a.snap.ClusteringColumns()
	if err != nil {
		return err
	}
	if err := a.eachMeta(func(key string) bool { return strings.HasPrefix(key, "delta.columnMapping.") }); err != nil {
		return err
	}
	if err := a.schema.validate(byName); err != nil {
		return fmt.Errorf("without a mapping, files have columns by their names: %w", err)
	}
	if clustered != nil {
		domain, err := clusteringOf(a.schema, a.meta, clustered)
		if err != nil {
			return err
		}
		a.tx.SetDomainMetadata(domain)
	}
	return a.rewrite(func(*Add) (bool, error) { return true, nil })
}

// unwiden ends the widening of types: files that have a column in an earlier type are written again. Spec: "Type
// Widening", "Reader Requirements for Type Widening".
func (a *alteration) unwiden() error {
	delete(a.meta.Configuration, propTypeWidening)
	var changed []*Field
	all := false
	for i := range a.snap.schema.Fields {
		f := &a.snap.schema.Fields[i]
		if columnWith([]Field{*f}, "", metaTypeChanges) == "" {
			continue
		}
		changed = append(changed, f)
		all = all || slices.ContainsFunc(a.meta.PartitionColumns, func(c string) bool { return strings.EqualFold(c, f.Name) })
	}
	if err := a.eachMeta(func(key string) bool { return key == metaTypeChanges }); err != nil || len(changed) == 0 {
		return err
	}
	return a.rewrite(func(add *Add) (bool, error) {
		if all {
			return true, nil
		}
		return a.snap.narrow(a.ctx, add, changed)
	})
}

// eachMeta takes metadata away from all fields: the keys for which drop is true.
func (a *alteration) eachMeta(drop func(key string) bool) error {
	err := eachField(a.schema.Fields, nil, func(_ []string, f *Field) error {
		entries, err := metaEntries(f.Metadata)
		for _, e := range entries {
			if err == nil && drop(e.key) {
				err = f.setMeta(e.key, nil)
			}
		}
		return err
	})
	a.meta.SchemaString = a.schema.String()
	return err
}

// rewrite writes the chosen files again, under the metadata to come, as part of the alteration's commit. Rows stay what they
// are, with their ids. Memory: the names of the files, and a Writer. choose is called by several goroutines.
func (a *alteration) rewrite(choose func(*Add) (bool, error)) error {
	j, err := a.chosen(choose)
	if err != nil || len(j.files) == 0 {
		return err
	}
	slices.SortFunc(j.files, func(x, y Add) int { // so that few partitions are written at once
		return cmp.Or(strings.Compare(partitionKey(x.PartitionValues), partitionKey(y.PartitionValues)),
			strings.Compare(x.Path, y.Path))
	})
	size, err := a.snap.TargetFileBytes()
	if err != nil {
		return err
	}
	clustered, err := a.snap.ClusteringColumns()
	if err != nil {
		return err
	}
	w, err := NewWriter(a.tx.table.st, a.meta, a.proto, &WriterOptions{TargetFileBytes: size, ClusteredBy: clustered,
		Trusted: true, RowIDs: tracksRows(a.meta)})
	if err != nil {
		return err
	}
	done := &rewritten{job: j}
	if done.adds, err = a.copyRows(j, w); err == nil {
		done.rows = w.Rows()
		err = done.conserves()
	}
	if err != nil {
		return dropped(a.ctx, err, w)
	}
	a.written = w
	a.tx.Rewrite(Rewrite{Removed: j.files, Added: done.adds})
	a.tx.RowIDsKept(true)
	return nil
}

// chosen is the job of the chosen files.
func (a *alteration) chosen(choose func(*Add) (bool, error)) (*job, error) {
	j := &job{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(a.ctx)
	group.SetLimit(footersAtOnce)
	for add, err := range a.snap.Matching(ctx, nil) {
		if err != nil {
			return nil, cmp.Or(group.Wait(), err)
		}
		group.Go(func() error {
			wanted, err := choose(add)
			if err != nil || !wanted {
				return err
			}
			c := newCandidate(add)
			mu.Lock()
			defer mu.Unlock()
			j.take(&c)
			return nil
		})
	}
	return j, group.Wait()
}

func (a *alteration) copyRows(j *job, w *Writer) ([]Add, error) {
	for rows, err := range a.snap.ScanFiles(a.ctx, j.files, a.snap.rewriteScan()) {
		if err != nil {
			return nil, err
		}
		err = w.Write(a.ctx, rows.Batch)
		rows.Batch.Release()
		if err != nil {
			return nil, err
		}
	}
	return w.Close(a.ctx)
}

// narrow reports whether the file has a column, or a part of one, in another type than the table.
func (s *Snapshot) narrow(ctx context.Context, add *Add, columns []*Field) (bool, error) {
	at, err := s.locate(ctx, add.Path)
	if err != nil {
		return false, err
	}
	f, err := openParquet(ctx, at.st, at.key, add.Size, nil)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", add.Path, absent(err))
	}
	by, other := mappingOf(s.Metadata().Configuration), false
	err = guardScan(at.key, func() error {
		schema, err := manifestOf(f.MetaData().Schema, nil)
		if err != nil {
			return err
		}
		other = by.fieldsDiffer(columns, schema.Fields)
		return nil
	})
	return other, err
}

func (m mapping) fieldsDiffer(columns []*Field, in []pqarrow.SchemaField) bool {
	have := arrowFieldsOf(in)
	return slices.ContainsFunc(columns, func(f *Field) bool {
		at := m.find(have, f)
		return at >= 0 && m.differs(f, &in[at])
	})
}

// differs reports whether a file's field is of another type than the table's. What the table has no counterpart of does not
// count.
func (m mapping) differs(f *Field, in *pqarrow.SchemaField) bool {
	stored := storageOf(in.Field.Type)
	switch t := f.Type.(type) {
	case *Struct:
		if stored.ID() != arrow.STRUCT {
			return true
		}
		fields := make([]*Field, len(t.Fields))
		for i := range t.Fields {
			fields[i] = &t.Fields[i]
		}
		return m.fieldsDiffer(fields, in.Children)
	case *Array:
		return stored.ID() != arrow.LIST ||
			m.differs(&Field{Name: "element", Type: t.Element, Metadata: f.Metadata}, &in.Children[0])
	case *Map:
		if stored.ID() != arrow.MAP {
			return true
		}
		pair := in.Children[0].Children
		return m.differs(&Field{Name: "key", Type: t.Key}, &pair[0]) ||
			m.differs(&Field{Name: "value", Type: t.Value}, &pair[1])
	}
	return !arrow.TypeEqual(stored, ArrowType(f.Type))
}
