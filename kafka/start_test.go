package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

// at puts a record with this timestamp.
func (b *broker) at(partition int32, when time.Time, value string) []string {
	return b.putRecords(
		&kgo.Record{Topic: "orders", Partition: partition, Timestamp: when, Value: []byte(value)})
}

func latest(o *kafka.Options) {
	o.Start.Latest = true
	o.Schema = numbers
}

// grow adds partitions, and makes a new client for them that knows them.
func (b *broker) grow(topic string, by int) {
	b.t.Helper()
	if _, err := kadm.NewClient(b.Client).CreatePartitions(b.t.Context(), by, topic); err != nil {
		b.t.Fatal(err)
	}
	b.Client = newClient(b.t, b.Cluster)
}

func TestSource_StartLatest_SkipsWhatWasThere(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	b.fill("orders", 2, 10)
	_, stop := b.follow(k, b.source("orders", latest))
	k.wait(t, "t", func(t *sinkTable) bool { return t != nil && len(t.progress) == 2 })
	want := b.put("orders", 1, "n=1")
	k.wait(t, "t", rows(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 9, "orders[1]": 10})
}

// Columns are inferred, and there is no record to infer them from before the first run ends.
func TestSource_StartLatestAndNoRecordYet_GoesOnThereAfterRestart(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	fromEnd := func(o *kafka.Options) { o.Start.Latest = true }
	b.mustCatchUp(k, "orders", fromEnd)
	want := b.put("orders", 0, "n=1")
	b.grow("orders", 1)
	want = append(want, b.put("orders", 1, "n=2")...)
	b.mustCatchUp(k, "orders", fromEnd)
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 10, "orders[1]": 0})
}

func TestSource_StartAtTime_BeginsWithTheFirstRecordThen(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 3)
	noon := time.UnixMilli(1_700_000_000_000)
	b.at(0, noon.Add(-time.Hour), "n=1")
	want := b.at(0, noon, "n=2")
	want = append(want, b.at(0, noon.Add(time.Hour), "n=3")...)
	b.at(1, noon.Add(-time.Hour), "n=4")
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.Start.Time = noon })
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 2, "orders[1]": 0, "orders[2]": -1})
}

func TestSource_StartAtOffsets_NamedPartitionsBeginThere(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	want := b.fill("orders", 2, 10)
	want = append(want[4:10:10], want[10:]...)
	b.mustCatchUp(k, "orders", func(o *kafka.Options) {
		o.Start.Offsets = map[string]map[int32]int64{"orders": {0: 4}}
	})
	k.want(t, "t", want)
}

func TestSource_StartAtOffsetOutsideTheLog_SaysWhatItHolds(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	err := wantCode(t, b.catchUp(k, "orders", func(o *kafka.Options) {
		o.Start.Offsets = map[string]map[int32]int64{"orders": {0: 11}}
	}), freshet.CodeBadValue)
	if !strings.Contains(err.Error(), "from 0 to 10") {
		t.Fatalf("got %v", err)
	}
}

func TestSource_PartitionAddedWhileRunning_IsReadFromItsBeginning(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	_, stop := b.follow(k, b.source("orders", latest))
	k.wait(t, "t", func(t *sinkTable) bool { return t != nil && len(t.progress) == 1 })
	b.grow("orders", 2)
	want := b.put("orders", 1, "n=1", "n=2")
	want = append(want, b.put("orders", 2, "n=3")...)
	k.wait(t, "t", rows(3))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
}

func TestSource_PartitionAddedWhileStopped_IsReadFromItsBeginning(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 5)
	b.mustCatchUp(k, "orders", latest)
	b.grow("orders", 1)
	want := b.put("orders", 1, "n=1", "n=2")
	b.mustCatchUp(k, "orders", latest)
	k.want(t, "t", want)
}

// shop is a source of the topics of a shop, from their ends.
func (b *broker) shop(route string, change ...func(*kafka.Options)) *kafka.Source {
	b.t.Helper()
	return b.sourceOf(kafka.Topics{Pattern: `shop\..*`}, kafka.RouteTo(route), func(o *kafka.Options) {
		o.Start.Latest = true
		for _, c := range change {
			if c != nil {
				c(o)
			}
		}
	})
}

// openShop follows the shop and returns once it has that many lanes.
func (b *broker) openShop(k *sink, route string, lanes int, change func(*kafka.Options)) (stop func() error) {
	b.t.Helper()
	taken := make(chan struct{}, 1000)
	_, stop = b.follow(k, b.shop(route, change, func(o *kafka.Options) {
		o.Observer.Lag = func(freshet.Lane, int64) { taken <- struct{}{} }
	}))
	for range lanes {
		<-taken
	}
	return stop
}

