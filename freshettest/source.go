package freshettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
)

// SourceOptions tune a Source. The zero value of each field means its default.
type SourceOptions struct {
	// Seed decides how records are cut into batches and which lane comes next.
	Seed uint64
	// MaxBatch is how many records a batch holds at most. Default 5.
	MaxBatch int
	// Bounded makes Next end where the lanes ended at Open.
	Bounded bool
	// TellEnds has End know where lanes end.
	TellEnds bool
	// Lanes are the lanes to read. Default: all. Assign and Revoke change them.
	Lanes []freshet.Lane
	// Table names the table of a lane. Default: "t" for all.
	Table func(freshet.Lane) string
	// Fail, if it is not nil, is asked by each Next; its error is what Next returns.
	Fail func() error
}

// Source reads an Origin. Its methods may be called as freshet.Source says; Assign, Revoke and Acked by any
// goroutine.
type Source struct {
	origin *Origin
	opts   SourceOptions

	mu    sync.Mutex
	rng   *rand.Rand
	down  freshet.Downstream
	pos   map[freshet.Lane]int64 // of the lanes that it reads
	end   map[freshet.Lane]int64 // of a bounded source
	acked map[string]freshet.Progress
	moved chan struct{} // closed when the lanes change
	rewon int
}

var _ freshet.Source = (*Source)(nil)

// NewSource returns a source that reads the origin.
func NewSource(o *Origin, opts SourceOptions) *Source {
	if opts.MaxBatch <= 0 {
		opts.MaxBatch = 5
	}
	if opts.Table == nil {
		opts.Table = func(freshet.Lane) string { return "t" }
	}
	if opts.Lanes == nil {
		opts.Lanes = o.Lanes()
	}
	return &Source{origin: o, opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 1)),
		pos: map[freshet.Lane]int64{}, end: map[freshet.Lane]int64{},
		acked: map[string]freshet.Progress{}, moved: make(chan struct{})}
}

// Open makes the tables and asks where the lanes go on.
func (s *Source) Open(ctx context.Context, down freshet.Downstream) error {
	s.mu.Lock()
	s.down = down
	for _, l := range s.opts.Lanes {
		s.end[l] = s.origin.last(l)
	}
	s.mu.Unlock()
	return s.Assign(ctx, s.opts.Lanes)
}

