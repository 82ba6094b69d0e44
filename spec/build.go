package spec

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/demo"
	"github.com/freshet-io/freshet/internal/format"
	"github.com/freshet-io/freshet/kafka"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/transform"
)

// BuildOptions tune Builder. The zero value of each field means its default.
type BuildOptions struct {
	// Bounded ends pipelines where their sources ended when they were opened, whatever their trigger. Default:
	// as the file says.
	Bounded bool
	// ShutdownTimeout is how long what was read may still be committed once a run was told to end. Default 30 s.
	ShutdownTimeout time.Duration
	// EngineInfo names the writer in the tables' history. Default "Freshet".
	EngineInfo string
	// Observer returns what is told of a pipeline's doings. Default: nobody is.
	Observer func(p *Pipeline) freshet.Observer
	// Logger takes what a person should see. Default: nothing is logged.
	Logger *slog.Logger
	// TakePlan lets files that have become others take effect although their tables are not level.
	TakePlan bool
	// ControlEvery is how often a supervised pipeline looks whether it is paused. Default 5 s.
	ControlEvery time.Duration
}

// Builder makes pipelines that can run. It owns the brokers that they embed.
type Builder struct {
	opts BuildOptions

	mu      sync.Mutex
	brokers map[string]*demo.Broker // by folder
}

// NewBuilder returns a builder. Nil means defaults.
func NewBuilder(opts *BuildOptions) *Builder {
	b := &Builder{brokers: map[string]*demo.Broker{}}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Logger == nil {
		b.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if b.opts.ControlEvery <= 0 {
		b.opts.ControlEvery = 5 * time.Second
	}
	return b
}

// Close ends the embedded brokers, when the pipelines have ended.
func (b *Builder) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, broker := range b.brokers {
		broker.Close()
	}
	b.brokers = map[string]*demo.Broker{}
}

// Build makes the pipeline that a file, found good, describes. Nothing is connected before it runs, but for
// embedded brokers. Errors: *freshet.Error.
func (b *Builder) Build(ctx context.Context, p *Pipeline) (*freshet.Pipeline, error) {
	return b.build(ctx, p, b.observer(p), reading{})
}

func (b *Builder) observer(p *Pipeline) freshet.Observer {
	if b.opts.Observer == nil {
		return freshet.Observer{}
	}
	return b.opts.Observer(p)
}

// reading is how a pipeline reads other than its file says.
type reading struct {
	parked  map[string]bool // tables whose changes are parked
	slow    *lake.SlowTables
	leftOut []string // tables of topics that are not read
	except  []string // topics that are not read
	torn    bool     // the tables show no moment together, so that no cuts are recorded
	whole   bool     // from the beginning of each topic, which must be there still
}

func (b *Builder) build(ctx context.Context, p *Pipeline, obs freshet.Observer, how reading) (*freshet.Pipeline, error) {
	steps, err := p.steps()
	if err != nil {
		return nil, err
	}
	source, keyOf, err := b.source(p, obs, how)
	if err != nil {
		return nil, err
	}
	t := p.Target.Delta
	var stepsOf func(table string) ([]freshet.Step, error)
	if p.hides() {
		stepsOf = p.stepsOf
	}
	return &freshet.Pipeline{
		Name:    p.FullName(),
		Source:  source,
		Steps:   steps,
		StepsOf: stepsOf,
		Target:  b.target(ctx, p, obs, how, keyOf),
		Options: freshet.Options{
			Every:           t.Commit.Every,
			MaxRows:         t.Commit.MaxRows,
			MaxBytes:        p.maxBytes(),
			QueueBytes:      p.queueBytes(),
			ShutdownTimeout: b.opts.ShutdownTimeout,
			StopAbove:       p.stopAbove(),
			Days:            p.days(),
			Observer:        obs,
			Logger:          b.opts.Logger,
		},
	}, nil
}

