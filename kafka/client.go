package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
)

// connect makes the client, which lives as long as ctx. It joins the group in the background; partitions are
// taken on once ready is closed.
func (s *Source) connect(ctx context.Context) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.SeedBrokers(s.brokers...),
		kgo.ClientID(s.o.ClientID),
		kgo.SoftwareNameAndVersion("freshet", "1"),
		kgo.WithHooks(&s.outage, &s.budget),
		kgo.WithPools(&s.budget),
		kgo.DisableClientMetrics(),
		kgo.DialTimeout(min(5*time.Second, s.o.ConnectTimeout)),
		kgo.MetadataMaxAge(s.o.MetadataAge),
		kgo.MetadataMinAge(min(250*time.Millisecond, s.o.MetadataAge)),
		kgo.RetryBackoffFn(backoff),
		// It bounds how long a partition that was just taken on, or sought, waits for the fetch under way to
		// return.
		kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.FetchMaxBytes(firstFetch),
		kgo.FetchMaxPartitionBytes(firstFetch),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(),
	}
	if !s.o.ReadUncommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	secure, err := s.secureOpts()
	if err != nil {
		return nil, err
	}
	opts = append(opts, secure...)
	if len(s.o.Partitions) == 0 {
		opts = append(opts, s.groupOpts()...)
	}
	return kgo.NewClient(opts...)
}

// backoff is short at first, since most outages are.
func backoff(strike int) time.Duration {
	return min(50*time.Millisecond<<min(strike, 6), 2*time.Second)
}

func (s *Source) secureOpts() ([]kgo.Opt, error) {
	var opts []kgo.Opt
	switch {
	case s.o.Dial != nil:
		opts = append(opts, kgo.Dialer(s.o.Dial))
	case s.o.TLS != nil:
		c, err := s.o.TLS.Config()
		if err != nil {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: s.place(),
				Msg: "tls", Err: err}
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	}
	if s.o.SASL != nil {
		if err := s.o.SASL.check(); err != nil {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: s.place(),
				Msg: "sasl", Err: err}
		}
		opts = append(opts, kgo.SASL(s.o.SASL.mechanism()))
	}
	return opts, nil
}

func (s *Source) groupOpts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(s.o.Group),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(),
		// Polls and callbacks exclude each other, so that what was polled is given to the lanes that were ours
		// then.
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(s.o.SessionTimeout),
		// A rebalance need not wait much longer than the group waits for a sign of life, since giving partitions up
		// takes half of that at most. It must be longer, though: it is also how long the client waits for the
		// leader to share out the partitions, and of a leader that is dead the group learns by the session timeout.
		kgo.RebalanceTimeout(s.o.SessionTimeout * 3 / 2),
		kgo.HeartbeatInterval(min(time.Second, s.o.SessionTimeout/3)),
		kgo.OnPartitionsAssigned(s.onAssigned),
		kgo.OnPartitionsRevoked(s.onRevoked),
		kgo.OnPartitionsLost(s.onLost),
		kgo.AdjustFetchOffsetsFn(s.onOffsets),
	}
	if s.topics.Pattern != "" {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(s.topics.anchored()),
			kgo.ConsumeExcludeTopics(s.topics.excluded()...))
	} else {
		opts = append(opts, kgo.ConsumeTopics(s.topics.Names...))
	}
	if s.o.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(s.o.InstanceID))
	}
	if s.o.ServerSideBalancer {
		// A broker that cannot do it lets the client fall back to the classic protocol.
		opts = append(opts, kgo.ServerSideBalancer())
	}
	return opts
}

// find waits until a broker answers, and returns the topics to be read.
func (s *Source) find(ctx context.Context) (map[string]topic, error) {
	trying, cancel := context.WithTimeout(ctx, s.o.ConnectTimeout)
	defer cancel()
	stop := s.outage.onRefused(cancel)
	defer stop()
	var found map[string]topic
	err := s.waitOut(trying, "describe the topics", func() (err error) {
		found, err = s.matching(trying)
		return err
	})
	var known *freshet.Error
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case s.outage.refusal() != nil:
		return nil, s.refusedError("let us in", s.outage.refusal())
	case errors.As(err, &known):
		return nil, err
	default:
		return nil, s.unreachableError(s.o.ConnectTimeout, s.outage.last())
	}
	if err := s.missing(ctx, found); err != nil {
		return nil, err
	}
	if err := s.checkOffsets(found); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atOpen = map[string]bool{}
	for name, t := range found {
		s.known[name], s.atOpen[name] = t, true
	}
	if len(found) == 0 {
		s.joined = true // there is no group to join yet
		s.log.Info("no topic matches the pattern yet", "pattern", s.topics.Pattern)
	}
	return found, nil
}

