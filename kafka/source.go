package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/freshet-io/freshet"
)

// Source reads topics. It implements freshet.Source; make one with NewSource, use it for one run.
type Source struct {
	brokers []string
	topics  Topics
	route   func(topic string) string
	format  freshet.Format
	o       Options
	tells   bool // rows have columns that tell where they came from
	// connected is called by Open once the broker answers; nil: nothing is.
	connected func(ctx context.Context) error
	log       *slog.Logger

	down   freshet.Downstream
	client *kgo.Client
	budget budget
	outage outage

	life    context.Context // from Open to Close: the goroutines'
	end     context.CancelFunc
	hangUp  context.CancelFunc // ends the client at once
	wg      sync.WaitGroup
	ready   chan struct{} // closed when Open is through: partitions may be taken on
	closing atomic.Bool

	queue    chan *job     // the reader's jobs in order, to Next
	work     chan *job     // the same jobs, to the workers
	room     chan struct{} // has one element when the reader should look again whether there is room
	inflight atomic.Int64  // bytes of payload that were polled and not yet returned by Next
	recheck  chan struct{} // has one element when topics should be looked at again
	acked    chan struct{} // has one element when ackable is not empty

	settling chan struct{}   // holds an element while lanes are asked for and made ours, or sought
	atOpen   map[string]bool // the topics that were there when we opened
	since    *time.Time      // under settling: when the first table heard of us, before this run; zero: none did

	failed  chan struct{} // closed when err is set
	failure sync.Once
	err     error

	joining *time.Timer // tells that the group takes its time

	mu       sync.Mutex
	tables   map[string]*table
	lanes    map[partition]*lane // those that are ours
	known    map[string]topic    // what the broker said last
	ends     map[partition]span  // bounded: what the logs held then
	joined   bool                // the group has told us what is ours, be it nothing
	taking   bool                // lanes are being taken on
	seeks    []seek              // lanes to be read from elsewhere
	rewinds  map[string]bool     // tables to be read again
	inferred []*table            // those whose inference has ended, for the reader
	rewound  chan struct{}       // has one element when rewinds is not empty
	ackable  map[partition]int64 // offsets to be committed for lag tools
	stopPoll context.CancelFunc  // ends the poll that is under way
	awake    bool                // the next poll is to return at once

	epoch atomic.Int64 // how many rewinds were asked for
	head  *job         // Next's: the job at the head of the queue
	atEnd bool         // Next's: io.EOF was returned, and nothing was rewound since
}

// seek is a lane that is to be read from next on.
type seek struct {
	old  *lane
	next int64
	same bool // only if the lane has not been sought since
}

// lane is a partition that is ours, from one position on. When it is read from elsewhere, another lane takes
// its place.
type lane struct {
	freshet.Lane
	partition
	table *table
	taken *lane        // the lane as it was when its partition became ours: itself, or what it took the place of
	start int64        // the first offset wanted of it
	log   atomic.Int64 // where the broker's log ended when we last heard of it; the reader sets it
	gone  atomic.Bool  // it is no longer ours, or is read from elsewhere: nothing of it is delivered any more

	// The reader's.
	next    int64 // the next offset to take
	end     int64 // bounded: where it ends, exclusive; else -1
	strikes int   // errors since something was read
	empty   int   // how often in a row the broker had nothing, although the log goes on
	ailing  bool  // reading failed, and nothing was read since
}

// done reports whether a bounded lane has been read to its end.
func (l *lane) done() bool { return l.end >= 0 && l.next >= l.end }

// NewSource returns a source of the topics that sends what it reads of a topic to the table that route names.
// Brokers are HOST:PORT. Errors: all faults of the arguments, joined.
func NewSource(brokers []string, topics Topics, route func(topic string) string, format freshet.Format,
	o *Options) (*Source, error) {
	var none error
	if len(brokers) == 0 {
		none = errors.New("brokers: found none, wanted at least one HOST:PORT")
	}
	if err := errors.Join(none, topics.validate(), o.Validate()); err != nil {
		return nil, err
	}
	s := &Source{
		brokers: brokers, topics: topics, route: route, format: format, o: o.withDefaults(),
		ready: make(chan struct{}), settling: make(chan struct{}, 1), room: make(chan struct{}, 1),
		recheck: make(chan struct{}, 1),
		acked:   make(chan struct{}, 1), rewound: make(chan struct{}, 1),
		failed: make(chan struct{}),
		queue:  make(chan *job, 4096), work: make(chan *job, 4096),
		tables: map[string]*table{}, lanes: map[partition]*lane{}, known: map[string]topic{},
		rewinds: map[string]bool{}, ackable: map[partition]int64{},
	}
	s.log = s.o.Log.With("source", s.place())
	s.tells = len(s.o.Columns.fields()) > 0
	s.outage.s = s
	return s, nil
}

