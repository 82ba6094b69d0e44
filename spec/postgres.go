package spec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
)

// Postgres is a PostgreSQL source: the log of one database.
type Postgres struct {
	URL         Secret
	Tables      []Text
	Slot        Text
	Publication string
	History     History
	DDL         DDL
	Numeric     string
	Beyond      string
	AsText      []Text
	Memory      int64
	SpillDir    Text
	LogDisk     int64

	at places
}

// TableNames are the tables to read, as the file names them; none: all of the publication.
func (s *Postgres) TableNames() []string { return texts(s.Tables) }

func (s *Postgres) shape() shape {
	return object{places: &s.at, keys: []key{
		{name: "url", doc: "The database: postgres://USER@HOST:PORT/DATABASE, or KEY=VALUE as libpq has them.",
			is: secret(&s.URL), need: true},
		{name: "tables", doc: "The tables to read: schema.table, schema.* or *.*, also of later ones that the publication " +
			"has. Default: all of the publication.", is: oneOrMore(&s.Tables, placed)},
		{name: "slot", doc: "The replication slot, which is made for new tables. Default: freshet_ and the app.",
			is: placed(&s.Slot)},
		{name: "publication", doc: "The publication; if there is none, it is made of the tables. Default: the slot's name.",
			is: text(&s.Publication)},
		{name: "history", doc: "How the rows are loaded that are in the tables already.", is: s.History.shape()},
		{name: "ddl", doc: "What follows changes of tables.", is: s.DDL.shape()},
		{name: "numeric", doc: "The type of numeric columns without a precision: text, double, or a decimal such as " +
			"decimal(38,18). Default: text.", is: text(&s.Numeric)},
		{name: "beyond", doc: "What becomes of a value that its column cannot hold, as infinity in a date. null: a null. " +
			"reject: the row goes to quarantine. Default: null.", is: word(&s.Beyond, "null", "reject")},
		{name: "as_text", doc: "Columns that keep the text that the server writes: schema.table.column.",
			is: loneOrList(&s.AsText, placed)},
		{name: "memory", doc: "What transactions may take of memory before the largest goes to disk. Default: 64MiB.",
			is: size(&s.Memory)},
		{name: "spill_dir", doc: "The folder for transactions that do not fit in memory. Default: the system's for temporary " +
			"files.", is: placed(&s.SpillDir)},
		{name: "log_disk", doc: "How much log the server's disk has room for: the server does not tell. Until it is full is told and warned " +
			"of, where max_slot_wal_keep_size does not come first. Default: not known.", is: size(&s.LogDisk)},
	}}
}

// History says how the rows are loaded that are in tables already; what is 0 has its default.
type History struct {
	Load          string
	URL           Secret
	Parallel      int64
	ChunkRows     int64
	RowsPerSecond int64
	MaxAge        time.Duration
	Added         string
}

func (h *History) shape() shape {
	return object{keys: []key{
		{name: "load", doc: "all: each table's rows, before what happens to them. none: only what happens from now on. " +
			"Default: all.", is: word(&h.Load, "all", "none")},
		{name: "url", doc: "A standby of the server, which the rows are read from. Default: the server itself.", is: secret(&h.URL)},
		{name: "parallel", doc: "How many connections read at most; it begins with one. Default: 4.", is: whole(&h.Parallel, 1)},
		{name: "chunk_rows", doc: "How many rows one transaction reads at most. Default: 200000.", is: whole(&h.ChunkRows, 1)},
		{name: "rows_per_second", doc: "How many rows are read in a second, over all connections. Default: no bound.",
			is: whole(&h.RowsPerSecond, 1)},
		{name: "max_age", doc: "How long one transaction may last: tables without a key are read in one. Default: 1h.",
			is: duration(&h.MaxAge)},
		{name: "added", doc: "What rows that were there get in a column that was added. read: what they have in it; the table is read " +
			"again for that. null: nothing. Default: read.", is: word(&h.Added, "read", "null")},
	}}
}

