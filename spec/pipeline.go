package spec

import (
	"slices"
	"time"

	"github.com/freshet-io/freshet/lake"
)

// Pipeline is what one pipeline file says.
type Pipeline struct {
	File       string // its name; "" when it was not read from a file
	Name       Text
	Namespace  string
	App        string
	Trigger    string
	Source     Source
	Steps      []Step
	Target     Target
	Quarantine Quarantine
	// CutRetention is for how long the versions stay that a cut names; 0: the default.
	CutRetention time.Duration
	Days         Days
	Verification Verification
	Project      *Project // never nil

	origins *origins // never nil

	at places
}

// Source is where changes come from.
type Source struct {
	Kafka    *Kafka
	Postgres *Postgres
	Schema   Schema
}

// Schema says what columns records have.
type Schema struct {
	Columns    []Named[Column]
	Infer      int64 // how many first records are looked at for columns that are not given; 0: none
	NewFields  string
	Numbers    string // what a number in a timestamp column counts
	MaxColumns int64

	at places
}

// Step is one step; exactly one of its fields is set.
type Step struct {
	Derive []Named[Text]
	Filter *Text
	Select []Text
	at     place
}

// Target is where changes end.
type Target struct {
	Delta     *Delta
	Overrides []Override
}

// Delta is a Delta table, or several.
type Delta struct {
	Table Text
	Path  Text
	Mode  string
	// ModeBefore is how changes were applied to the table before, as its property freshet.mode says.
	ModeBefore Text
	Key        []Text
	Keys       []Named[[]Text] // by topic, of tables that have another key than Key
	SequenceBy []Text
	Deletes    string
	// DeletesBefore is the policy for deletes that the table has had.
	DeletesBefore string
	Dedupe        *Dedupe
	Deleted       Text
	Tombstones    Tombstones
	IndexDir      Text
	// Compatibility is "broad" for tables that readers without deletion vectors can read.
	Compatibility string
	PartitionBy   []Text
	Properties    []Named[string]
	Commit        Commit
	FileSize      int64
	Cuts          Text // of the cuts table; "true", "false": whether there is one; "": where there are several tables
	Upkeep        Upkeep
	MaxLag        MaxLag
	Patience      time.Duration // 0: the default
	ParkIn        Text          // the folder of parking tables; "": beside the tables
	// OnTableError is what becomes of a table that fails: "stop", "park" or "".
	OnTableError string
	// Periods name the columns of a history; Track, Ignore and Repeats say what it is of.
	Periods       lake.PeriodOptions
	Track, Ignore []Text
	Repeats       int64
	// ChangeColumns are the change columns; "all" stands for all of them.
	ChangeColumns []string
	// ChangeLog is the table that gets every change; "feed": the table's own change data feed.
	ChangeLog Text

	at places
}

// Commit is when a commit is made: when any of these is reached.
type Commit struct {
	Every   time.Duration
	MaxRows int64
	MaxSize int64
}

// Quarantine is where records go that cannot be taken, and how many may.
type Quarantine struct {
	Table     Text
	StopAbove *Share
}

const (
	laterPart   = "leave it out: this version moves Kafka topics and PostgreSQL tables into Delta tables"
	laterChecks = "leave it out; a filter step drops rows, and wrong types are quarantined by themselves"
)

func (p *Pipeline) shape() object {
	return object{doc: "A Freshet pipeline: source → steps → target.", places: &p.at, keys: append(p.cutKeys(), []key{
		{name: "pipeline", doc: "The pipeline's name.", is: placed(&p.Name), need: true},
		{name: "namespace", doc: "The namespace of its tables. Default: that of the target table.",
			is: text(&p.Namespace)},
		{name: "app", doc: "The name under which progress is kept in the table. It must stay the same for as " +
			"long as the " +
			"table is to go on where it is. Default: namespace.pipeline.", is: text(&p.App)},
		{name: "trigger", doc: "continuous: until it is stopped. once: until everything is read that is there at " +
			"the start.",
			is: choice{scalar: laterWord(&p.Trigger, []string{"cron"}, "continuous", "once"),
				mapping: object{keys: []key{{name: "every", later: laterTrigger}, {name: "cron", later: laterTrigger},
					{name: "on_update", later: laterTrigger}, {name: "timezone", later: laterTrigger}}},
				wanted: "continuous or once"}},
		{name: "source", doc: "Where records come from.", is: p.Source.shape(), need: true},
		{name: "steps", doc: "What is done to each row, in this order.", is: listOf(&p.Steps, (*Step).shape)},
		{name: "target", doc: "Where rows go.", is: p.Target.shape(), need: true},
		{name: "quarantine", doc: "Where records go that cannot be taken.", is: p.Quarantine.shape()},
		{name: "verify", doc: "How tables are compared with their source, row by row, while the pipeline runs. Default: they are not.",
			is: p.Verification.shape()},
		{name: "sql", later: "use steps: derive, filter and select take SQL expressions"},
		{name: "expect", later: laterChecks},
		{name: "freshness", later: "leave it out; /metrics has freshet_table_freshness_seconds"},
		{name: "targets", later: "write one file a target, each with `target:`"},
		{name: "tests", later: "leave it out"},
		{name: "alerts", later: "leave it out; alert on /metrics"},
	}...)}
}

