package spec

import (
	"regexp"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres"
)

// Postgres is a PostgreSQL source: the log of one database.
type Postgres struct {
	URL         Secret
	Tables      []Text
	Slot        Text
	Publication string
	Truncates   string
	Numeric     string
	Beyond      string
	AsText      []Text
	Memory      int64
	SpillDir    Text

	at places
}

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
		{name: "truncates", doc: "What becomes of a TRUNCATE. reject: it goes to quarantine, and the rows stay. ignore: the " +
			"rows stay. fail: the pipeline stops. Default: reject.", is: word(&s.Truncates, "reject", "ignore", "fail")},
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
		Truncates: postgres.Truncates(s.Truncates), MemoryBytes: s.Memory, SpillDir: p.Project.path(s.SpillDir.Value),
		Types: postgres.Types{Numeric: s.Numeric, Beyond: s.Beyond, Columns: map[string]string{}}, Table: p.tableOf}
	for _, c := range s.AsText {
		o.Types.Columns[c.Value] = postgres.AsText
	}
	return o
}

// notInTable are characters of names that the names of tables in the lake do not have.
var notInTable = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// tableOf is the target's table for a table of the source.
func (p *Pipeline) tableOf(schema, name string) string {
	clean := func(s string) string { return notInTable.ReplaceAllString(s, "_") }
	return strings.NewReplacer("{schema}", clean(schema), "{table}", clean(name)).Replace(p.TargetTable())
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
	if t := p.Target.Delta; t != nil && !takesChanges(t.Mode) && !t.tellsKind() {
		r.add(at, freshet.CodeBadValue, "write mode: mirror, or change_columns: [_change_type]",
			"the source tells of changes, and mode append would land deletes as if they were new rows")
	}
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

// onlyKafka refuses what is there for topics alone.
func (p *Pipeline) onlyKafka(what string) error {
	if p.Source.Kafka != nil {
		return nil
	}
	return &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: p.File,
		Msg: what + ": this version does it for Kafka topics alone, and the pipeline reads PostgreSQL"}
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
