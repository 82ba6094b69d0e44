package spec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// Supervised is a pipeline that runs as far as people let it: it looks at what they say (lake.Control) when it starts and
// every few seconds. When they say something else it commits what it has read, ends, and goes on as they say.
type Supervised struct {
	b       *Builder
	p       *Pipeline
	obs     freshet.Observer
	control store.Store
	slow    *lake.SlowTables // of all runs

	mu   sync.Mutex
	said *lake.Control
}

// Supervise returns the pipeline that a file, found good, describes, to be run. Errors: as Build.
func (b *Builder) Supervise(ctx context.Context, p *Pipeline) (*Supervised, error) {
	s := &Supervised{b: b, p: p, obs: b.observer(p), slow: &lake.SlowTables{}}
	if _, err := b.build(ctx, p, s.obs, reading{}); err != nil {
		return nil, err
	}
	var err error
	s.control, err = p.OpenControl(ctx)
	return s, err
}

// ControlTable is the table below which it lies what people say of the pipeline: its table. Of one with {topic} in it,
// "_pipeline" stands in that place, which is no table.
func (p *Pipeline) ControlTable() string {
	return p.fill(p.TargetTable(), "_pipeline")
}

// OpenControl opens the store in which it lies what people say of the pipeline.
func (p *Pipeline) OpenControl(ctx context.Context) (store.Store, error) {
	return p.Project.OpenTable(ctx, p.ControlTable())
}

// TopicOfTable is the topic whose records go to a table of the pipeline, "" where all go to the only one, and the name under
// which the pipeline knows the table; of a database, what stands for the table in that name. Errors: *freshet.Error for a table
// that is none of its.
func (p *Pipeline) TopicOfTable(table string) (topic, name string, err error) {
	target := p.TargetTable()
	topic, found, err := p.matchTable(target, table)
	if err != nil {
		return "", "", err
	}
	if found {
		return topic, p.fill(target, topic), nil
	}
	return "", "", &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: p.FullName(),
		Msg: fmt.Sprintf("the pipeline writes to %s, and its records to no table %s of their own", target, table),
		Fix: "name a table that takes a topic, or a table of the database, of its own; what one partition feeds goes on, or waits, together"}
}

// matchTable reports whether the table is one of the pattern, in which {topic} may stand, or {schema} and {table}, and of which
// topic that the pipeline reads, or what stands for them: "" where all go to the only one.
func (p *Pipeline) matchTable(pattern, table string) (topic string, ok bool, err error) {
	const mark = "FRESHETTOPIC"
	wanted, err := p.Project.TableURL(table)
	if err != nil {
		return "", false, err
	}
	url, err := p.Project.TableURL(p.fill(pattern, mark))
	if err != nil {
		return "", false, err
	}
	before, after, several := strings.Cut(url, mark)
	if !several {
		return "", wanted == url, nil
	}
	topic, starts := strings.CutPrefix(wanted, before)
	topic, ends := strings.CutSuffix(topic, after)
	return topic, starts && ends && topic != "" && p.reads(topic), nil
}

// reads reports whether the pipeline reads the topic, or may read a table of a database that is called so in the lake.
func (p *Pipeline) reads(topic string) bool {
	if p.Source.Postgres != nil {
		return p.mayRead(topic)
	}
	k := p.kafka()
	for _, t := range k.Topics {
		if t.Value == topic {
			return true
		}
	}
	return k.Pattern.Value != "" && kafka.Topics{Pattern: k.Pattern.Value}.Matches(topic)
}

// held is what of a pipeline people hold back.
type held struct {
	all    string     // why nothing runs; "": something does
	topics []string   // that are not read
	tables []string   // of those topics
	parked []string   // tables whose changes are parked
	hole   *lake.Hole // that is not repaired yet; nil: there is none
	why    string     // for people, of tables
}

func (h held) same(other held) bool {
	return h.all == other.all && slices.Equal(h.topics, other.topics) && slices.Equal(h.parked, other.parked) &&
		h.why == other.why && (h.hole == nil) == (other.hole == nil)
}

// reading is how the pipeline reads then.
func (h held) reading() reading {
	r := reading{except: h.topics, leftOut: h.tables, parked: map[string]bool{}, torn: h.hole != nil}
	for _, table := range h.parked {
		r.parked[table] = true
	}
	return r
}

// held is what the control says of this pipeline.
func (p *Pipeline) held(c *lake.Control) held {
	h := held{hole: c.Hole}
	if c.Paused != nil {
		h.all = "paused " + c.Paused.String()
	}
	var whys []string
	for table, t := range c.Tables {
		why := ""
		switch {
		case t.Resync != nil: // and neither it nor its change log moves on
			why = fmt.Sprintf("being loaded again by %s since %s", t.Resync.By, t.Resync.Since.UTC().Format(time.RFC3339))
		case t.Paused != nil:
			why = "paused " + t.Paused.String()
		default:
			continue
		}
		if p.Source.Postgres != nil || t.Resync == nil && t.Paused.Park { // all tables of a database share its log
			if name, err := p.KnownTable(table); err == nil {
				h.parked = append(h.parked, p.heldWith(name, t.Resync != nil)...)
				whys = append(whys, name+" "+why+" (its changes are parked)")
			}
			continue
		}
		topic, name, err := p.TopicOfTable(table)
		switch {
		case err != nil: // the file says something else by now
		case topic == "" && h.all == "":
			h.all = why
		case topic != "":
			h.topics, h.tables = append(h.topics, topic), append(h.tables, name)
			if t := p.Target.Delta; t.hasLog() {
				h.tables = append(h.tables, p.changeLogOf(name))
			}
			whys = append(whys, name+" "+why)
		}
	}
	sort.Strings(h.topics)
	sort.Strings(h.tables)
	sort.Strings(h.parked)
	h.parked = slices.Compact(h.parked)
	sort.Strings(whys)
	h.why = strings.Join(whys, "; ")
	if names := p.kafka().Topics; h.all == "" && len(names) > 0 && len(h.topics) >= len(names) {
		h.all = h.why
	}
	return h
}

