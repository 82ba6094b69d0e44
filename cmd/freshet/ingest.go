package main

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/spec"
)

// ingestFlag is a flag that stands for a key of the pipeline file.
type ingestFlag struct {
	name string
	path string // of the key
	kind string // "": a text; "bool"; "list": texts with commas between; "items": may be repeated
	doc  string
}

var ingestFlags = []ingestFlag{
	{"format", "source.kafka.format", "", "json: a JSON object a record; raw: the bytes as they came; debezium: " +
		"changes as Debezium writes them (default json)"},
	{"changes-op", "source.kafka.changes.op", "", "the field of JSON records that says what happened to a row"},
	{"changes-key", "source.kafka.changes.key", "list", "the columns of JSON records that are the key of a row"},
	{"debezium-before", "source.kafka.debezium.before", "", "full: rows before a change are whole; key: but for " +
		"the key they are not (default key)"},
	{"debezium-flattened", "source.kafka.debezium.flattened", "bool", "the records are rows, made by the transform " +
		"ExtractNewRecordState"},
	{"source-columns", "source.kafka.debezium.source_columns", "list", "columns that tell of a change's source: " +
		"lsn, ts, tx, …"},
	{"start", "source.kafka.start", "", "where a new table begins: earliest, latest or a time such as " +
		"2026-01-31T12:00:00Z (default earliest)"},
	{"new-fields", "source.schema.new_fields", "", "a field without a column: add, rescue, ignore or fail " +
		"(default add)"},
	{"max-columns", "source.schema.max_columns", "", "up to how many columns are inferred and added (default 1000)"},
	{"infer", "source.schema.infer", "", "how many first records tell the columns (default 10000 without " +
		"--schema)"},
	{"numbers-as-timestamps", "source.schema.numbers_as_timestamps", "",
		"what a number in a timestamp column counts: s, ms or us"},
	{"metadata", "source.kafka.metadata", "list", "columns _topic, _partition, _offset, _timestamp, " +
		"_timestamp_type, _key, _headers: their names without _"},
	{"key-as", "source.kafka.key_as", "", "type of the column _key: binary or string (default binary)"},
	{"mode", "target.delta.mode", "", "append: every record is a row; upsert and mirror: one row a key; scd2: its history " +
		"(default append)"},
	{"mode-before", "target.delta.mode_before", "", "how changes were applied to the table before, as its property " +
		"freshet.mode says, to confirm that it is to be changed"},
	{"key", "target.delta.key", "list", "the columns of the key, for upsert, mirror and scd2"},
	{"sequence-by", "target.delta.sequence_by", "list", "columns that order the changes of a key, for upsert and scd2"},
	{"change-columns", "target.delta.change_columns", "list", "columns that tell of the change that made each row: all, or " +
		"names (default none)"},
	{"changelog", "target.delta.changelog", "", "a table that gets every change; feed: the table's own change data feed " +
		"(default none)"},
	{"deletes", "target.delta.deletes", "", "what becomes of a row whose key is gone: hard, soft, log or ignore (default " +
		"hard)"},
	{"deletes-before", "target.delta.deletes_before", "", "what --deletes was, to confirm that it is to be changed"},
	{"index-dir", "target.delta.index_dir", "", "the folder of the key index (default: in the user's cache folder)"},
	{"partition-by", "target.delta.partition_by", "list", "partition columns of a new table"},
	{"every", "target.delta.commit.every", "", "the longest that a record waits for its commit (default 10s)"},
	{"max-rows", "target.delta.commit.max_rows", "", "rows from which a commit is made at once"},
	{"max-size", "target.delta.commit.max_size", "", "size from which a commit is made at once, as stored, or, by " +
		"key, in memory (default 256MiB; by key 96MiB)"},
	{"target-file-size", "target.delta.target_file_size", "",
		"size at which a data file is full (default 128MiB)"},
	{"upkeep", "target.delta.upkeep", "", "on or off: pack small files, drop deleted rows and delete old files beside the " +
		"stream (default on)"},
	{"app", "app", "", "the name of the progress in the table (default: from topic and table)"},
	{"group", "source.kafka.group", "", "the consumer group that shares the partitions (default: from topic " +
		"and table)"},
	{"instance-id", "source.kafka.instance_id", "", "static member id within the group"},
	{"session-timeout", "source.kafka.session_timeout", "",
		"how long the group waits for a silent member (default 45s)"},
	{"rebalance", "source.kafka.rebalance", "", "cooperative or kip848 (default cooperative)"},
	{"isolation", "source.kafka.isolation", "", "read_committed or read_uncommitted (default read_committed)"},
	{"tombstones", "source.kafka.tombstones", "", "records without a value: skip or reject (default skip)"},
	{"decompress", "source.kafka.decompress", "", "none or gzip: unpack payloads (default none)"},
	{"max-message", "source.kafka.max_message", "", "the largest payload, unpacked (default 64MiB)"},
	{"max-depth", "source.kafka.max_depth", "", "how deep a record may be nested (default 64)"},
	{"fetch-memory", "source.kafka.fetch_memory", "", "what one fetch may take in memory (default 16MiB)"},
	{"forget-group", "source.kafka.forget_group", "bool",
		"start anew what the group knows and the table does not"},
	{"quarantine", "quarantine.table", "", "the quarantine table (default: beside the table)"},
	{"stop-above", "quarantine.stop_above", "", "the share of records in quarantine that ends the run, such " +
		"as 1% or '1% per 5m'"},
	{"tls", "source.kafka.tls", "bool", "encrypt the connection, trusting the system's authorities"},
	{"tls-ca", "source.kafka.tls.ca", "", "PEM file with the authorities to trust"},
	{"tls-cert", "source.kafka.tls.cert", "", "PEM file with our certificate"},
	{"tls-key", "source.kafka.tls.key", "", "PEM file with our private key"},
	{"tls-server-name", "source.kafka.tls.server_name", "", "the name that the broker's certificate must have"},
	{"tls-insecure", "source.kafka.tls.insecure", "bool", "do not check the broker's certificate"},
	{"sasl-mechanism", "source.kafka.sasl.mechanism", "", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"},
	{"sasl-username", "source.kafka.sasl.username", "", "the user's name"},
	{"sasl-password", "source.kafka.sasl.password", "", "the password, best as '${secret:env:NAME}' or " +
		"'${secret:file:PATH}'"},
	{"sasl-token-file", "source.kafka.sasl.token_file", "", "a file with the token of OAUTHBEARER"},
}

// ingestArgs are the flags that take more than one value to make.
type ingestArgs struct {
	schema     string
	derive     []string
	filter     []string
	selection  []string
	properties []string
	offsets    []string
}

// ingestSet are the flags that describe a pipeline without a file.
type ingestSet struct {
	values map[string]*string
	lists  map[string]*[]string
	bools  map[string]*bool
	more   ingestArgs
}

func (s *ingestSet) add(fs *pflag.FlagSet) {
	s.values, s.lists, s.bools = map[string]*string{}, map[string]*[]string{}, map[string]*bool{}
	for _, f := range ingestFlags {
		switch f.kind {
		case "bool":
			s.bools[f.name] = fs.Bool(f.name, false, f.doc)
		case "list":
			s.lists[f.name] = fs.StringSlice(f.name, nil, f.doc)
		default:
			s.values[f.name] = fs.String(f.name, "", f.doc)
		}
	}
	m := &s.more
	fs.StringVar(&m.schema, "schema", "", "columns and types, such as 'id bigint not null, amount "+
		"decimal(18,2)'")
	fs.StringArrayVar(&m.derive, "derive", nil, "NAME=EXPRESSION: a column to add or replace; may be repeated")
	fs.StringArrayVar(&m.filter, "filter", nil, "a condition that rows must meet to stay; may be repeated")
	fs.StringArrayVar(&m.selection, "select", nil, "a column, or EXPRESSION AS NAME, that stays; may be "+
		"repeated")
	fs.StringArrayVar(&m.properties, "property", nil, "NAME=VALUE: a table property of a new table; may be "+
		"repeated")
	fs.StringArrayVar(&m.offsets, "start-offset", nil, "[TOPIC:]PARTITION=OFFSET: the first offset that a new "+
		"table "+
		"reads; may be repeated")
}

// compose is the pipeline that the arguments and flags describe.
func (s *ingestSet) compose(c *cli, flags *pflag.FlagSet, source, table string) (*spec.Pipeline, error) {
	project, err := c.openProject("", false)
	if err != nil {
		return nil, err
	}
	set, err := ingestSettings(project, source, tableArgument(table), &s.more)
	if err != nil {
		return nil, err
	}
	for _, f := range ingestFlags {
		if flags.Changed(f.name) {
			set = append(set, f.setting(s))
		}
	}
	return spec.Compose(project, &spec.LoadOptions{Set: set})
}

func (c *cli) ingestCommand() *cobra.Command {
	var flags runFlags
	var set ingestSet
	cmd := &cobra.Command{
		Use:   "ingest kafka://HOST:PORT[,HOST:PORT…]/TOPIC[,TOPIC…] TABLE",
		Short: "Move a topic into a table, without a file",
		Long: `Move the records of a topic into a Delta table, each exactly once, without a pipeline file.

TABLE is a folder (./lake/orders), a URI (s3://bucket/orders) or namespace.table below the lake of the project. It is
made if it is not there, with columns inferred from the first records unless --schema gives them.

Progress is kept in the table: start the command again, anywhere, and it goes on where the table is. Steps run in this
order: all --derive, all --filter, then --select.`,
		Example: `  freshet ingest kafka://localhost:9092/orders ./lake/orders
  freshet ingest kafka://localhost:9092/orders ./lake/orders --until-caught-up
  freshet ingest kafka://b1:9092,b2:9092/web.clicks s3://acme/clicks --every 30s \
      --schema 'ts timestamp not null, url string, props json' \
      --derive 'day=CAST(ts AS DATE)' --partition-by day --metadata partition,offset
  freshet ingest kafka://b1:9093/orders ./orders --tls --sasl-mechanism SCRAM-SHA-512 \
      --sasl-username app --sasl-password '${secret:env:KAFKA_PASSWORD}'`,
		Args: args(2, 2, "kafka://HOST:PORT/TOPIC and TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			p, err := set.compose(c, cmd.Flags(), args[0], args[1])
			if err != nil {
				return err
			}
			return c.runAll(cmd.Context(), []*spec.Pipeline{p}, flags)
		},
	}
	set.add(cmd.Flags())
	flags.add(cmd)
	return cmd
}

func (f ingestFlag) setting(set *ingestSet) spec.Setting {
	s := spec.Setting{Path: strings.Split(f.path, "."), Place: "--" + f.name}
	switch f.kind {
	case "bool":
		s.Value = strconv.FormatBool(*set.bools[f.name])
	case "list":
		s.Value = *set.lists[f.name]
	default:
		s.Value = *set.values[f.name]
	}
	return s
}

// ingestSettings is the pipeline that the arguments, and the flags beyond ingestFlags, describe.
func ingestSettings(project *spec.Project, source, table string, more *ingestArgs) ([]spec.Setting, error) {
	brokers, topics, err := parseSource(source)
	if err != nil {
		return nil, err
	}
	location, err := project.TableURL(table)
	if err != nil {
		return nil, err
	}
	base := path.Base(location)
	app := topics[0] + "." + base
	if len(topics) > 1 {
		app = "ingest." + base
	}
	where, place := "path", "TABLE"
	if !strings.ContainsAny(table, `/\:`) {
		where = "table"
	}
	set := []spec.Setting{
		{Path: []string{"pipeline"}, Value: cleanName(base), Place: place},
		{Path: []string{"app"}, Value: app, Place: place},
		{Path: []string{"source", "kafka", "brokers"}, Value: brokers, Place: "kafka://"},
		{Path: []string{"source", "kafka", "topics"}, Value: topics, Place: "kafka://"},
		{Path: []string{"source", "kafka", "group"}, Value: strings.Join(topics, ",") + ":" + location,
			Place: place},
		{Path: []string{"target", "delta", where}, Value: table, Place: place},
	}
	return more.settings(set, topics)
}

// parseSource reads kafka://HOST:PORT,HOST:PORT/TOPIC,TOPIC.
func parseSource(source string) (brokers, topics []string, err error) {
	const wanted = "wanted kafka://HOST:PORT/TOPIC, with commas between several brokers or topics"
	rest, ok := strings.CutPrefix(source, "kafka://")
	if !ok {
		return nil, nil, usageError("source: found "+strconv.Quote(source)+", "+wanted, "")
	}
	hosts, names, ok := strings.Cut(rest, "/")
	if !ok || hosts == "" || names == "" {
		return nil, nil, usageError("source: found "+strconv.Quote(source)+", "+wanted, "")
	}
	if decoded, err := url.PathUnescape(names); err == nil {
		names = decoded
	}
	return strings.Split(hosts, ","), strings.Split(names, ","), nil
}

// cleanName makes a pipeline's name of a folder's.
func cleanName(s string) string {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune("_.-", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
	clean = strings.TrimLeft(clean, ".-")
	if clean == "" {
		return "ingest"
	}
	return clean
}

func (a *ingestArgs) settings(set []spec.Setting, topics []string) ([]spec.Setting, error) {
	if a.schema != "" {
		columns, err := spec.SplitColumns(a.schema)
		if err != nil {
			return nil, usageError("--schema: "+err.Error(), "")
		}
		for _, c := range columns {
			set = append(set, spec.Setting{Path: []string{"source", "schema", "columns", c.Name}, Value: c.Value,
				Place: "--schema " + c.Name})
		}
	}
	step := 0
	next := func(kind ...string) []string { return append([]string{"steps", strconv.Itoa(step)}, kind...) }
	for _, d := range a.derive {
		name, text, ok := strings.Cut(d, "=")
		if !ok {
			return nil, usageError("--derive: found "+strconv.Quote(d)+", wanted NAME=EXPRESSION", "")
		}
		set = append(set, spec.Setting{Path: next("derive", strings.TrimSpace(name)),
			Value: strings.TrimSpace(text), Place: "--derive " + name})
	}
	step += min(1, len(a.derive))
	for _, f := range a.filter {
		set = append(set, spec.Setting{Path: next("filter"), Value: f, Place: "--filter"})
		step++
	}
	if a.selection != nil {
		set = append(set, spec.Setting{Path: next("select"), Value: a.selection, Place: "--select"})
	}
	for _, p := range a.properties {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return nil, usageError("--property: found "+strconv.Quote(p)+", wanted NAME=VALUE", "")
		}
		set = append(set, spec.Setting{Path: []string{"target", "delta", "properties", name}, Value: value,
			Place: "--property " + name})
	}
	return a.startOffsets(set, topics)
}

func (a *ingestArgs) startOffsets(set []spec.Setting, topics []string) ([]spec.Setting, error) {
	const place = "--start-offset"
	byTopic := map[string][]spec.Setting{}
	for _, o := range a.offsets {
		lane, offset, ok := strings.Cut(o, "=")
		topic, partition, named := strings.Cut(lane, ":")
		if !named {
			topic, partition = topics[0], lane
		}
		if !ok || !named && len(topics) > 1 || !slices.Contains(topics, topic) {
			return nil, usageError(place+": found "+strconv.Quote(o)+", wanted [TOPIC:]PARTITION=OFFSET of "+
				strings.Join(topics, " or "), "")
		}
		byTopic[topic] = append(byTopic[topic], spec.Setting{Path: []string{partition}, Value: offset,
			Place: place})
	}
	if len(byTopic) == 0 {
		return set, nil
	}
	var all []spec.Setting
	for _, topic := range topics {
		if byTopic[topic] != nil {
			all = append(all, spec.Setting{Path: []string{topic}, Value: byTopic[topic], Place: place})
		}
	}
	return append(set, spec.Setting{Path: []string{"source", "kafka", "start"}, Place: place,
		Value: []spec.Setting{{Path: []string{"offsets"}, Value: all, Place: place}}}), nil
}