// slot is the name of the slot.
func (p *Pipeline) slot() string {
	if name := p.Source.Postgres.Slot.Value; name != "" {
		return name
	}
	name := "freshet_" + notInSlot.ReplaceAllString(strings.ToLower(p.App), "_")
	return name[:min(len(name), 63)]
}

var notInSlot = regexp.MustCompile(`[^a-z0-9_]`)

// options are those of the source.
func (p *Pipeline) postgresOptions() *postgres.Options {
	s := p.Source.Postgres
	o := &postgres.Options{Slot: p.slot(), Publication: s.Publication, Tables: texts(s.Tables),
		History: postgres.History{Skip: s.History.Load == "none", Address: s.History.URL.Reveal(), Parallel: int(s.History.Parallel),
			ChunkRows: s.History.ChunkRows, RowsPerSecond: s.History.RowsPerSecond, MaxAge: s.History.MaxAge,
			NoFill: s.History.Added == "null" || !p.takesRowsAgain()},
		DDL: s.DDL.policies(), TableDDL: map[string]postgres.DDL{}, MemoryBytes: s.Memory,
		SpillDir: p.Project.path(s.SpillDir.Value), LogDisk: s.LogDisk,
		Types: postgres.Types{Numeric: s.Numeric, Beyond: s.Beyond, Columns: map[string]string{}, Hidden: p.hidden()}, Table: p.tableOf}
	for _, c := range s.AsText {
		o.Types.Columns[c.Value] = postgres.AsText
	}
	for _, t := range s.DDL.Tables {
		o.TableDDL[t.Name] = t.Value.policies()
	}
	o.Keyed = p.Target.Delta != nil && p.Target.Delta.keyed() && len(p.Target.Delta.Key) == 0
	o.Alike = o.Keyed && p.takesRowsAlike()
	if t := p.Target.Delta; t != nil && !p.empties() {
		o.DDL.Truncate = cmp.Or(o.DDL.Truncate, postgres.Keep)
	}
	return o
}

// empties reports whether a TRUNCATE can be applied: where rows are added, which tell of it, or where it takes all out.
func (p *Pipeline) empties() bool {
	t := p.Target.Delta
	return t.Mode == "append" && t.Dedupe == nil || t.Mode == "mirror" && (t.Deletes == "" || t.Deletes == "hard")
}

// takesRowsAlike reports whether tables without a key can be mirrored: where nothing but a whole row is asked for to take one away. A filter
// makes a delete of a row that it drops, and what it drops could be like another row in what a later step leaves of it.
func (p *Pipeline) takesRowsAlike() bool {
	t := p.Target.Delta
	filters := slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Filter != nil })
	return t.Mode == "mirror" && (t.Deletes == "" || t.Deletes == "hard") && len(t.SequenceBy) == 0 && !filters
}

// takesRowsAgain reports whether a row may come again, as it is: where rows are ordered by their values it would count as late.
func (p *Pipeline) takesRowsAgain() bool {
	t := p.Target.Delta
	return t == nil || len(t.SequenceBy) == 0 && t.Dedupe == nil
}

// DDL says what follows changes of tables in the source: apply, keep or fail.
type DDL struct {
	Add, Widen, Drop, Rename, Narrow, Truncate string

	Tables []Named[DDL] // where it is another for a table
}

func (d *DDL) shape() shape {
	keys := d.policyKeys()
	return object{keys: append(keys, key{name: "tables", doc: "The same for single tables: public.orders: {drop: fail}.",
		is: mapOf(&d.Tables, func(t *DDL) shape { return object{keys: t.policyKeys()} })})}
}

func (d *DDL) policyKeys() []key {
	return []key{
		{name: "add", doc: "A new column. apply: the table gets it. keep: it is left out. fail: the pipeline stops. Default: apply.",
			is: word(&d.Add, "apply", "keep", "fail")},
		{name: "widen", doc: "A type became a wider one. apply: the column is widened. keep: values that it cannot hold go to " +
			"quarantine. Default: apply.", is: word(&d.Widen, "apply", "keep", "fail")},
		{name: "drop", doc: "A column is gone. keep: it stays. Default: keep.", is: word(&d.Drop, "keep", "fail")},
		{name: "rename", doc: "A column, or the table, has another name. keep: what has the new name is new. Default: keep.",
			is: word(&d.Rename, "keep", "fail")},
		{name: "narrow", doc: "A type became one that the column does not hold all of. keep: values that it cannot hold go to " +
			"quarantine. Default: keep.", is: word(&d.Narrow, "keep", "fail")},
		{name: "truncate", doc: "TRUNCATE, or the table was dropped and made anew. apply: all rows go, or a row tells of it in mode " +
			"append. keep: it goes to quarantine, and the rows stay. Default: apply; keep where deleted rows are kept.",
			is: word(&d.Truncate, "apply", "keep", "fail")},
	}
}

