package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

// hold keeps up to n batches back before each commit, so that a partition that moves has something to lose.
func (c *copyOf) hold(n int) *copyOf {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep = n
	return c
}

func (c *copyOf) gaveUp() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.released
}

// lagBook keeps what an observer is told of backlogs.
type lagBook struct {
	mu   sync.Mutex
	lags map[freshet.Lane]int64
}

func (l *lagBook) note(lane freshet.Lane, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lags == nil {
		l.lags = map[freshet.Lane]int64{}
	}
	l.lags[lane] = n
	if n < 0 {
		delete(l.lags, lane)
	}
}

func (l *lagBook) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lags)
}

func TestSource_SecondProcessJoins_TakesOverWithoutLossOrRepeat(t *testing.T) {
	for name, change := range map[string]func(*kafka.Options){
		"classic":     nil,
		"server side": func(o *kafka.Options) { o.ServerSideBalancer = true },
	} {
		t.Run(name, func(t *testing.T) {
			heartbeat := map[string]string{"group.consumer.heartbeat.interval.ms": "100"}
			b, k := newBroker(t, kfake.BrokerConfigs(heartbeat)), newSink()
			b.topic("orders", 4)
			want := b.fill("orders", 4, 100)
			var lags lagBook
			first, stop1 := b.follow(k, b.source("orders", func(o *kafka.Options) {
				o.Observer.Lag = lags.note
				if change != nil {
					change(o)
				}
			}))
			k.wait(t, "t", rows(400))
			_, stop2 := b.follow(k, b.source("orders", change))
			for round := 0; first.gaveUp() < 2 && round < 2000; round++ {
				want = append(want, b.fill("orders", 4, 5)...)
			}
			want = append(want, b.fill("orders", 4, 50)...)
			k.wait(t, "t", rows(len(want)))
			if n := lags.count(); n != 4-first.gaveUp() {
				t.Errorf("the first tells the backlog of %d lanes, want those of the %d that it kept", n, 4-first.gaveUp())
			}
			if err := stop1(); err != nil {
				t.Fatal(err)
			}
			want = append(want, b.fill("orders", 4, 50)...) // the second has all again
			k.wait(t, "t", rows(len(want)))
			if err := stop2(); err != nil {
				t.Fatal(err)
			}
			k.want(t, "t", want)
			if first.gaveUp() == 0 {
				t.Fatal("the first process was never asked to release a partition")
			}
		})
	}
}

func TestSource_TwoProcessesOnANewTopic_AgreeOnColumnsAndStarts(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 4)
	var stops []func() error
	for range 2 {
		_, stop := b.follow(k, b.source("orders", func(o *kafka.Options) { o.SampleRecords = 10 }))
		stops = append(stops, stop)
	}
	var want []string
	for i := range 200 {
		want = append(want, b.put("orders", int32(i%4), fmt.Sprintf("n=%d", i))...)
	}
	k.wait(t, "t", rows(200))
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	k.want(t, "t", want)
}

func TestSource_ProcessesComeAndGo_EachRowOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b, k := newBroker(t), newSink()
	b.topic("orders", 6)
	var want []string
	stops := map[int]func() error{}
	for step := range 16 {
		want = append(want, b.fill("orders", 6, 20)...)
		i := random.IntN(3)
		if stop := stops[i]; stop != nil {
			delete(stops, i)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		_, stops[i] = b.follow(k, b.source("orders", func(o *kafka.Options) {
			o.SessionTimeout = time.Second
			if step%2 == 0 {
				o.InstanceID = fmt.Sprintf("member-%d", i)
			}
		}))
		if random.IntN(2) == 0 {
			k.wait(t, "t", rows(len(want)/2))
		}
	}
	if len(stops) == 0 {
		_, stops[0] = b.follow(k, b.source("orders", nil))
	}
	k.wait(t, "t", rows(len(want)))
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	k.want(t, "t", want)
}

func TestSource_TwoBoundedProcesses_TogetherReadEverything(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 4)
	want := b.fill("orders", 4, 2000)
	errs := make(chan error)
	for range 2 {
		go func() { errs <- b.catchUp(k, "orders", nil) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	k.want(t, "t", want)
}

func TestSource_SamePartitionsByHand_TheTableDecides(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	want := b.fill("orders", 2, 300)
	byHand := func(o *kafka.Options) {
		o.Group = ""
		o.Partitions = map[string][]int32{"orders": {0, 1}}
	}
	first, stop1 := b.follow(k, b.source("orders", byHand))
	first.hold(3)
	_, stop2 := b.follow(k, b.source("orders", byHand))
	for range 30 {
		want = append(want, b.fill("orders", 2, 10)...)
	}
	k.wait(t, "t", rows(len(want)))
	for _, stop := range []func() error{stop1, stop2} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	k.want(t, "t", want)
}

func TestSource_BoundedByHand_ReadsThosePartitionsOnly(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	b.put("orders", 0, "n=1")
	want := b.put("orders", 1, "n=2", "n=3")
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.Partitions = map[string][]int32{"orders": {1}} })
	k.want(t, "t", want)
}