// heldWith is a table with what is held back as long as it is: while it is loaded again, its change log.
func (p *Pipeline) heldWith(table string, resync bool) []string {
	if resync && p.Target.Delta.hasLog() {
		return []string{table, p.changeLogOf(table)}
	}
	return []string{table}
}

// bounded reports whether a run ends by itself.
func (s *Supervised) bounded() bool { return s.b.opts.Bounded || s.p.Trigger == "once" }

// Run runs the pipeline as freshet.Pipeline does, but while it is held back. A run that would end by itself ends when all
// of it is.
func (s *Supervised) Run(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	for {
		h := s.now()
		s.tell(h)
		if h.all != "" {
			if s.bounded() || !s.wait(ctx, h) {
				s.state("stopped")
				return nil
			}
			continue
		}
		again, err := s.run(ctx, h)
		if err != nil || !again {
			return err
		}
	}
}

func (s *Supervised) state(state string) {
	if s.obs.State != nil {
		s.obs.State(state)
	}
}

// tell says what is held back.
func (s *Supervised) tell(h held) {
	why := h.all
	if why == "" {
		why = h.why
	}
	if s.obs.Paused != nil {
		s.obs.Paused(why)
	}
	if h.all != "" {
		s.state("paused")
	}
	if h.hole != nil {
		s.b.opts.Logger.Warn("a hole in the log is being repaired: no cuts are recorded until it is", "pipeline", s.p.FullName(), "hole", h.hole)
	}
	if why != "" {
		s.b.opts.Logger.Info("held back", "pipeline", s.p.FullName(), "why", why)
	}
}

// now is what is held back as far as is known.
func (s *Supervised) now() held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.p.held(s.said)
}

// controlPatience is how long is waited for what people say.
const controlPatience = 30 * time.Second

// look reads what people say. An outage of the store is not waited out: the last that was said holds.
func (s *Supervised) look(ctx context.Context) error {
	s.mu.Lock()
	before := s.said
	s.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	said, err := lake.ReadControl(bounded, s.control, s.p.App, before)
	switch {
	case err == nil:
	case bounded.Err() != nil || before != nil || store.Retryable(err):
		s.b.opts.Logger.Warn("cannot tell whether it is paused", "pipeline", s.p.FullName(), "error", err)
		if said = before; said == nil {
			said = &lake.Control{}
		}
	default:
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = said
	return nil
}

// wait waits until something else is held back than h. It reports false when ctx ends.
func (s *Supervised) wait(ctx context.Context, h held) bool {
	ticker := time.NewTicker(s.b.opts.ControlEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
		if err := s.look(ctx); err == nil && !s.now().same(h) {
			return true
		}
		s.note(ctx)
	}
}

// note has what is said of the pipeline tell which tables are slow in this process, for whoever lists or describes it. It is
// tried again at the next look.
func (s *Supervised) note(ctx context.Context) {
	host, err := os.Hostname()
	if err != nil {
		return
	}
	slow := s.slow.Pauses(host)
	s.mu.Lock()
	said := s.said
	s.mu.Unlock()
	if said == nil {
		return
	}
	told := 0
	for name, t := range said.Tables {
		if t.Slow == nil || t.Slow.By != host {
			continue
		}
		if is, ok := slow[name]; !ok || is != *t.Slow {
			told = -1 // there is something to take back
			break
		}
		told++
	}
	if told == len(slow) {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, s.b.opts.ControlEvery)
	defer cancel()
	said, err = lake.ChangeControl(bounded, s.control, s.p.App, func(c *lake.Control) error {
		for name, t := range c.Tables {
			if t.Slow != nil && t.Slow.By == host {
				t.Slow = nil
				c.Tables[name] = t
			}
		}
		for name, is := range slow {
			t := c.Tables[name]
			t.Slow = &is
			c.Tables[name] = t
		}
		return nil
	})
	if err != nil {
		s.b.opts.Logger.Debug("cannot tell which tables are slow", "pipeline", s.p.FullName(), "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = said
}

// errHeld is why a run was ended that is to go on in another way.
var errHeld = errors.New("people say otherwise")

// run runs the pipeline until it ends, or until something else is held back than h, of which it reports true.
func (s *Supervised) run(ctx context.Context, h held) (again bool, err error) {
	how := h.reading()
	how.slow = s.slow
	pipe, err := s.b.build(ctx, s.p, s.obs, how)
	if err != nil {
		return false, err
	}
	running, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if s.wait(running, h) {
			stop(errHeld)
		}
	})
	if s.compares(h.hole) {
		watching.Go(func() { s.compare(running, h.hole) })
	}
	err = pipe.Run(running)
	again = errors.Is(context.Cause(running), errHeld)
	stop(nil)
	watching.Wait()
	return again, err
}