// Assign makes the source read the lanes, too.
func (s *Source) Assign(ctx context.Context, lanes []freshet.Lane) error {
	for table, of := range s.byTable(lanes) {
		if err := s.assign(ctx, table, of); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) assign(ctx context.Context, table string, lanes []freshet.Lane) error {
	schema, err := s.down.Schema(ctx, table)
	if err != nil {
		return err
	}
	if schema == nil {
		if err := s.down.Ensure(ctx, table, Schema()); err != nil {
			return err
		}
		if _, err := s.down.Schema(ctx, table); err != nil {
			return err
		}
	}
	p, err := s.down.Resume(ctx, table, lanes)
	if err != nil {
		return err
	}
	starts := freshet.Progress{}
	for _, l := range lanes {
		if _, ok := p[l]; !ok {
			starts[l] = -1
		}
	}
	if len(starts) > 0 {
		begun, err := s.down.Start(ctx, table, starts)
		if err != nil {
			return err
		}
		maps.Copy(p, begun)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lanes {
		seq, ok := p[l]
		if !ok {
			return fmt.Errorf("neither Resume nor Start says where %s of table %s goes on", l, table)
		}
		s.pos[l] = seq
	}
	s.announce()
	return nil
}

// announce wakes Next. The lock is held.
func (s *Source) announce() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// Revoke stops reading the lanes, and has what was read of them committed.
func (s *Source) Revoke(ctx context.Context, lanes []freshet.Lane) error {
	s.mu.Lock()
	for _, l := range lanes {
		delete(s.pos, l)
	}
	s.announce()
	s.mu.Unlock()
	for table, of := range s.byTable(lanes) {
		if err := s.down.Release(ctx, table, of); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) byTable(lanes []freshet.Lane) map[string][]freshet.Lane {
	tables := map[string][]freshet.Lane{}
	for _, l := range lanes {
		tables[s.opts.Table(l)] = append(tables[s.opts.Table(l)], l)
	}
	return tables
}

// Next returns a batch of a lane that has records, waiting for one.
func (s *Source) Next(ctx context.Context) (*freshet.Batch, error) {
	for {
		if s.opts.Fail != nil {
			if err := s.opts.Fail(); err != nil {
				return nil, err
			}
		}
		b, grown, moved, ended := s.next()
		switch {
		case b != nil:
			return b, nil
		case ended:
			return nil, io.EOF
		}
		select {
		case <-grown:
		case <-moved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Source) next() (b *freshet.Batch, grown, moved <-chan struct{}, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := slices.SortedFunc(maps.Keys(s.pos), func(a, b freshet.Lane) int { return cmpLane(a, b) })
	s.rng.Shuffle(len(lanes), func(i, j int) { lanes[i], lanes[j] = lanes[j], lanes[i] })
	ended = s.opts.Bounded
	for _, l := range lanes {
		var rs []record
		rs, grown = s.origin.after(l, s.pos[l], 1+s.rng.IntN(s.opts.MaxBatch))
		if s.opts.Bounded {
			rs = slices.DeleteFunc(rs, func(r record) bool { return r.seq > s.end[l] })
		}
		if len(rs) > 0 {
			b = s.batch(l, rs)
			s.pos[l] = b.Last
			return b, nil, nil, false
		}
	}
	return nil, grown, s.moved, ended
}

func cmpLane(a, b freshet.Lane) int {
	switch x, y := a.String(), b.String(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func (s *Source) batch(l freshet.Lane, rs []record) *freshet.Batch {
	b := &freshet.Batch{Table: s.opts.Table(l), Lane: l, After: s.pos[l], Last: rs[len(rs)-1].seq,
		ReadAt: time.Now(), Bytes: int64(len(rs))}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, Schema())
	defer rows.Release()
	for _, r := range rs {
		if r.at.After(b.Newest) {
			b.Newest = r.at
		}
		switch r.kind {
		case GoodRecord:
			rows.Field(0).(*array.StringBuilder).Append(l.String())
			rows.Field(1).(*array.Int64Builder).Append(r.seq)
			b.Seqs = append(b.Seqs, r.seq)
			b.Records = append(b.Records, &freshet.Record{Raw: fmt.Appendf(nil, "%d", r.seq), Time: r.at})
			stamp := freshet.Stamp{Ordinal: -1}
			if !r.at.IsZero() {
				stamp.Committed = r.at.UnixMicro()
			}
			b.Stamps = append(b.Stamps, stamp)
		case BadRecord:
			b.Rejects = append(b.Rejects, freshet.Reject{Seq: r.seq, Code: freshet.CodeMalformed, Step: "decode",
				Message: "bad on purpose", Record: freshet.Record{Raw: fmt.Appendf(nil, "bad %d", r.seq)}})
		}
	}
	if len(b.Seqs) > 0 {
		b.Rows = rows.NewRecordBatch()
	}
	if b.Newest.IsZero() {
		b.Newest = time.Now() // no record says when it was committed
	}
	return b
}

// Rewind asks anew where the table's lanes go on.
func (s *Source) Rewind(ctx context.Context, table string) error {
	s.mu.Lock()
	s.rewon++
	var lanes []freshet.Lane
	for l := range s.pos {
		if s.opts.Table(l) == table {
			lanes = append(lanes, l)
		}
	}
	s.mu.Unlock()
	if len(lanes) == 0 {
		return nil
	}
	return s.assign(ctx, table, lanes)
}

// Rewinds is how often Rewind was called.
func (s *Source) Rewinds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rewon
}

// Ack notes the progress.
func (s *Source) Ack(_ context.Context, table string, p freshet.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked[table] == nil {
		s.acked[table] = freshet.Progress{}
	}
	maps.Copy(s.acked[table], p)
	return nil
}

// Acked is the progress that was acknowledged last.
func (s *Source) Acked(table string) freshet.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.acked[table])
}

// End is the last seq of a lane that the source reads; of a source that does not tell, it is never reached.
func (s *Source) End(_ string, l freshet.Lane) (last int64, known bool) {
	s.mu.Lock()
	_, ours := s.pos[l]
	s.mu.Unlock()
	if !s.opts.TellEnds {
		return math.MaxInt64, ours
	}
	return s.origin.last(l), ours
}

// Close ends it.
func (s *Source) Close(context.Context) error { return nil }

// ErrCrash is what every call returns once the process has died.
var ErrCrash = errors.New("the process has died")