// maxBytes is the size from which a commit is made at once; 0: the default. Where rows are gathered it bounds what they take in
// memory: PostgreSQL's come in chunks of a few MiB, of which a commit needs no more than two; changes of a topic lie anywhere in the
// table, and the more of them are in a commit, the less each costs.
func (p *Pipeline) maxBytes() int64 {
	size := p.Target.Delta.Commit.MaxSize
	switch {
	case size != 0 || !p.Target.Delta.gathers():
		return size
	case p.Source.Postgres != nil:
		return 24 << 20
	}
	return 96 << 20
}

// GatheredBytes is what rows take in memory that wait for their commit until these find out what they do to the table, of all
// commits under way; 0: they are written as they come.
func (p *Pipeline) GatheredBytes() int64 {
	if !p.Target.Delta.gathers() {
		return 0
	}
	return p.maxBytes()
}

// queueBytes is what may wait to be written; 0: the default. What PostgreSQL sends waits in the source already: transactions until
// they are committed, rows of tables until the log has come to them.
func (p *Pipeline) queueBytes() int64 {
	if p.Source.Postgres == nil {
		return 0
	}
	return 8 << 20
}

// source makes the source, and what knows the keys of its tables; nil: the file does.
func (b *Builder) source(p *Pipeline, obs freshet.Observer, how reading) (freshet.Source, func(string) []string, error) {
	if p.Source.Postgres == nil {
		s, err := b.kafkaSource(p, obs, how)
		return s, nil, err
	}
	s, err := b.postgresSource(p, obs)
	if err != nil {
		return nil, nil, err
	}
	if len(p.Target.Delta.Key) > 0 {
		return s, nil, nil
	}
	return s, s.Key, nil
}

// FullName is namespace and name.
func (p *Pipeline) FullName() string { return p.Namespace + "." + p.Name.Value }

// TargetTable is the table's name, path or URI as the file gives it; {topic} may stand in it.
func (p *Pipeline) TargetTable() string {
	if t := p.Target.Delta.Table.Value; t != "" {
		return t
	}
	return p.Target.Delta.Path.Value
}

func (p *Pipeline) stopAbove() *freshet.StopAbove {
	if s := p.Quarantine.StopAbove; s != nil {
		return &freshet.StopAbove{Share: s.Part, Window: s.Window}
	}
	return nil
}

