package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/metrics"
	"github.com/freshet-io/freshet/spec"
)

// runFlags are the flags of all commands that move data.
type runFlags struct {
	untilCaughtUp   bool
	http            string
	shutdownTimeout time.Duration
	progress        string
	controlEvery    time.Duration
	takePlan        bool
}

func (f *runFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.untilCaughtUp, "until-caught-up", false,
		"end when everything is committed that the topics, or the database, held at the start")
	fs.StringVar(&f.http, "http", "", "serve /metrics, /livez and /readyz on this address, such as "+
		"127.0.0.1:7070 (default: no port)")
	fs.DurationVar(&f.shutdownTimeout, "shutdown-timeout", 30*time.Second,
		"how long SIGTERM waits for what was read to be committed")
	fs.DurationVar(&f.controlEvery, "control-every", 5*time.Second,
		"how often to look whether the pipeline was paused or resumed")
	fs.BoolVar(&f.takePlan, "take-plan", false,
		"let a pipeline file that has changed take effect although the former one has left its tables apart")
	fs.StringVar(&f.progress, "progress", "auto", "auto, bar, plain, json or off; auto: bar on a terminal, "+
		"else a line every ten seconds")
}

func (f *runFlags) check() error {
	return errors.Join(oneOf("--progress", f.progress, "auto", "bar", "plain", "json", "off"),
		atLeast("--shutdown-timeout", f.shutdownTimeout), atLeast("--control-every", f.controlEvery))
}

func atLeast(flag string, d time.Duration) error {
	if d <= 0 {
		return usageError(fmt.Sprintf("%s: found %s, wanted more than nothing", flag, d), "")
	}
	return nil
}

// runner runs pipelines and shows what they do.
type runner struct {
	c       *cli
	flags   runFlags
	metrics *metrics.Metrics
	screen  *screen
	builder *spec.Builder
	tap     func(freshet.Committed) // told of each commit; may be nil
	started time.Time
}

// newRunner prepares for running. Close it when all is done.
func (c *cli) newRunner(f runFlags) *runner {
	r := &runner{c: c, flags: f, metrics: metrics.New(buildVersion), screen: newScreen(c.err),
		started: time.Now()}
	logging := *c
	logging.err = r.screen
	// the bar says what the log would
	if f.progress != "off" && c.logLevel == "" && !c.verbose && isTerminal(c.err) {
		logging.quiet = true
	}
	r.builder = spec.NewBuilder(&spec.BuildOptions{
		Bounded: f.untilCaughtUp, ShutdownTimeout: f.shutdownTimeout, EngineInfo: engineInfo(),
		Logger: logging.logger(), ControlEvery: f.controlEvery, TakePlan: f.takePlan,
		Observer: func(p *spec.Pipeline) freshet.Observer {
			return r.observe(r.metrics.Observer(p.Namespace, p.Name.Value, "kafka"))
		},
	})
	return r
}

func (r *runner) close() { r.builder.Close() }

// observe adds the tap to an observer.
func (r *runner) observe(o freshet.Observer) freshet.Observer {
	committed := o.Committed
	o.Committed = func(c freshet.Committed, took, latency time.Duration, newest time.Time) {
		committed(c, took, latency, newest)
		if r.tap != nil {
			r.tap(c)
		}
	}
	return o
}

// run runs the pipelines until they end, one fails, or ctx ends. When one fails the others are told to stop,
// and commit what they have read.
func (r *runner) run(ctx context.Context, pipelines []*spec.Pipeline) error {
	var built []*spec.Supervised
	var gathered []int64
	for _, p := range pipelines {
		gathered = append(gathered, p.GatheredBytes())
		pipe, err := r.builder.Supervise(ctx, p)
		if err != nil {
			return err
		}
		built = append(built, pipe)
	}
	tuneMemory(gathered...)
	stopOTLP, err := r.metrics.StartOTLP(ctx, buildVersion)
	if err != nil {
		return err
	}
	defer r.flush(stopOTLP)
	stopHTTP, err := r.serve()
	if err != nil {
		return err
	}
	defer stopHTTP()
	stopShowing := r.show()
	defer stopShowing()

	group, running := errgroup.WithContext(ctx)
	var mu sync.Mutex
	var faults []error
	for _, p := range built {
		group.Go(func() error {
			err := p.Run(running)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, err)
			}
			return err
		})
	}
	if group.Wait() != nil {
		return errors.Join(faults...)
	}
	return nil
}

// flush gives the last metrics and traces some seconds.
func (r *runner) flush(stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := stop(ctx); err != nil {
		r.c.say("⚠ the last metrics and traces could not be sent: %v", err)
	}
}

// serve opens the port, if one is wanted.
func (r *runner) serve() (stop func(), err error) {
	if r.flags.http == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", r.flags.http)
	if err != nil {
		return nil, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassEnvironment, Place: "--http",
			Msg: "the port cannot be opened", Err: err, Fix: "choose another address, or end what uses it"}
	}
	server := &http.Server{Handler: r.metrics.Handler(), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends with Close
	}()
	r.c.say("http://%s/metrics, /livez, /readyz", listener.Addr())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}