// visitShop reads what there is in the shop.
func (b *broker) visitShop(k *sink, route string, change func(*kafka.Options)) {
	b.t.Helper()
	if err := k.copy(b.t).run(b.t.Context(), b.shop(route, change, bounded)); err != nil {
		b.t.Fatal(err)
	}
}

func TestSource_TopicMadeWhileStopped_IsReadFromItsBeginning(t *testing.T) {
	for name, change := range map[string]func(*kafka.Options){"given columns": latest, "inferred columns": nil} {
		t.Run(name, func(t *testing.T) {
			b, k := newBroker(t), newSink()
			b.topic("shop.orders", 1)
			b.topic("shop.items", 2)
			b.fill("shop.orders", 1, 3)
			b.fill("shop.items", 2, 3)
			stop := b.openShop(k, "t", 3, change)
			want := b.put("shop.orders", 0, "n=10")
			k.wait(t, "t", rows(1))
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			want = append(want, b.put("shop.items", 1, "n=11")...)
			b.topic("shop.late", 2)
			want = append(want, b.put("shop.late", 1, "n=12", "n=13")...)
			b.visitShop(k, "t", change)
			k.want(t, "t", want)
		})
	}
}

func TestSource_TopicMadeWhileStoppedForATableOfItsOwn_MissesNothing(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("shop.orders", 1)
	b.topic("shop.items", 1)
	early := time.Now().Add(-time.Hour)
	old := func(topic string) {
		b.putRecords(&kgo.Record{Topic: topic, Timestamp: early, Value: []byte("n=1")})
	}
	old("shop.orders")
	old("shop.items")
	stop := b.openShop(k, "t.{topic}", 2, nil)
	orders := b.put("shop.orders", 0, "n=10")
	k.wait(t, "t.shop.orders", rows(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if k.tables["t.shop.items"] != nil {
		t.Fatal("a table was made without a record")
	}
	items := b.put("shop.items", 0, "n=11")
	b.topic("shop.late", 1)
	late := b.put("shop.late", 0, "n=12", "n=13")
	b.visitShop(k, "t.{topic}", nil)
	k.want(t, "t.shop.orders", orders)
	k.want(t, "t.shop.items", items)
	k.want(t, "t.shop.late", late)
}

func TestSource_FirstStart_IsPartOfTheCommitThatMakesTheTable(t *testing.T) {
	for name, change := range map[string]func(*kafka.Options){
		"given columns": func(o *kafka.Options) { o.Schema = numbers }, "inferred columns": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b, k := newBroker(t), newSink()
			b.topic("a", 1)
			b.topic("b", 2)
			b.put("a", 0, "n=1")
			src := b.sourceOf(kafka.Topics{Names: []string{"a", "b"}}, kafka.RouteTo("t"), func(o *kafka.Options) {
				o.Bounded = true
				o.Partitions = map[string][]int32{"a": {0}} // b begins too, though it is not ours
				if change != nil {
					change(o)
				}
			})
			if err := k.copy(t).run(t.Context(), src); err != nil {
				t.Fatal(err)
			}
			k.wantProgress(t, "t", map[string]int64{"a[0]": 0, "b[0]": -1, "b[1]": -1})
			if got := k.tables["t"].born; got != 3 {
				t.Errorf("the table was made with the starts of %d lanes, want 3", got)
			}
		})
	}
}

func TestSource_TopicNamedLater_BeginsAsTheStartSays(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("a", 1)
	b.topic("b", 1)
	b.mustCatchUp(k, "a", latest)
	b.fill("b", 1, 5)
	src := b.sourceOf(kafka.Topics{Names: []string{"a", "b"}}, kafka.RouteTo("t"), func(o *kafka.Options) {
		latest(o)
		o.Bounded = true
	})
	if err := k.copy(t).run(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	k.wantProgress(t, "t", map[string]int64{"a[0]": -1, "b[0]": 4})
}

func TestSource_StartOfAPartitionThatIsNotThere_IsAnError(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 3)
	err := wantCode(t, b.catchUp(k, "orders", func(o *kafka.Options) {
		o.Start.Offsets = map[string]map[int32]int64{"orders": {1: 0, 3: 0}}
	}), freshet.CodeBadValue)
	if err.Place != "orders[3]" || !strings.Contains(err.Msg, "0 to 2") || err.Class != freshet.ClassInput {
		t.Fatalf("got %v", err)
	}
}