func (p *Pipeline) steps() ([]freshet.Step, error) {
	var steps []freshet.Step
	for _, s := range p.Steps {
		step, err := s.build()
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: %w", p.FullName(), err)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// stepsOf are the steps of a table: before all else what hides its columns.
func (p *Pipeline) stepsOf(table string) ([]freshet.Step, error) {
	steps, err := p.steps()
	if mask := p.maskStep(p.sourcesOf(table)); mask != nil {
		steps = append([]freshet.Step{mask}, steps...)
	}
	return steps, err
}

func (s Step) build() (freshet.Step, error) {
	var columns []transform.Column
	for _, d := range s.Derive {
		e, err := expr.Parse(d.Value.Value)
		if err != nil {
			return nil, err
		}
		columns = append(columns, transform.Column{Name: d.Name, Expr: e})
	}
	if columns != nil {
		return transform.NewDerive(columns), nil
	}
	if s.Filter != nil {
		e, err := expr.Parse(s.Filter.Value)
		if err != nil {
			return nil, err
		}
		return transform.NewFilter(e), nil
	}
	for _, e := range s.Select {
		c, err := transform.ParseColumn(e.Value)
		if err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	return transform.NewSelect(columns)
}

func (b *Builder) target(ctx context.Context, p *Pipeline, obs freshet.Observer, how reading,
	keyOf func(string) []string) freshet.Target {
	open := func(table string) (store.Store, error) { return p.Project.OpenTable(ctx, table) }
	opts := b.targetOptions(p, obs)
	if how.torn {
		opts.Cuts = nil
	}
	if keyOf != nil {
		opts.Key.Of = keyOf
	}
	opts.Park = b.park(p, obs, how)
	if opts.Cuts != nil {
		opts.Cuts.LeftOut, opts.Cuts.TakePlan = how.leftOut, b.opts.TakePlan
	}
	return p.tables(open, opts)
}

// replayer is a target that can take records out of quarantine, too.
type replayer interface {
	freshet.Target
	Replay(ctx context.Context, table string, f *lake.Filter, again lake.Retake) (*lake.Replayed, error)
	ReplayPresent(ctx context.Context, table string, f *lake.Filter, again lake.Retake, present lake.Present) (*lake.Replayed, error)
}

// tables are the pipeline's tables, with their change logs where it has them.
func (p *Pipeline) tables(open lake.Opener, opts *lake.TargetOptions) replayer {
	if !p.Target.Delta.hasLog() {
		return lake.NewTarget(open, p.App, opts)
	}
	return p.group(open, opts)
}

// group are the pipeline's tables with their change logs, which it has.
func (p *Pipeline) group(open lake.Opener, opts *lake.TargetOptions) *lake.Group {
	main := lake.NewTarget(open, p.App, opts)
	beside := lake.ChangeLogOptions(opts)
	if len(p.Target.Overrides) > 0 {
		beside.Of = func(log string, o *lake.TargetOptions) { o.Masks = p.masksOf(p.sourcesOf(p.ofChangeLog(log))) }
	}
	log := lake.NewTarget(open, p.App, beside)
	return lake.NewGroup(main, lake.Beside{Target: log, Name: p.changeLogOf})
}

func (b *Builder) targetOptions(p *Pipeline, obs freshet.Observer) *lake.TargetOptions {
	t := p.Target.Delta
	opts := t.modeOptions()
	opts.ManyOrigins = p.manyOrigins()
	opts.Properties = map[string]string{}
	opts.Quarantine = p.quarantineOf
	opts.TargetFileBytes = t.FileSize
	opts.EngineInfo = b.opts.EngineInfo
	opts.Cuts = p.cuts()
	opts.Retry = func(what string, err error) { b.retry(p, obs, what, err) }
	opts.Recovered = obs.Recovered
	opts.Key.IndexDir = p.Project.Path(t.IndexDir.Value)
	if t.keyed() {
		opts.Key.Of = p.keyOf()
		p.deleteOptions(&opts.Key)
	}
	if opts.Upkeep = t.Upkeep.options(); opts.Upkeep != nil {
		opts.Upkeep.Done = func(u freshet.Upkeep) { b.lookedAfter(p, obs, u) }
	}
	for _, c := range t.PartitionBy {
		opts.PartitionBy = append(opts.PartitionBy, c.Value)
	}
	for _, prop := range t.Properties {
		opts.Properties[prop.Name] = prop.Value
	}
	if len(p.Target.Overrides) > 0 {
		opts.Of = p.override
	}
	return opts
}

// modeOptions are the options that say how rows get into the table and what columns it has.
func (t *Delta) modeOptions() *lake.TargetOptions {
	opts := &lake.TargetOptions{ChangeColumns: t.changeColumns(), ChangeFeed: t.ChangeLog.Value == feed}
	opts.Periods, opts.ModeBefore = t.Periods, t.ModeBefore.Value
	opts.Periods.Track, opts.Periods.Ignore, opts.Periods.Repeats = texts(t.Track), texts(t.Ignore), int(t.Repeats)
	opts.Dedupe = t.Dedupe.options()
	if t.keyed() {
		opts.Mode = lake.Mode(t.Mode)
		opts.Key = lake.KeyOptions{Columns: texts(t.Key), SequenceBy: texts(t.SequenceBy), Deletes: lake.Deletes(t.Deletes),
			CopyOnWrite: t.Compatibility == "broad"}
	}
	return opts
}

func texts(list []Text) []string {
	out := make([]string, len(list))
	for i, t := range list {
		out[i] = t.Value
	}
	return out
}

func (b *Builder) retry(p *Pipeline, obs freshet.Observer, what string, err error) {
	if obs.Retry != nil {
		obs.Retry(what, err)
	}
	b.opts.Logger.Warn("trying again", "pipeline", p.FullName(), "what", what, "error", err)
}

func (b *Builder) lookedAfter(p *Pipeline, obs freshet.Observer, u freshet.Upkeep) {
	if obs.Upkeep != nil {
		obs.Upkeep(u)
	}
	b.opts.Logger.Debug("looked after a table", "pipeline", p.FullName(), "table", u.Table, "kind", u.Kind, "partition",
		u.Partition, "why", u.Why, "files_before", u.FilesBefore, "files_after", u.FilesAfter, "took", u.Took)
}

// manyOrigins tells whether one table takes lanes of several topics.
func (p *Pipeline) manyOrigins() bool {
	k := p.kafka()
	return k.transactions() != nil ||
		!strings.Contains(p.TargetTable(), p.hole()) && (len(k.Topics) > 1 || k.Pattern.Value != "")
}

// quarantineOf is the quarantine table of a target table.
func (p *Pipeline) quarantineOf(table string) string {
	topic := p.topicOf(table)
	if p.Quarantine.Table.Value == "" && isPath(p.TargetTable()) {
		return lake.QuarantineName(table)
	}
	return p.quarantineName(topic)
}

func (p *Pipeline) quarantineName(topic string) string {
	name := p.Quarantine.Table.Value
	if name == "" {
		name = "{ns}._quarantine_{pipeline}"
	}
	ns := p.Namespace
	if t := p.TargetTable(); !isPath(t) {
		ns, _, _ = strings.Cut(t, ".")
	}
	return strings.NewReplacer("{ns}", ns, "{pipeline}", p.Name.Value, p.hole(), topic).Replace(name)
}

func (p *Pipeline) format() (freshet.Format, error) {
	k, s := p.Source.Kafka, p.Source.Schema
	if k.Format == "raw" {
		return format.Raw{}, nil
	}
	opts := &format.Options{
		NewFields: format.NewFields(s.NewFields), EpochUnit: format.EpochUnit(s.Numbers),
		Gzip:     k.Decompress == "gzip",
		MaxDepth: int(k.MaxDepth), MaxBytes: int(k.MaxMessage), MaxColumns: int(s.MaxColumns),
	}
	switch {
	case k.Format == "debezium":
		return format.NewDebezium(opts, k.Debezium.options())
	case k.Changes != nil:
		return format.NewChanges(opts, k.Changes.options())
	}
	return format.NewJSON(opts)
}

func (b *Builder) kafkaSource(p *Pipeline, obs freshet.Observer, how reading) (freshet.Source, error) {
	k := p.Source.Kafka
	client, err := b.client(p)
	if err != nil {
		return nil, err
	}
	f, err := p.format()
	if err != nil {
		return nil, err
	}
	var topics kafka.Topics
	for _, t := range k.Topics {
		if !slices.Contains(how.except, t.Value) {
			topics.Names = append(topics.Names, t.Value)
		}
	}
	topics.Pattern, topics.Except = k.Pattern.Value, how.except
	opts := &kafka.Options{
		Whole: how.whole,
		Group: k.Group, InstanceID: k.InstanceID, ServerSideBalancer: k.Rebalance == "kip848",
		SessionTimeout: k.SessionTimeout, ForgetGroup: k.ForgetGroup,
		Start:           kafka.Start{Latest: k.Start.At == "latest", Time: k.Start.Time, Offsets: k.Start.Offsets},
		Bounded:         b.opts.Bounded || p.Trigger == "once",
		ReadUncommitted: k.Isolation == "read_uncommitted",
		Schema:          p.sourceSchema(),
		Columns:         k.columns(),
		Tombstones:      kafka.Tombstones(k.Tombstones),
		KeepRecords:     p.keepsRecords(),
		FetchMemory:     k.FetchMemory,
		SampleRecords:   int(p.Source.Schema.Infer),
		TLS:             client.tls(p.Project), SASL: client.sasl(p.Project),
		Observer: obs, Log: b.opts.Logger,
	}
	if opts.Group == "" {
		opts.Group = p.App
	}
	if k.Format == "raw" || k.tellsChanges() {
		opts.Tombstones = kafka.Keep
	}
	bad := func(err error) (freshet.Source, error) {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: p.File, Msg: err.Error()}
	}
	tx := k.transactions()
	if tx != nil && topics.Pattern != "" {
		topics.Except = append(slices.Clone(topics.Except), tx.Topic)
	}
	src, err := kafka.NewSource(client.Brokers, topics, kafka.RouteTo(p.TargetTable()), f, opts)
	if err != nil {
		return bad(err)
	}
	if tx == nil {
		return src, nil
	}
	whole, err := kafka.NewTransactional(src, *tx)
	if err != nil {
		return bad(err)
	}
	return whole, nil
}

// keepsRecords tells whether records are wanted beside their rows: for the times by which days are told apart, or since
// rows can be rejected after they were decoded. That is by a step; by a column of the table that is NOT NULL and that the
// decoder does not fill, which it does not where columns are given, or metadata is; and by what the table has under their
// key, where they are changes.
func (p *Pipeline) keepsRecords() bool {
	k := p.Source.Kafka
	return p.Days.Keep > 0 || len(p.Steps) > 0 || p.hides() || len(k.Metadata) > 0 || p.sourceSchema() != nil ||
		k.tellsChanges() && p.Target.Delta.keyed()
}

func (k *Kafka) columns() kafka.Columns {
	c := kafka.Columns{KeyAsText: k.KeyAs == "string"}
	into := map[string]*string{"topic": &c.Topic, "partition": &c.Partition, "offset": &c.Offset,
		"timestamp":      &c.Timestamp,
		"timestamp_type": &c.TimestampType, "key": &c.Key, "headers": &c.Headers}
	for _, m := range k.Metadata {
		*into[m.Name] = m.Value
	}
	return c
}

// Brokers are the addresses of the pipeline's brokers; an embedded one is started.
func (b *Builder) Brokers(p *Pipeline) ([]string, error) {
	c, err := b.client(p)
	return c.Brokers, err
}

// client is how to reach the broker: what the connection says, under what the pipeline says. An embedded
// broker is started.
func (b *Builder) client(p *Pipeline) (KafkaClient, error) {
	c := p.kafka().Client
	if name := p.kafka().Connection.Value; name != "" {
		shared, _ := p.Project.connection(name)
		client := *shared.Kafka
		if c.TLS != nil {
			client.TLS = c.TLS
		}
		if c.SASL != nil {
			client.SASL = c.SASL
		}
		c = client
	}
	if c.Embedded == nil {
		return c, nil
	}
	dir := p.Project.path(c.Embedded.Dir)
	b.mu.Lock()
	defer b.mu.Unlock()
	broker, ok := b.brokers[dir]
	if !ok {
		var err error
		if broker, err = demo.StartBroker(dir, c.Embedded.Listen); err != nil {
			return c, &freshet.Error{Code: freshet.CodeSourceUnreachable, Class: freshet.ClassEnvironment, Place: dir,
				Msg: "the embedded broker cannot be started", Err: err,
				Fix: "end the process that uses this folder or address, or give another one"}
		}
		b.brokers[dir] = broker
	}
	c.Brokers = []string{broker.Addr()}
	return c, nil
}

// path is a path of the project's files: relative ones are so to the project's folder.
func (p *Project) path(s string) string {
	if s == "" || filepath.IsAbs(s) {
		return s
	}
	return filepath.Join(p.Dir, s)
}

func (c KafkaClient) tls(p *Project) *kafka.TLS {
	if c.TLS == nil || c.TLS.Off {
		return nil
	}
	t := c.TLS
	return &kafka.TLS{CAFile: p.path(t.CA), CertFile: p.path(t.Cert), KeyFile: p.path(t.Key),
		ServerName: t.ServerName,
		Insecure:   t.Insecure}
}

func (c KafkaClient) sasl(p *Project) *kafka.SASL {
	if c.SASL == nil {
		return nil
	}
	s := c.SASL
	k := &kafka.SASL{Mechanism: s.Mechanism, Username: s.Username, Password: s.Password.Reveal(),
		TokenFile: p.path(s.TokenFile)}
	if token := s.Token.Reveal(); token != "" {
		k.Token = func(context.Context) (string, error) { return token, nil }
	}
	return k
}