func TestSource_Ack_CommitsTheGroupsOffsets(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	b.fill("orders", 2, 10)
	b.mustCatchUp(k, "orders", nil)
	got, err := kadm.NewClient(b.Client).FetchOffsets(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		if o, ok := got.Lookup("orders", p); !ok || o.At != 10 {
			t.Fatalf("partition %d: got offset %d, want 10", p, o.At)
		}
	}
}

func TestSource_GroupOffsetsMoved_AreNotRead(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	want := b.fill("orders", 1, 10)
	b.mustCatchUp(k, "orders", nil)
	var o kadm.Offsets
	o.AddOffset("orders", 0, 99, -1)
	if err := kadm.NewClient(b.Client).CommitAllOffsets(t.Context(), "app", o); err != nil {
		t.Fatal(err)
	}
	want = append(want, b.put("orders", 0, "n=1")...)
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
}

func TestSource_Pattern_ATableForEachTopicAlsoForNewOnes(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("shop.orders", 1)
	b.topic("shop.items", 1)
	b.topic("workshop.orders.x", 1)
	orders, items := b.put("shop.orders", 0, "n=1"), b.put("shop.items", 0, "s=a")
	b.put("workshop.orders.x", 0, "n=9")
	_, stop := b.follow(k, b.sourceOf(kafka.Topics{Pattern: `shop\..*`}, kafka.RouteTo("t.{topic}"),
		func(o *kafka.Options) { o.Start.Latest = false }))
	k.wait(t, "t.shop.orders", rows(1))
	k.wait(t, "t.shop.items", rows(1))
	b.topic("shop.late", 2)
	late := b.put("shop.late", 1, "n=5")
	k.wait(t, "t.shop.late", rows(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t.shop.orders", orders)
	k.want(t, "t.shop.items", items)
	k.want(t, "t.shop.late", late)
	if len(k.tables) != 3 {
		t.Fatalf("got %d tables, want 3", len(k.tables))
	}
}

func TestSource_PatternMatchesNothingYet_Waits(t *testing.T) {
	b, k := newBroker(t), newSink()
	_, stop := b.follow(k, b.sourceOf(kafka.Topics{Pattern: `shop\..*`}, kafka.RouteTo("t"), nil))
	b.topic("shop.orders", 1)
	want := b.put("shop.orders", 0, "n=1")
	k.wait(t, "t", rows(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
}

func TestSource_SeveralTopicsIntoOneTable_AreLanesOfTheirOwn(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("a", 1)
	b.topic("b", 2)
	want := append(b.put("a", 0, "n=1"), b.put("b", 1, "n=2", "n=3")...)
	src := b.sourceOf(kafka.Topics{Names: []string{"a", "b"}}, kafka.RouteTo("t"), bounded)
	if err := k.copy(t).run(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"a[0]": 0, "b[0]": -1, "b[1]": 1})
}

func TestSource_ManyBrokersWhoseLeadersMove_LosesNothing(t *testing.T) {
	b, k := newBroker(t, kfake.NumBrokers(3)), newSink()
	b.topic("orders", 6)
	want := b.fill("orders", 6, 50)
	_, stop := b.follow(k, b.source("orders", nil))
	k.wait(t, "t", rows(100))
	for range 5 {
		b.ShufflePartitionLeaders()
		want = append(want, b.fill("orders", 6, 20)...)
	}
	b.RehashCoordinators()
	want = append(want, b.fill("orders", 6, 20)...)
	k.wait(t, "t", rows(len(want)))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
}

func TestSource_Compressed_Lands(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"zstd": kgo.ZstdCompression(), "gzip": kgo.GzipCompression(), "lz4": kgo.Lz4Compression(),
		"snappy": kgo.SnappyCompression(), "none": kgo.NoCompression()} {
		t.Run(name, func(t *testing.T) {
			b, k := newBroker(t), newSink()
			b.topic("orders", 2)
			b.Client = newClient(t, b.Cluster, kgo.ProducerBatchCompression(codec))
			want := b.fill("orders", 2, 3000)
			b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.KeepRecords = true })
			k.want(t, "t", want)
		})
	}
}

// After a crash the group waits for the process that is gone: that is told, and over once the partitions are ours.
func TestSource_MemberEndedWithoutLeaving_WaitIsTold(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	dead, err := kgo.NewClient(kgo.SeedBrokers(b.ListenAddrs()...), kgo.ConsumerGroup("app"), kgo.ConsumeTopics("orders"),
		kgo.InstanceID("dead"), kgo.SessionTimeout(3*time.Second), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	if err != nil {
		t.Fatal(err)
	}
	if fetched := dead.PollFetches(t.Context()); fetched.Err() != nil {
		t.Fatal(fetched.Err())
	}
	dead.Close() // which does not leave: the member is static
	told, over := make(chan string, 10), make(chan struct{})
	ended := sync.OnceFunc(func() { close(over) })
	_, stop := b.follow(k, b.source("orders", func(o *kafka.Options) {
		o.Observer.Retry = func(_ string, err error) { told <- err.Error() }
		o.Observer.Recovered = func(string) { ended() }
	}))
	if got := <-told; !strings.Contains(got, "session_timeout, here 3s") {
		t.Errorf("got %q told, want what is waited for", got)
	}
	<-over
	k.wait(t, "t", rows(10))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
