package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/demo"
	"github.com/freshet-io/freshet/spec"
)

const quickstartProject = `version: 1
project: quickstart
lake: {root: ./lake}          # bronze.orders is ./lake/bronze/orders
connections:
  # A broker inside the process that runs a pipeline on it; its records are kept in the folder.
  # For a real one: demo: {kafka: {brokers: ["localhost:9092"]}}
  demo: {kafka: {embedded: {dir: .freshet/broker}}}
`

const quickstartPipeline = `pipeline: orders
namespace: bronze
trigger: continuous
source:
  kafka: {connection: demo, topics: [orders], start: earliest, format: json}
  schema:
    columns:
      order_id: bigint not null
      customer: string
      article: string
      state: string
      pieces: int
      price: decimal(18,2)
      placed_at: timestamp
      gift: boolean
      note: string
      ship_to: "struct<town: string, code: string, express: boolean>"
    new_fields: add
target:
  delta:
    table: bronze.orders
    mode: append
    commit: {every: 1s}
`

type quickstart struct {
	dir   string
	rows  int64
	time  time.Duration
	rate  int
	flags runFlags
	table string // where it is
}

func (c *cli) quickstartCommand() *cobra.Command {
	q := quickstart{}
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "A demo with everything in one process",
		Long: `Start a Kafka broker inside the process, send orders to its topic, and move them into the Delta table
DIR/lake/bronze/orders while you watch.

It ends by itself when --rows orders are in the table, or after --for; else it goes on, at 10 000 orders a second, until
Ctrl-C. DIR is left as a project: its files show what a pipeline looks like, and freshet run DIR runs it on the broker's
kept records. Starting the quickstart again sends more orders to the same topic and goes on in the same table.

freshet quickstart postgres is a tour with a database.`,
		Example: `  freshet quickstart --rows 200000
  freshet quickstart --dir /tmp/demo --for 30s
  freshet table read ./quickstart/lake/bronze/orders --limit 5      afterwards`,
		Args: args(0, 0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.rows < 0 || q.time < 0 || q.rate < 0 {
				return usageError("--rows, --for and --rate: found a negative number, wanted none", "")
			}
			if err := q.flags.check(); err != nil {
				return err
			}
			return q.run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.dir, "dir", "./quickstart", "the folder of the demo")
	f.Int64Var(&q.rows, "rows", 0, "end when this many more orders are in the table")
	f.DurationVar(&q.time, "for", 0, "end after this time, such as 30s")
	f.IntVar(&q.rate, "rate", 0, "orders a second (default: as fast as it goes with --rows, else 10000)")
	f.StringVar(&q.flags.http, "http", "", "serve /metrics, /livez and /readyz on this address")
	f.StringVar(&q.flags.progress, "progress", "auto", "auto, bar, plain, json or off")
	q.flags.shutdownTimeout, q.flags.controlEvery = 30*time.Second, 5*time.Second
	cmd.AddCommand(c.quickstartPostgres())
	return cmd
}

func (q *quickstart) run(ctx context.Context, c *cli) error {
	if err := q.writeProject(); err != nil {
		return err
	}
	project, err := spec.OpenProject(q.dir, "", false)
	if err != nil {
		return err
	}
	p, err := spec.Load(project, filepath.Join(q.dir, "pipelines", "orders.yaml"), nil)
	if err != nil {
		return err
	}
	if p.Source.Kafka.Connection.Value == "" {
		return usageError(fmt.Sprintf("%s: its pipeline does not run on the embedded broker any more", q.dir),
			"run it with `freshet run "+q.dir+"`")
	}
	r := c.newRunner(q.flags)
	defer r.close()
	brokers, err := r.builder.Brokers(p)
	if err != nil {
		return err
	}
	first, err := demo.Sent(ctx, brokers[0])
	if err != nil {
		return err
	}
	c.say("Kafka broker  %s, topic %s, while this runs", brokers[0], demo.Topic)
	if q.table, err = location(project, p.TargetTable()); err != nil {
		return err
	}
	c.say("Delta table   %s", q.table)
	if err := q.move(ctx, r, p, brokers[0], first); err != nil {
		r.summarise()
		return err
	}
	q.summary(c, r)
	return nil
}