func TestSource_GroupKnowsWhatTheTableDoesNot_IsAnError(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	want := b.fill("orders", 2, 10)
	b.mustCatchUp(k, "orders", nil)
	lost := newSink()
	err := wantCode(t, b.catchUp(lost, "orders", nil), freshet.CodeForgotten)
	if !strings.Contains(err.Fix, "progress set") || !strings.Contains(err.Fix, "--forget-group") {
		t.Fatalf("got the remedy %q", err.Fix)
	}
	b.mustCatchUp(lost, "orders", func(o *kafka.Options) { o.ForgetGroup = true })
	lost.want(t, "t", want)
}

func TestSource_RetentionPassedWhileStopped_NamesTheGap(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	b.mustCatchUp(k, "orders", nil)
	b.fill("orders", 1, 10)
	if err := b.DeleteRecords("orders", 0, 15); err != nil {
		t.Fatal(err)
	}
	err := wantCode(t, b.catchUp(k, "orders", nil), freshet.CodeGap)
	if err.Place != "orders[0]@10" || !strings.Contains(err.Msg, "begins at 15: 5 offsets") ||
		!strings.Contains(err.Fix, "orders[0]=14") {
		t.Fatalf("got %v; %s", err, err.Fix)
	}
}

func TestSource_WantedWholeAndBeginningGone_NamesTheGap(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	if err := b.DeleteRecords("orders", 0, 4); err != nil {
		t.Fatal(err)
	}
	err := wantCode(t, b.catchUp(k, "orders", func(o *kafka.Options) { o.Whole = true }), freshet.CodeGap)
	if err.Place != "orders[0]@4" || !strings.Contains(err.Fix, "--from-earliest-kept") {
		t.Fatalf("got %v; %s", err, err.Fix)
	}
	b.mustCatchUp(k, "orders", nil)
}

func TestSource_RetentionPassedWhileRunning_NamesTheGap(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	c := k.copy(t)
	src := b.source("orders", func(o *kafka.Options) { o.Schema = numbers; o.FetchMemory = 1 << 10 })
	if err := src.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	defer src.Close(t.Context())
	for range 20 { // more than the source and its client take without being asked
		b.put("orders", 0, "n=1 "+strings.Repeat(" ", 900_000))
	}
	if _, err := src.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteRecords("orders", 0, -1); err != nil {
		t.Fatal(err)
	}
	b.put("orders", 0, "n=2")
	for {
		if _, err := src.Next(t.Context()); err != nil {
			wantCode(t, err, freshet.CodeGap)
			return
		}
	}
}

func TestSource_LogShorterThanProgress_NamesTheGap(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	b.mustCatchUp(k, "orders", nil)
	for l := range k.tables["t"].progress {
		k.tables["t"].progress[l] = 20
	}
	err := wantCode(t, b.catchUp(k, "orders", nil), freshet.CodeGap)
	if !strings.Contains(err.Msg, "ends at 10") {
		t.Fatalf("got %v", err)
	}
}

func TestSource_TopicRemadeWhileStopped_IsAnError(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	b.mustCatchUp(k, "orders", nil)
	if err := b.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	b.topic("orders", 1)
	wantCode(t, b.catchUp(k, "orders", nil), freshet.CodeOriginChanged)
}

func TestSource_TopicRemadeWhileRunning_IsAnError(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	done := make(chan error, 1)
	go func() { done <- k.copy(t).run(t.Context(), b.source("orders", nil)) }()
	k.wait(t, "t", rows(10))
	if err := b.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	b.topic("orders", 1)
	wantCode(t, <-done, freshet.CodeOriginChanged)
}

func TestSource_TopicDeletedWhileRunning_IsAnError(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 10)
	done := make(chan error, 1)
	go func() { done <- k.copy(t).run(t.Context(), b.source("orders", nil)) }()
	k.wait(t, "t", rows(10))
	if err := b.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	if err := wantCode(t, <-done, freshet.CodeOriginChanged); !strings.Contains(err.Msg, "was deleted") {
		t.Fatalf("got %v", err)
	}
}

func TestSource_TopicMissing_NamesTheNearest(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.topic("payments", 1)
	err := wantCode(t, b.failure(k, b.source("order", nil)), freshet.CodeNoTopic)
	if !strings.Contains(err.Fix, "orders") || strings.Contains(err.Fix, "payments") {
		t.Fatalf("got the remedy %q", err.Fix)
	}
}