const laterTrigger = "use `trigger: once` and start it from cron, or `trigger: continuous` with commit.every"

func (s *Source) shape() shape {
	return object{
		oneOf: []string{"kafka", "postgres", "mysql", "delta", "files", "http"},
		keys: []key{
			{name: "kafka", doc: "Kafka topics.", is: maybe(&s.Kafka, (*Kafka).shape)},
			{name: "schema", doc: "What columns records have. Default: they are inferred.", is: s.Schema.shape()},
			{name: "postgres", doc: "A PostgreSQL database.", is: maybe(&s.Postgres, (*Postgres).shape)},
			{name: "mysql", later: laterPart},
			{name: "delta", later: laterPart},
			{name: "files", later: laterPart},
			{name: "http", later: laterPart},
			{name: "lookups", later: "leave it out"},
		}}
}

func (s *Schema) shape() shape {
	return object{atMost: []string{"columns", "infer"}, places: &s.at, keys: []key{
		{name: "columns", doc: "The columns and their types, as SQL writes them.",
			is: mapOf(&s.Columns, columnType)},
		{name: "infer", doc: "How many first records are looked at for the columns. Default: 10000.",
			is: inferShape(&s.Infer)},
		{name: "new_fields", doc: "What becomes of a field that has no column: add it to the table, rescue it as " +
			"JSON into the " +
			"column _rescued, ignore it, or fail: quarantine the record. Default: add.",
			is: word(&s.NewFields, "add", "rescue", "ignore", "fail")},
		{name: "max_columns", doc: "Up to how many columns are inferred and added; fields of structs count, and not the " +
			"structs. A field beyond is one without a column; with new_fields: add its record is quarantined. " +
			"Default: 1000.", is: whole(&s.MaxColumns, 1)},
		{name: "numbers_as_timestamps", doc: "What a number counts that stands where a timestamp is wanted: s, " +
			"ms or us since 1970. " +
			"Default: such records are quarantined, since their unit cannot be known.",
			is: word(&s.Numbers, "s", "ms", "us")},
	}}
}

func (s *Step) shape() shape {
	return stepShape{s}
}

func (s *Step) object() object {
	return object{
		oneOf: []string{"derive", "filter", "select", "sql", "dedupe", "mask"},
		keys: []key{
			{name: "derive", doc: "Columns to add or replace: name to SQL expression, later ones see earlier ones.",
				is: mapOf(&s.Derive, expression)},
			{name: "filter", doc: "A SQL condition; rows stay for which it is true.",
				is: maybe(&s.Filter, expression)},
			{name: "select", doc: "The columns that stay, in this order: names, or expressions with AS.",
				is: listOf(&s.Select, expression)},
			{name: "sql", later: "use derive, filter and select"},
			{name: "dedupe", later: "use target.delta.dedupe"},
			{name: "mask", later: "write it under target: overrides: [{match: \"*\", columns: {email: {mask: sha256, salt: …}}}]"},
		}}
}

// stepShape remembers where the step is.
type stepShape struct{ into *Step }

func (s stepShape) read(r *reader, n *node) {
	s.into.at = n.where
	s.into.object().read(r, n)
}

func (s stepShape) schema() map[string]any { return s.into.object().schema() }

