package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// AddConstraint adds a CHECK constraint, an expression in Spark's SQL, to the table, once all rows that are there keep
// to it. Errors: *ConstraintError with a row that does not; *expr.Error for a column that is not there; *UnsupportedError
// for an expression that is not understood;
// as AlterOptions and Transaction.Commit. Spec: "CHECK Constraints".
func (t *Table) AddConstraint(ctx context.Context, name, expression string, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, fmt.Sprintf("add the constraint %q", name), opts, func(a *alteration) error {
		key := propConstraint + strings.ToLower(name)
		if name == "" {
			return fmt.Errorf("a constraint needs a name")
		}
		if old, set := a.meta.Configuration[key]; set {
			return fmt.Errorf("the table has a constraint of that name: %s", old)
		}
		a.operation = "ADD CONSTRAINT"
		a.params = map[string]string{"name": name, "expr": expression}
		a.meta.Configuration[key] = expression
		r, err := newRule(a.schema, fmt.Sprintf("CHECK constraint %q", name), expression, nil)
		var refused *UnsupportedError
		var fault *expr.Error
		if errors.As(err, &refused) && errors.As(refused.cause, &fault) && fault.Kind == expr.UnknownColumn {
			return fmt.Errorf("%s: %w", expression, fault) // a slip, and nothing that we do not support
		}
		if err != nil {
			return err
		}
		if missing := a.proto.missing([]string{"checkConstraints"}); len(missing) > 0 {
			if err := a.settleFeature(opts, "checkConstraints"); err != nil {
				return err
			}
		}
		return a.snap.holds(ctx, r)
	})
}

// settleFeature refuses a feature before work is done for nothing.
func (a *alteration) settleFeature(opts *AlterOptions, name string) error {
	if opts == nil || !opts.Upgrade {
		return needsUpgrade(a.proto.missing([]string{name}))
	}
	return nil
}

// holds checks all rows of the snapshot. Errors: *ConstraintError of a row that it has looked up in its file.
func (s *Snapshot) holds(ctx context.Context, r *rule) error {
	names := make([]string, len(r.fields))
	for i, f := range r.fields {
		names[i] = f.Name
	}
	if len(names) == 0 { // a constant
		names = []string{s.schema.Fields[0].Name}
	}
	var files []Add
	for add, err := range s.Files(ctx, nil) {
		if err != nil {
			return err
		}
		files = append(files, *add)
	}
	for rows, err := range s.ScanFiles(ctx, files, &ScanOptions{Columns: names}) {
		if err != nil {
			return err
		}
		arrays := make([]arrow.Array, len(s.schema.Fields))
		for i, at := range r.places {
			arrays[at] = rows.Batch.Column(i)
		}
		err = r.check(ctx, arrays, int(rows.Batch.NumRows()))
		rows.Batch.Release()
		var broken *ConstraintError
		if errors.As(err, &broken) {
			broken.File, broken.Row = files[rows.File].Path, int(rows.Rows[broken.Row])
			return s.showRow(ctx, files[rows.File], broken)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// showRow completes an error about a row of a file with the row.
func (s *Snapshot) showRow(ctx context.Context, file Add, broken *ConstraintError) error {
	for rows, err := range s.ScanFiles(ctx, []Add{file}, nil) {
		if err != nil {
			return err
		}
		at, found := slices.BinarySearch(rows.Rows, int64(broken.Row))
		if found {
			broken.Others = othersOf(s.schema, rows.Batch.Columns(), at, broken.tells)
		}
		rows.Batch.Release()
		if found {
			break
		}
	}
	return broken
}

// DropConstraint takes a CHECK constraint away. One that is not there is an error unless ifExists. Errors: as
// Transaction.Commit.
func (t *Table) DropConstraint(ctx context.Context, name string, ifExists bool, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, fmt.Sprintf("drop the constraint %q", name), opts, func(a *alteration) error {
		key := propConstraint + strings.ToLower(name)
		old, set := a.meta.Configuration[key]
		if !set && ifExists {
			return nil
		}
		if !set {
			return fmt.Errorf("the table has no such constraint")
		}
		a.operation = "DROP CONSTRAINT"
		a.params = map[string]string{"name": name, "expr": old}
		delete(a.meta.Configuration, key)
		return nil
	})
}

// ClusterBy sets the columns that OPTIMIZE clusters the table by: none takes clustering away. Columns are given by their
// paths, parts joined by dots. It needs the features clustering and domainMetadata. Errors: as AlterOptions and
// Transaction.Commit. Spec: "Clustered Table".
func (t *Table) ClusterBy(ctx context.Context, columns []string, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, "cluster the table", opts, func(a *alteration) error {
		domain, err := clusteringOf(a.schema, a.meta, columns)
		if err != nil {
			return err
		}
		was, err := a.snap.ClusteringColumns()
		if err != nil {
			return err
		}
		a.operation = "CLUSTER BY"
		a.params = map[string]string{"oldClusteringColumns": strings.Join(was, ","),
			"newClusteringColumns": strings.Join(columns, ",")}
		if missing := a.proto.missing([]string{"clustering"}); len(missing) > 0 {
			if err := a.settleFeature(opts, "clustering"); err != nil {
				return err
			}
			a.ask("clustering")
		}
		if a.snap.state.domains[clusteringDomain].Configuration != domain.Configuration {
			a.tx.SetDomainMetadata(domain)
		}
		return nil
	})
}

// clusteringOf is the domain of a table that is clustered by these columns.
func clusteringOf(schema *Schema, m *Metadata, columns []string) (DomainMetadata, error) {
	const most = 4
	d := DomainMetadata{Domain: clusteringDomain}
	if len(m.PartitionColumns) > 0 && len(columns) > 0 {
		return d, fmt.Errorf("a table with partitions cannot be clustered, too")
	}
	if len(columns) > most {
		return d, fmt.Errorf("found %d clustering columns, wanted at most %d", len(columns), most)
	}
	by := mappingOf(m.Configuration)
	lists := make([]string, len(columns))
	for i, column := range columns {
		var physical []string
		fields := schema.Fields
		parts := splitPath(column)
		for n, part := range parts {
			f, _ := lookupField(fields, part)
			if f == nil {
				return d, fmt.Errorf("clustering column %q: the table has no such column", column)
			}
			physical = append(physical, by.physicalName(f))
			s, nested := f.Type.(*Struct)
			if n == len(parts)-1 && !hasBounds(f.Type) {
				return d, fmt.Errorf("clustering column %q: files have no statistics of %s to cluster by", column, f.Type)
			}
			if fields = nil; nested {
				fields = s.Fields
			}
		}
		lists[i] = jsonList(physical)
	}
	d.Configuration = `{"clusteringColumns":[` + strings.Join(lists, ",") + `],"domainName":"` + clusteringDomain + `"}`
	return d, nil
}