// Open connects, finds the topics, makes their tables if their columns are known, and begins to read. Errors:
// CodeSourceUnreachable, CodeSourceRefused, CodeNoTopic, those of Downstream. A pattern that matches nothing
// yet is none.
func (s *Source) Open(ctx context.Context, down freshet.Downstream) error {
	s.down = down
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	line, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	s.hangUp = hangUp
	client, err := s.connect(line)
	if err != nil {
		return err
	}
	s.client = client
	found, err := s.find(ctx)
	if err != nil {
		return err
	}
	if s.connected != nil {
		if err := s.connected(ctx); err != nil {
			return err
		}
	}
	if err := s.openTables(ctx, found); err != nil {
		return err
	}
	if s.o.Bounded {
		var all []partition
		for _, t := range found {
			all = append(all, t.partitions()...)
		}
		if s.ends, err = s.spans(ctx, all, !s.o.ReadUncommitted); err != nil {
			return err
		}
	}
	s.start()
	if len(s.o.Partitions) == 0 {
		s.joining = time.AfterFunc(s.o.SessionTimeout/joinShare, s.tellJoining)
		close(s.ready)
		return nil
	}
	err = s.takeByHand(ctx)
	close(s.ready)
	return err
}

// joinShare is the part of the session timeout after which it is told that the group has not let us in yet.
const joinShare = 9

// tellJoining tells why nothing comes after a crash: the group waits for the process that ended without leaving it.
func (s *Source) tellJoining() {
	s.mu.Lock()
	joined := s.joined
	s.mu.Unlock()
	if joined || s.life.Err() != nil || s.outage.any() {
		return
	}
	s.retry(s.session(), fmt.Errorf("the group has not let us in yet: it waits for a member that ended without leaving it, until that one's "+
		"session is over (session_timeout, here %s)", s.o.SessionTimeout))
	s.log.Info("the group has not let us in yet: a member that ended without leaving it is waited for until its session is over",
		"group", s.o.Group, "session_timeout", s.o.SessionTimeout)
}

// start starts the goroutines.
func (s *Source) start() {
	s.wg.Go(s.read)
	s.wg.Go(s.watch)
	s.wg.Go(s.rewindAll)
	s.wg.Go(s.ackAll)
	for range s.o.Workers {
		s.wg.Go(s.decodeAll)
	}
}