// policies are those of the source.
func (d *DDL) policies() postgres.DDL {
	return postgres.DDL{Add: postgres.Policy(d.Add), Widen: postgres.Policy(d.Widen), Drop: postgres.Policy(d.Drop),
		Rename: postgres.Policy(d.Rename), Narrow: postgres.Policy(d.Narrow), Truncate: postgres.Policy(d.Truncate)}
}

// notInTable are characters of names that the names of tables in the lake do not have.
var notInTable = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// tableOf is the target's table for a table of the source.
func (p *Pipeline) tableOf(schema, name string) string {
	clean := func(s string) string { return notInTable.ReplaceAllString(s, "_") }
	table := strings.NewReplacer("{schema}", clean(schema), "{table}", clean(name)).Replace(p.TargetTable())
	p.origins.note(table, schema+"."+name)
	return table
}

// mayRead reports whether a table that the pipeline reads may have this in the name of its Delta table in the place of {schema} and
// {table}.
func (p *Pipeline) mayRead(filled string) bool {
	patterns := texts(p.Source.Postgres.Tables)
	if len(patterns) == 0 {
		patterns = []string{"*.*"}
	}
	expression := func(part string) string {
		if part == "*" {
			return "[A-Za-z0-9_-]+"
		}
		return notInTable.ReplaceAllString(part, "_")
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		schema, table, _ := strings.Cut(pattern, ".")
		holes := strings.NewReplacer(`\{schema\}`, expression(schema), `\{table\}`, expression(table))
		is, err := regexp.MatchString("^"+holes.Replace(regexp.QuoteMeta(p.hole()))+"$", filled)
		return err == nil && is
	})
}

// namedTables are what stands for {schema} and {table} in the names of those tables that the file names.
func (p *Pipeline) namedTables() (all []string) {
	for _, pattern := range texts(p.Source.Postgres.Tables) {
		if schema, table, both := strings.Cut(pattern, "."); both && !strings.Contains(pattern, "*") {
			all = append(all, p.topicOf(p.tableOf(schema, table)))
		}
	}
	return all
}

// checkPostgres finds what is wrong with a PostgreSQL source.
func (p *Pipeline) checkPostgres(r *reader) {
	s := p.Source.Postgres
	for name, at := range p.Source.Schema.at {
		r.add(at, freshet.CodeBadValue, "leave it out; postgres.numeric and postgres.as_text choose types",
			"schema.%s: the columns are those of the database", name)
	}
	at := s.at["url"]
	for _, name := range []string{"slot", "tables", "numeric", "as_text", "memory"} {
		if given, ok := s.at[name]; ok {
			at = given
		}
	}
	addAll(r, at, p.postgresOptions().Validate())
	applies := s.DDL.Truncate == "apply" ||
		slices.ContainsFunc(s.DDL.Tables, func(t Named[DDL]) bool { return t.Value.Truncate == "apply" })
	if p.Target.Delta != nil && applies && !p.empties() {
		r.add(s.at["ddl"], freshet.CodeBadValue, "write truncate: keep, or mode: mirror with deletes: hard",
			"ddl.truncate: only a mirror with hard deletes is emptied, or mode append told of it")
	}
	if t := p.Target.Delta; t != nil && !takesChanges(t.Mode) && !t.tellsKind() {
		r.add(at, freshet.CodeBadValue, "write mode: mirror, or change_columns: [_change_type]",
			"the source tells of changes, and mode append would land deletes as if they were new rows")
	}
}

