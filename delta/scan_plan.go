package delta

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
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
	out       []int         // the places in read of what is returned
	result    *arrow.Schema // of out
	where     *expr.Bound   // bound to seen; nil: none
	sees      []int         // the places in read of the columns of the condition
	seen      *arrow.Schema // of sees
	parts     map[string]bool

	// What says which files may match; see mayMatch.
	byStats   bool // the condition names a column that is no partition column
	sieve     *statsSieve
	resolved  map[string]columnStats
	partition map[string]bool // by partitionKey

	spares spares // of the bytes of files, which no batch keeps
}

// scanColumn is a column of the batches that files are read into.
type scanColumn struct {
	Field
	role columnRole
	// stored is the name of the column of files, of those that are no columns of the table; "": none.
	stored string
	part   bool // of a column of the table, of which there is more
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
	chosen, err := schema.projected(p.opts.Columns)
	if err != nil {
		return err
	}
	for _, f := range chosen {
		whole, _ := schema.Lookup(f.Name)
		p.read = append(p.read, scanColumn{Field: f, part: f.Type != whole.Type})
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
	if p.opts.Where == nil {
		return nil
	}
	whole, err := p.opts.Where.BindCondition(p.snap.Schema().Arrow())
	if err != nil {
		return err
	}
	var fields []arrow.Field
	for _, name := range whole.Columns() {
		at := slices.IndexFunc(p.read, func(c scanColumn) bool {
			return c.role == roleData && !c.part && strings.EqualFold(c.Name, name)
		})
		if at < 0 {
			f, _ := p.snap.Schema().Lookup(name)
			at, p.read = len(p.read), append(p.read, scanColumn{Field: *f})
		}
		p.sees, fields = append(p.sees, at), append(fields, p.read[at].arrow())
	}
	p.seen = arrow.NewSchema(fields, nil)
	p.where, err = p.opts.Where.BindCondition(p.seen)
	return err
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