// openTables readies the tables of these topics, as far as their columns are known without a record.
func (s *Source) openTables(ctx context.Context, found map[string]topic) error {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := s.table(s.route(name)).ready(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Next returns the next batch. See freshet.Source.
func (s *Source) Next(ctx context.Context) (*freshet.Batch, error) {
	if s.atEnd {
		return nil, io.EOF
	}
	for {
		if s.head == nil {
			select {
			case <-s.failed:
				return nil, s.err
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case s.head = <-s.queue:
			}
		}
		select {
		case <-s.failed:
			return nil, s.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.head.done:
		}
		b, eof := s.takeHead()
		switch {
		case eof:
			s.atEnd = true
			return nil, io.EOF
		case b != nil:
			return b, nil
		}
	}
}

// takeHead takes the next batch out of the job at the head, nil if it has no more, which ends the job.
func (s *Source) takeHead() (b *freshet.Batch, eof bool) {
	j := s.head
	if j.lane == nil {
		s.head = nil
		return nil, j.epoch == s.epoch.Load()
	}
	if len(j.batches) > 0 && !j.lane.gone.Load() {
		b, j.batches = j.batches[0], j.batches[1:]
	}
	if len(j.batches) == 0 || b == nil {
		j.drop()
		s.head = nil
		s.inflight.Add(-j.bytes)
		signal(s.room)
	}
	return b, false
}

// Rewind has the lanes of the table read again from where the table stands. It returns at once: the asking
// and seeking goes on while Next waits, and its errors come from there.
func (s *Source) Rewind(_ context.Context, table string) error {
	s.epoch.Add(1)
	s.atEnd = false
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		if l.table.name == table {
			l.gone.Store(true)
		}
	}
	s.rewinds[table] = true
	signal(s.rewound)
	return nil
}

// Ack has the group's offsets follow, in the background, for tools that show its lag.
func (s *Source) Ack(_ context.Context, _ string, progress freshet.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, l := range s.lanes {
		if seq, ok := progress[l.Lane]; ok {
			s.ackable[p] = seq + 1
			signal(s.acked)
		}
	}
	return nil
}

// End is the last offset that the lane's partition had when the broker was heard of last.
func (s *Source) End(_ string, l freshet.Lane) (last int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.lanes {
		if have.Lane == l {
			return have.log.Load() - 1, true
		}
	}
	return 0, false
}

// holdBack has no more fetched of the lanes, or again.
func (s *Source) holdBack(lanes []freshet.Lane, hold bool) {
	if len(lanes) == 0 {
		return
	}
	names := map[string][]int32{}
	s.mu.Lock()
	for p, l := range s.lanes {
		if slices.Contains(lanes, l.Lane) {
			names[p.topic] = append(names[p.topic], p.n)
		}
	}
	s.mu.Unlock()
	if hold {
		s.client.PauseFetchPartitions(names)
	} else {
		s.client.ResumeFetchPartitions(names)
	}
}

// Close stops reading and leaves the group; ctx bounds the leaving.
func (s *Source) Close(ctx context.Context) error {
	s.closing.Store(true)
	if s.end == nil {
		return nil
	}
	s.end()
	if s.joining != nil {
		s.joining.Stop()
	}
	s.wg.Wait()
	for {
		select {
		case j := <-s.queue:
			j.drop()
			continue
		default:
		}
		break
	}
	if s.head != nil {
		s.head.drop()
	}
	if s.client == nil {
		return nil
	}
	s.leave(ctx)
	s.hangUp()
	s.client.Close()
	return nil
}

// joinPatience is how long leaving waits for a join that is under way. A join waits for the other members' next
// heartbeat; a member that goes away in the middle of it holds the group up until its session times out.
const joinPatience = 1500 * time.Millisecond

// leave leaves the group, or stays for a static member.
func (s *Source) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*joinPatience)
	defer cancel()
	s.client.AllowRebalance()
	left := make(chan error, 1) // the goroutine ends with the client, which is closed next
	go func() { left <- s.client.LeaveGroupContext(ctx) }()
	patience := time.NewTimer(joinPatience)
	defer patience.Stop()
	var err error
	select {
	case err = <-left:
	case <-patience.C:
		err = s.leaveByHand(ctx)
	}
	if err != nil {
		s.log.Info("did not leave the group: it notices when the session times out",
			"group", s.o.Group, "error", err)
	}
}

func (s *Source) leaveByHand(ctx context.Context) error {
	id, _ := s.client.GroupMetadata()
	if id == "" || s.o.InstanceID != "" {
		return nil
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = s.o.Group, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	req.Members = append(req.Members, member)
	_, err := req.RequestWith(ctx, s.client)
	return err
}

// fail ends the run with err, the first one.
func (s *Source) fail(err error) {
	s.failure.Do(func() {
		s.err = err
		close(s.failed)
	})
}

// retry tells of something that failed and is tried again.
func (s *Source) retry(what string, err error) {
	if s.o.Observer.Retry != nil {
		s.o.Observer.Retry(what, err)
	}
}

// recovered tells that what was told to retry is over.
func (s *Source) recovered(what string) {
	if s.o.Observer.Recovered != nil {
		s.o.Observer.Recovered(what)
	}
}

// putOff tells of something that failed, for which nothing waits until it is tried again.
func (s *Source) putOff(what string, err error) {
	s.retry(what, err)
	s.recovered(what)
}

// table is the table of this name, made if it is new.
func (s *Source) table(name string) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[name]
	if t == nil {
		t = &table{name: name}
		s.tables[name] = t
	}
	return t
}

// topic is what the broker last said of the topic.
func (s *Source) topic(name string) topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[name]
}

// nameOf is the name of the topic with this id.
func (s *Source) nameOf(id [16]byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.known {
		if t.raw == id {
			return name
		}
	}
	return ""
}

// lane makes the freshet.Lane of a partition.
func laneOf(t topic, n int32) freshet.Lane {
	return freshet.Lane{Origin: t.name, OriginID: t.id(), Name: fmt.Sprint(n)}
}

// partitionOf is the partition that a lane is of.
func partitionOf(l freshet.Lane) partition {
	n, _ := strconv.ParseInt(l.Name, 10, 32) // laneOf made it
	return partition{l.Origin, int32(n)}
}

// owned returns our lanes of the table, gone ones too.
func (s *Source) owned(t *table) []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lanes []*lane
	for _, l := range s.lanes {
		if l.table == t {
			lanes = append(lanes, l)
		}
	}
	return lanes
}

// signal puts the one element into a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

var _ freshet.Source = (*Source)(nil)