// CheckSource asks the server that the pipeline reads what stands in its way, and which values are lost on it; the gravest first. Of
// sources other than PostgreSQL nothing is asked. Errors: those of postgres.Check.
func (p *Pipeline) CheckSource(ctx context.Context) ([]postgres.Finding, error) {
	if p.Source.Postgres == nil {
		return nil, nil
	}
	s, err := postgres.Look(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions())
	if err != nil {
		return nil, err
	}
	found := append(s.Findings, p.checkOverridesOn(s.Tables)...)
	rank := []postgres.Severity{postgres.Blocks, postgres.Warns, postgres.Notes}
	slices.SortStableFunc(found, func(a, b postgres.Finding) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	return found, nil
}

// Slot asks the server what it keeps for the pipeline; nil where it reads no PostgreSQL. Errors: those of postgres.ReadSlot.
func (p *Pipeline) Slot(ctx context.Context, over time.Duration) (*postgres.SlotState, error) {
	if p.Source.Postgres == nil {
		return nil, nil
	}
	return postgres.ReadSlot(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions(), over)
}

// Remains are what the pipeline has on its PostgreSQL server: they stay there when it is given up, until they are dropped. Errors: those
// of postgres.FindRemains; CodeUnavailable for another source; CodeUsage while a table is being loaded again.
func (p *Pipeline) Remains(ctx context.Context) (*postgres.Remains, error) {
	if p.Source.Postgres == nil {
		return nil, &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: p.File,
			Msg: "the pipeline keeps nothing at its origin that would be in the way: only PostgreSQL has slots",
			Fix: "delete the file; the consumer group is forgotten by the broker"}
	}
	if err := p.notLoading(ctx); err != nil {
		return nil, err
	}
	return postgres.FindRemains(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions(), func(table string, log freshet.Lane) (bool, error) {
		return p.holds(ctx, table, log)
	})
}

// holds reports whether a table has progress of the lane under the pipeline's app.
func (p *Pipeline) holds(ctx context.Context, table string, lane freshet.Lane) (bool, error) {
	st, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return false, err
	}
	apps, err := lake.ReadProgress(ctx, st)
	if errors.Is(err, delta.ErrNoTable) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", table, err)
	}
	for _, a := range apps {
		for _, l := range a.Lanes {
			if a.App == p.App && l.Lane.OriginID == lane.OriginID {
				return true, nil
			}
		}
	}
	return false, nil
}

func (b *Builder) postgresSource(p *Pipeline, obs freshet.Observer) (*postgres.Source, error) {
	o := p.postgresOptions()
	o.Bounded, o.Observer, o.Log = b.opts.Bounded || p.Trigger == "once", obs, b.opts.Logger
	src, err := postgres.NewSource(p.Source.Postgres.URL.Reveal(), o)
	if err != nil {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: p.File, Msg: err.Error()}
	}
	return src, nil
}

// kafka is what the pipeline says of Kafka; all is empty where it reads something else.
func (p *Pipeline) kafka() *Kafka {
	if p.Source.Kafka == nil {
		return &Kafka{}
	}
	return p.Source.Kafka
}

// hole is what stands in the names of tables for what differs among them: {topic}; where the source has tables, {schema} and
// {table} with what is between them in the name of the target's.
func (p *Pipeline) hole() string {
	if p.Source.Postgres != nil && p.Target.Delta != nil {
		name := p.TargetTable()
		if from, to := strings.IndexByte(name, '{'), strings.LastIndexByte(name, '}'); from >= 0 && to > from {
			return name[from : to+1]
		}
	}
	return "{topic}"
}

// fits reports whether a placeholder may stand in the name of the target's table.
func (p *Pipeline) fits(hole string) bool { return strings.Contains(p.holes(), hole) }

// holes are the placeholders that may stand there.
func (p *Pipeline) holes() string {
	if p.Source.Postgres != nil {
		return "{schema} or {table}"
	}
	return "{topic}"
}

// fill puts a value in the place of what differs among tables.
func (p *Pipeline) fill(name, value string) string { return strings.ReplaceAll(name, p.hole(), value) }
