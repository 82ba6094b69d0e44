package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

var errOutage = errors.New("the registry does not answer")

// needy is the format pairs, but for the payload "?", for which it would need something that is not there.
type needy struct{ pairs }

func (needy) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	d, err := pairs{}.NewDecoder(schema)
	return needyDecoder{d}, err
}

type needyDecoder struct{ freshet.Decoder }

func (d needyDecoder) Append(p freshet.Payload) (int, error) {
	if string(p.Value) == "?" {
		return 0, errOutage
	}
	return d.Decoder.Append(p)
}

func TestSource_DecoderFails_NothingOfTheJobGetsIntoAnother(t *testing.T) {
	b := newBroker(t)
	b.topic("orders", 6)
	for p := range int32(6) {
		if p%2 == 0 {
			b.put("orders", p, "n=1", "n=2", "?")
		} else {
			b.put("orders", p, "n=10", "n=11")
		}
	}
	for run := range 30 { // what Next finds first is chance
		k := newSink()
		src, err := kafka.NewSource(b.ListenAddrs(), kafka.Topics{Names: []string{"orders"}}, kafka.RouteTo("t"),
			needy{}, &kafka.Options{Group: fmt.Sprint("app", run), Workers: 1, Schema: numbers, Bounded: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.copy(t).run(t.Context(), src); !errors.Is(err, errOutage) {
			t.Fatalf("got error %v, want %v", err, errOutage)
		}
		for _, row := range k.tables["t"].rows {
			if !strings.HasSuffix(row, "@0 n=10") && !strings.HasSuffix(row, "@1 n=11") {
				t.Fatalf("got the row %q, want none of the jobs that failed", row)
			}
		}
	}
}

// slowAnswer is a copy whose answer to one Resume takes its time.
type slowAnswer struct {
	*copyOf
	slow    atomic.Bool   // the next one does
	reached chan struct{} // closed when it has begun
	leave   chan struct{} // closed when it may end
}

func (s *slowAnswer) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	found, err := s.copyOf.Resume(ctx, table, lanes)
	if s.slow.CompareAndSwap(true, false) {
		close(s.reached)
		<-s.leave
		s.own(table, found)
	}
	return found, err
}

// follow is what run does, without an end.
func (s *slowAnswer) follow(ctx context.Context, src *kafka.Source) error {
	if err := src.Open(ctx, s); err != nil {
		return err
	}
	for {
		b, err := src.Next(ctx)
		if err != nil {
			return err
		}
		s.take(b)
		for _, table := range s.commit() {
			if err := src.Rewind(ctx, table); err != nil {
				return err
			}
		}
	}
}

// A process that slept for too long finds its table ahead of it, and loses its session: it reads the table
// again and takes its partitions on again, both at once.
func TestSource_SessionLostWhileReadingAgain_GoesOn(t *testing.T) {
	b := newBroker(t)
	b.topic("orders", 1)
	b.put("orders", 0, "n=0", "n=1", "n=2")
	k := newSink()
	s := &slowAnswer{copyOf: k.copy(t), reached: make(chan struct{}), leave: make(chan struct{})}
	src := b.source("orders", func(o *kafka.Options) { o.Schema = numbers })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.follow(ctx, src) }()
	defer func() {
		cancel()
		<-done
		_ = src.Close(context.Background())
	}()
	at := func(seq int64) func(*sinkTable) bool {
		return func(t *sinkTable) bool {
			found := int64(-1)
			if t != nil {
				for _, p := range t.progress {
					found = p
				}
			}
			return found >= seq
		}
	}
	k.wait(t, "t", at(2))

	k.mu.Lock()
	for l := range k.tables["t"].progress {
		k.tables["t"].progress[l] = 1 // somebody has set it
	}
	k.mu.Unlock()
	s.slow.Store(true)
	b.put("orders", 0, "n=3")
	<-s.reached
	lost := make(chan struct{})
	b.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		defer close(lost)
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	<-lost
	answer := sync.OnceFunc(func() { close(s.leave) })
	anyway := time.AfterFunc(3*time.Second, answer) // unless the lane goes on before
	defer anyway.Stop()
	k.wait(t, "t", at(3))
	answer()
	b.put("orders", 0, "n=4")
	k.wait(t, "t", at(4))
}