func (t *Target) shape() shape {
	return object{
		oneOf: []string{"delta", "kafka", "postgres", "mysql", "webhook", "http", "files"},
		keys: []key{
			{name: "delta", doc: "A Delta table.", is: maybe(&t.Delta, (*Delta).shape)},
			{name: "kafka", later: laterPart},
			{name: "postgres", later: laterPart},
			{name: "mysql", later: laterPart},
			{name: "webhook", later: laterPart},
			{name: "http", later: laterPart},
			{name: "files", later: laterPart},
			{name: "overrides", doc: "What is other for some of the tables; the last that matches has the last word.",
				is: listOf(&t.Overrides, (*Override).shape)},
		}}
}

func (t *Delta) shape() shape {
	return object{
		oneOf: []string{"table", "path"}, places: &t.at,
		keys: slices.Concat([]key{
			{name: "table", doc: "namespace.table, below the lake's root; {topic} in it makes one table a " +
				"topic, {schema} and {table} one for each table of a database.",
				is: placed(&t.Table)},
			{name: "path", doc: "The table's folder or URI: ./orders, /data/orders, s3://bucket/orders.",
				is: placed(&t.Path)},
			{name: "mode", doc: "append: every record becomes a row. upsert: one row a key, the one whose sequence is " +
				"greatest. mirror: one row a key, as the source has it after its last change. scd2: the " +
				"history of each key, a row for each time in which it was so. Default: append.",
				is: laterWord(&t.Mode, []string{"overwrite", "merge"}, "append", "upsert", "mirror", "scd2")},
			{name: "mode_before", doc: "How changes were applied to a table that is there, as its property freshet.mode says, to " +
				"confirm that mode, key or sequence_by are to be others.", is: placed(&t.ModeBefore)},
			{name: "sequence_by", doc: "The columns that order the changes of a key in mode upsert, where one that comes " +
				"late changes nothing; in mode scd2, one column that says since when the row is so. Default: the order of the " +
				"source.", is: loneOrList(&t.SequenceBy, placed)},
			{name: "index_dir", doc: "The folder of the key index, which may be lost at any time. Default: freshet/index in " +
				"the user's cache folder.", is: placed(&t.IndexDir)},
			{name: "compatibility", doc: "broad: files that lose rows are rewritten, for engines that read no deletion " +
				"vectors. Default: deletion vectors in modes upsert and mirror.", is: word(&t.Compatibility, "broad")},
			{name: "partition_by", doc: "The partition columns of a table that is made.",
				is: loneOrList(&t.PartitionBy, placed)},
			{name: "properties", doc: "The table properties of a table that is made.", is: mapOf(&t.Properties, text)},
			{name: "commit", doc: "When a commit is made: when any of these is reached.", is: t.Commit.shape()},
			{name: "target_file_size", doc: "The size at which a data file is full. Default: 128MiB.",
				is: size(&t.FileSize)},
			{name: "cuts", doc: "The table of cuts: which versions of the pipeline's tables show the source at one moment. A " +
				"table, true or false. Default: namespace.pipeline_cuts, where there are several tables.", is: placed(&t.Cuts)},
			{name: "schema_changes", later: "use source.schema.new_fields"},
			{name: "upkeep", doc: "How the table is looked after beside the stream: small files are packed, deleted rows " +
				"dropped, old files deleted. off: it is not. Default: on.", is: t.Upkeep.shape()},
		}, t.keyKeys(), t.logKeys(), t.parkKeys(), t.deleteKeys(), t.dedupeKeys(), []key{t.historyKey()})}
}

func (c *Commit) shape() shape {
	return object{keys: []key{
		{name: "every", doc: "The longest that a record waits for its commit. Default: 10s.",
			is: duration(&c.Every)},
		{name: "max_rows", doc: "The number of rows from which a commit is made at once. Default: no limit.",
			is: whole(&c.MaxRows, 1)},
		{name: "max_size", doc: "The size from which a commit is made at once: as stored, or, of changes by key, in memory, with those " +
			"that wait for their commits. Default: 256MiB; by key 96MiB, from PostgreSQL 24MiB.",
			is: size(&c.MaxSize)},
	}}
}

func (q *Quarantine) shape() shape {
	return object{keys: []key{
		{name: "table", doc: "The quarantine table: namespace.table, a folder or a URI; {ns}, {pipeline} and " +
			"{topic} may stand in it. " +
			"Default: {ns}._quarantine_{pipeline}; for a table given by path: that path with _quarantine behind it.",
			is: placed(&q.Table)},
		{name: "stop_above", doc: "The share of records in quarantine that stops the pipeline. Default: nothing " +
			"does.",
			is: maybe(&q.StopAbove, share)},
	}}
}