// location is where a table is, as people see it.
func location(project *spec.Project, table string) (string, error) {
	u, err := project.TableURL(table)
	if path, ok := strings.CutPrefix(u, "file://"); ok {
		u = shownPath(filepath.FromSlash(path))
	}
	return u, err
}

// move sends orders and has the pipeline take them, until there are enough.
func (q *quickstart) move(ctx context.Context, r *runner, p *spec.Pipeline, broker string,
	first int64) error {
	rate := q.rate
	if rate == 0 && q.rows == 0 {
		rate = 10_000
	}
	working, enough := context.WithCancel(ctx)
	defer enough()
	sending := working
	if q.time > 0 {
		var cancel context.CancelFunc
		sending, cancel = context.WithTimeout(working, q.time)
		defer cancel()
	}
	goal := &goal{reached: enough, at: map[string]int64{}}
	r.tap = goal.committed
	r.started = time.Now()
	var group errgroup.Group
	group.Go(func() error {
		last, err := demo.Produce(sending, broker, first, q.rows, rate)
		if err != nil {
			enough()
			return err
		}
		goal.set(last)
		return nil
	})
	group.Go(func() error {
		defer enough()
		return r.run(working, []*spec.Pipeline{p})
	})
	return group.Wait()
}

// goal is reached when the table holds the last offset of each partition that got orders.
type goal struct {
	mu      sync.Mutex
	at      map[string]int64 // by partition: what the table holds
	last    map[int32]int64  // nil while orders are being sent
	reached func()
}

func (g *goal) committed(c freshet.Committed) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for lane, seq := range c.Progress {
		g.at[lane.Name] = seq
	}
	g.check()
}

func (g *goal) set(last map[int32]int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = last
	g.check()
}

func (g *goal) check() {
	if g.last == nil {
		return
	}
	for partition, offset := range g.last {
		if at, ok := g.at[fmt.Sprint(partition)]; !ok || at < offset {
			return
		}
	}
	g.reached()
}

// writeProject writes the demo's files, if the folder is no project yet.
func (q *quickstart) writeProject() error {
	file := filepath.Join(q.dir, spec.ProjectFile)
	if _, err := os.Stat(file); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return writeFiles(q.dir, map[string]string{
		spec.ProjectFile:        quickstartProject,
		"pipelines/orders.yaml": quickstartPipeline,
		".gitignore":            "/lake/\n/.freshet/\n",
	}, false)
}

func (q *quickstart) summary(c *cli, r *runner) {
	t := r.metrics.Totals()[0]
	took := time.Since(r.started)
	s := c.style(c.out)
	fmt.Fprintf(c.out, "%s %s orders in %s: %s rows/s, %s MB/s of JSON\n", s.paint(green, "✓"), number(t.Rows),
		span(took),
		short(float64(t.Rows)/took.Seconds()), three(float64(t.Bytes)/1e6/took.Seconds()))
	fmt.Fprintf(c.out, "  %s  version %d, %s in %s, %s in quarantine\n", q.table, t.LastVersion,
		bytesText(t.StoredBytes), plural(int(t.Files), "file"), number(t.Rejects))
	fmt.Fprint(c.out, s.text("\nNext:\n"))
	next := [][2]string{
		{os.Args[0] + " table read " + q.table + " --limit 5", "rows of it"},
		{os.Args[0] + " table history " + q.table, "its commits"},
		{os.Args[0] + " run " + q.dir, "the same pipeline from its file, " +
			filepath.Join(q.dir, "pipelines", "orders.yaml")},
		{os.Args[0] + " ingest kafka://HOST:PORT/TOPIC ./lake/TOPIC", "your own topic"},
	}
	width := 0
	for _, line := range next {
		width = max(width, len(line[0]))
	}
	for _, line := range next {
		fmt.Fprintf(c.out, "  %-*s   %s\n", width, line[0], s.paint(dim, line[1]))
	}
}