// checkOffsets returns an error when a start is given for a partition that its topic does not have.
func (s *Source) checkOffsets(found map[string]topic) error {
	for name, offsets := range s.o.Start.Offsets {
		t, ok := found[name]
		for n := range offsets {
			if _, there := t.leaders[n]; ok && !there {
				return noPartitionError(t, n)
			}
		}
	}
	return nil
}

// topicAppears is how long a topic that was named may not be there before it is said to be missing: one that was
// made a moment ago is known to a broker only once that has read of it in the cluster's log.
const topicAppears = 3 * time.Second

// missing returns an error when a topic that was named is not there, nor within topicAppears.
func (s *Source) missing(ctx context.Context, found map[string]topic) error {
	for until := time.Now().Add(topicAppears); ; {
		absent := ""
		for _, name := range s.topics.Names {
			if _, ok := found[name]; !ok {
				absent = name
			}
		}
		if absent == "" {
			return nil
		}
		if time.Now().After(until) {
			all, err := s.describe(ctx, nil)
			if err != nil {
				return err
			}
			var there []string
			for name := range all {
				there = append(there, name)
			}
			return s.noTopicError(absent, there)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		again, err := s.describe(ctx, s.topics.Names)
		if err != nil {
			return err
		}
		for name, t := range again {
			found[name] = t
		}
	}
}

// silence is how long no broker must have answered for us to be waiting: while some do, fetches and
// heartbeats are answered several times a second.
const silence = time.Second

// outage hears of connections that are made and lost, and tells a person once an outage. It is a hook of the
// client.
type outage struct {
	s       *Source
	mu      sync.Mutex
	down    map[string]bool // brokers that could not be reached since they last were
	heard   time.Time       // when a broker last answered anything
	waiting bool            // no broker does
	failing map[string]bool // what was told to be tried again since
	err     error
	no      error  // the refusal of a broker
	refused func() // called on it
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (o *outage) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if o.s.closing.Load() || errors.Is(err, context.Canceled) {
		return
	}
	addr := net.JoinHostPort(meta.Host, itoa(meta.Port))
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		if o.down[addr] {
			delete(o.down, addr)
			o.s.log.Info("broker reached again", "broker", addr)
		}
		o.hear()
		return
	}
	o.err = err
	what := "connect to " + addr
	o.s.retry(what, err)
	if o.failing == nil {
		o.failing = map[string]bool{}
	}
	o.failing[what] = true
	if refused(err) && o.refused != nil {
		o.no = err
		o.refused()
		return
	}
	if o.down == nil {
		o.down = map[string]bool{}
	}
	if !o.down[addr] {
		o.down[addr] = true
		o.s.log.Warn("broker cannot be reached, trying again", "broker", addr, "error", err)
	}
	if time.Since(o.heard) > silence && !o.waiting {
		o.waiting = true
		o.s.state("waiting")
	}
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (o *outage) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e2e kgo.BrokerE2E) {
	if e2e.Err() == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.hear()
	}
}

// hear notes that a broker answers. mu is held.
func (o *outage) hear() {
	o.heard = time.Now()
	// While another broker answers, whatever the lost one led is led by others, or told of lane by lane.
	for what := range o.failing {
		o.s.recovered(what)
	}
	clear(o.failing)
	if o.waiting {
		o.waiting = false
		o.s.state("running")
	}
}

// onRefused has call called when a broker refuses us, until stop.
func (o *outage) onRefused(call func()) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = call
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.refused = nil
	}
}

func (o *outage) refusal() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.no
}

func (o *outage) last() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// any reports whether a broker cannot be reached.
func (o *outage) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.down) > 0
}

func (s *Source) state(state string) {
	if s.o.Observer.State != nil {
		s.o.Observer.State(state)
	}
}
