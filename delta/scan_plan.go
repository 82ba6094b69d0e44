package delta

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// scanPlan is a scan that has been checked against the table.
type scanPlan struct {
	snap      *Snapshot
	opts      ScanOptions
	positions bool // of the rows are wanted
	mapping   mapping
	read      []scanColumn  // what files give: the columns asked for, those of the condition, those about rows
	schema    *arrow.Schema // of read
	out       []int         // the places in read of what is returned
	result    *arrow.Schema
	where     *expr.Bound // bound to schema; nil: none
	parts     map[string]bool

	// What says which files may match; see mayMatch.
	byStats   bool // the condition names a column that is no partition column
	sieve     *statsSieve
	resolved  map[string]columnStats
	partition map[string]bool // by partitionKey
}

// scanColumn is a column of the batches that files are read into.
type scanColumn struct {
	Field
	role columnRole
	// stored is the name of the column of files, of those that are no columns of the table; "": none.
	stored string
}

// columnRole is what a scanColumn holds.
type columnRole uint8

const (
	roleData columnRole = iota
	roleChangeType
	roleRowID
	roleRowCommitVersion
)

func newScanPlan(s *Snapshot, opts *ScanOptions) (*scanPlan, error) {
	if s.Metadata().SchemaString == "" {
		return nil, corrupt("the metadata in force at version %d names no columns", s.Version())
	}
	p := &scanPlan{snap: s, mapping: mappingOf(s.Metadata().Configuration), parts: make(map[string]bool)}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Concurrency <= 0 {
		p.opts.Concurrency = runtime.GOMAXPROCS(0)
	}
	if p.opts.BatchRows <= 0 {
		p.opts.BatchRows = 32 << 10
	}
	for _, name := range s.PartitionColumns() {
		p.parts[strings.ToLower(name)] = true
	}
	if err := p.choose(); err != nil {
		return nil, err
	}
	if err := p.bind(); err != nil {
		return nil, err
	}
	p.resolved, p.partition = make(map[string]columnStats), make(map[string]bool)
	p.byStats, p.sieve = p.where != nil && p.needsStats(), p.newSieve()
	return p, nil
}

// choose fills read and out with the columns that were asked for.
func (p *scanPlan) choose() error {
	schema := p.snap.Schema()
	if p.opts.Columns == nil {
		for _, f := range schema.Fields {
			p.read = append(p.read, scanColumn{Field: f})
		}
	}
	for _, name := range p.opts.Columns {
		f, _ := schema.Lookup(name)
		if f == nil {
			return fmt.Errorf("column %q: the table has no such column; its columns are %s", name, columnList(schema))
		}
		p.read = append(p.read, scanColumn{Field: *f})
	}
	p.aboutRows()
	fields := make([]arrow.Field, len(p.read))
	names := make(map[string]bool, len(p.read))
	for i := range p.read {
		c := &p.read[i]
		if c.role != roleData && names[c.Name] {
			return fmt.Errorf("column %q: the table has a column of that name, so it cannot be added to what is read", c.Name)
		}
		names[c.Name] = true
		fields[i] = c.arrow()
		p.out = append(p.out, i)
	}
	p.result = arrow.NewSchema(fields, nil)
	return nil
}

// aboutRows adds the columns that are none of the table.
func (p *scanPlan) aboutRows() {
	add := func(role columnRole, name, stored string, t Type) {
		p.read = append(p.read, scanColumn{Field: Field{Name: name, Type: t, Nullable: true}, role: role, stored: stored})
	}
	if p.opts.ChangeType {
		add(roleChangeType, ChangeTypeColumn, ChangeTypeColumn, String)
	}
	if p.opts.RowIDs {
		add(roleRowID, RowIDColumn, p.snap.Property(materializedRowID), Long)
		add(roleRowCommitVersion, RowCommitVersionColumn, p.snap.Property(materializedRowCommitVersion), Long)
	}
}

func (c *scanColumn) arrow() arrow.Field { return arrowFields([]Field{c.Field})[0] }

func columnList(s *Schema) string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// bind checks the condition and adds its columns to those that are read.
func (p *scanPlan) bind() error {
	p.schema = p.result
	if p.opts.Where == nil {
		return nil
	}
	whole, err := p.opts.Where.BindCondition(p.snap.Schema().Arrow())
	if err != nil {
		return err
	}
	fields := p.result.Fields()
	for _, name := range whole.Columns() {
		if p.reads(name) {
			continue
		}
		f, _ := p.snap.Schema().Lookup(name)
		c := scanColumn{Field: *f}
		p.read, fields = append(p.read, c), append(fields, c.arrow())
	}
	p.schema = arrow.NewSchema(fields, nil)
	p.where, err = p.opts.Where.BindCondition(p.schema)
	return err
}

// reads reports whether the column of the table is read.
func (p *scanPlan) reads(name string) bool {
	for i := range p.read {
		if p.read[i].role == roleData && strings.EqualFold(p.read[i].Name, name) {
			return true
		}
	}
	return false
}

// wantedFile is a file to read.
type wantedFile struct {
	*Add
	index int // of the files that were given
}

// live yields the files of the snapshot that may have rows of interest.
func (p *scanPlan) live(ctx context.Context) iter.Seq2[wantedFile, error] {
	return func(yield func(wantedFile, error) bool) {
		want := kindAdd
		if p.byStats {
			want |= kindStats
		}
		for add, err := range p.snap.sieved(ctx, want, p.sieve) {
			if err == nil && !p.mayMatch(add) {
				continue
			}
			if !yield(wantedFile{Add: add}, err) {
				return
			}
		}
	}
}

// given yields those of the files that may have rows of interest.
func (p *scanPlan) given(files []Add) iter.Seq2[wantedFile, error] {
	return func(yield func(wantedFile, error) bool) {
		for i := range files {
			if p.mayMatch(&files[i]) && !yield(wantedFile{&files[i], i}, nil) {
				return
			}
		}
	}
}
