package kafka_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

func TestSource_Bounded_DeliversEachOffsetOnceAndEnds(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 4)
	want := b.fill("orders", 4, 1000)
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
	k.wantProgress(t, "t",
		map[string]int64{"orders[0]": 999, "orders[1]": 999, "orders[2]": 999, "orders[3]": 999})

	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)

	want = append(want, b.put("orders", 2, "n=7", "n=8")...)
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
}

func TestSource_BoundedEmptyTopic_EndsAtOnce(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 3)
	start := time.Now()
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", nil)
	if took := time.Since(start); took > 5*time.Second {
		t.Fatalf("took %s", took)
	}
}

func TestSource_BoundedSomePartitionsEmpty_Ends(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 3)
	want := b.put("orders", 1, "n=1")
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": -1, "orders[1]": 0, "orders[2]": -1})
}

func TestSource_BoundedWhileOthersProduce_EndsWhereTheLogEndedAtOpen(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	want := b.fill("orders", 1, 100)
	src := b.source("orders", bounded)
	c := k.copy(t)
	if err := src.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.fill("orders", 1, 100)
	for {
		batch, err := src.Next(t.Context())
		if err != nil {
			break
		}
		c.take(batch)
	}
	c.commit()
	if err := src.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
}

func TestSource_Transactions_DeliversTheCommitted(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	tx := newClient(t, b.Cluster, kgo.TransactionalID("tx"))
	write := func(end kgo.TransactionEndTry, values ...string) []string {
		t.Helper()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		rows := (&broker{b.Cluster, tx, t}).put("orders", 0, values...)
		if err := tx.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	want := write(kgo.TryCommit, "n=1", "n=2")
	write(kgo.TryAbort, "n=3", "n=4")
	want = append(want, write(kgo.TryCommit, "n=5")...)
	write(kgo.TryAbort, "n=6")
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 9})

	// An open transaction at the tail is beyond what is decided.
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	(&broker{b.Cluster, tx, t}).put("orders", 0, "n=7")
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.ReadUncommitted = true })
	k.want(t, "t", append(want, "orders[0]@10 n=7"))
}

func TestSource_CompactedTopic_PassesTheHoles(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1, "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01", "segment.ms", "1")
	for i := range 50 {
		b.putRecords(&kgo.Record{Topic: "orders", Key: fmt.Append(nil, i%3), Value: fmt.Appendf(nil, "n=%d", i)})
	}
	b.Compact()
	b.mustCatchUp(k, "orders", nil)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 49})
	if n := k.count("t"); n == 0 || n == 50 {
		t.Fatalf("got %d rows, want some holes", n)
	}
}

func TestSource_NothingLeftAtTheTail_EndsOnceThatIsCertain(t *testing.T) {
	noSessions := map[string]string{"max.incremental.fetch.session.cache.slots": "0"}
	b, k := newBroker(t, kfake.BrokerConfigs(noSessions)), newSink()
	b.topic("orders", 1)
	want := b.fill("orders", 1, 5)
	b.mustCatchUp(k, "orders", nil)
	b.fill("orders", 1, 5) // and this has gone when it is read
	asked := 0
	b.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if req.MaxBytes == 1 {
			asked++
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset = 10, 10
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 9})
	if asked != 3 {
		t.Fatalf("believed the broker after %d answers, want 3", asked)
	}
}

func TestSource_Tombstones_AsToldTo(t *testing.T) {
	for _, c := range []struct {
		how           kafka.Tombstones
		rows, rejects int
	}{{kafka.Skip, 2, 0}, {kafka.Reject, 2, 2}, {kafka.Keep, 4, 0}} {
		t.Run(string(c.how), func(t *testing.T) {
			b, k := newBroker(t), newSink()
			b.topic("orders", 1)
			b.put("orders", 0, "n=1", "", "n=2", "")
			b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.Tombstones = c.how })
			k.wantProgress(t, "t", map[string]int64{"orders[0]": 3})
			if got := k.tables["t"]; len(got.rows) != c.rows || len(got.rejects) != c.rejects {
				t.Fatalf("got %d rows and %d rejects, want %d and %d", len(got.rows), len(got.rejects), c.rows, c.rejects)
			}
		})
	}
}

func TestSource_OnlyTombstones_EndsWithoutATable(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	b.put("orders", 0, "", "")
	b.put("orders", 1, "")
	b.mustCatchUp(k, "orders", nil)
	if k.tables["t"] != nil {
		t.Fatal("got a table, want none")
	}
}

func TestSource_OnlyTombstonesForATableThatIsThere_MoveProgress(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	want := b.put("orders", 0, "n=1")
	b.mustCatchUp(k, "orders", nil)
	b.put("orders", 0, "", "", "")
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 3})
}

// What a batch keeps of its records is its own: the client has its memory back once they are decoded.
func TestSource_KeepRecords_AsTheyCame(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.Client = newClient(t, b.Cluster, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	at := time.UnixMilli(1_700_000_000_123)
	want := []freshet.Record{
		{Raw: []byte("n=1")},
		{Raw: []byte("n=2"), Key: []byte{}, Time: at},
		{Raw: []byte("n=3"), Key: []byte("k"), Time: at.Add(-100 * 365 * 24 * time.Hour)},
		{Raw: []byte("n=4"), Headers: []freshet.Header{{Key: "a", Value: []byte("x")}, {Key: ""}, {Key: "a", Value: []byte{}}}, Time: at},
	}
	for i := range 3000 { // so that there are several fetches, whose memory is used again
		want = append(want, freshet.Record{Raw: fmt.Append(nil, "n=", i), Time: at})
	}
	var records []*kgo.Record
	for _, r := range want {
		p := &kgo.Record{Topic: "orders", Value: r.Raw, Key: r.Key, Timestamp: r.Time}
		if r.Time.IsZero() {
			p.Timestamp = time.UnixMilli(-1) // none
		}
		for _, h := range r.Headers {
			p.Headers = append(p.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, p)
	}
	b.putRecords(records...)
	c, src := k.copy(t), b.source("orders", func(o *kafka.Options) { o.Bounded, o.KeepRecords, o.FetchMemory = true, true, 64<<10 })
	if err := src.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var batches []*freshet.Batch
	for {
		batch, err := src.Next(t.Context())
		if err != nil {
			break
		}
		batches = append(batches, batch)
	}
	var got []freshet.Record
	for _, batch := range batches { // all are still held
		for _, r := range batch.Records {
			got = append(got, r.Record())
		}
		batch.Release()
	}
	if err := src.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("record %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestSource_Lag_IsWhatIsLeftToReadUntilTheLaneIsLeft(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.fill("orders", 1, 100)
	var mu sync.Mutex
	var lags []int64
	b.mustCatchUp(k, "orders", func(o *kafka.Options) {
		o.Observer.Lag = func(_ freshet.Lane, records int64) {
			mu.Lock()
			defer mu.Unlock()
			lags = append(lags, records)
		}
	})
	n := len(lags)
	if n < 3 || lags[0] != 100 || lags[n-2] != 0 || lags[n-1] != -1 {
		t.Fatalf("got %v, want 100 down to 0, and -1", lags)
	}
}

func TestSource_MessageOfTenMegabytes_Lands(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1, "max.message.bytes", "20000000")
	big := "s=" + strings.Repeat("x", 10<<20)
	want := b.put("orders", 0, "s=a")
	want = append(want, b.put("orders", 0, big)...)
	want = append(want, b.put("orders", 0, "s=b", "s=c")...)
	b.mustCatchUp(k, "orders", nil)
	k.want(t, "t", want)
}

func TestSource_MalformedRecords_AreRejectsWithTheirBytes(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.put("orders", 0, "n=1", "!", "n=x", "n=2")
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.SampleRecords = 1 })
	got := k.tables["t"].rejects
	if len(got) != 2 || got[0].Seq != 1 || string(got[0].Raw) != "!" || got[0].Code != freshet.CodeMalformed ||
		got[0].Step != "decode" || got[1].Seq != 2 || got[1].Code != freshet.CodeWrongType {
		t.Fatalf("got rejects %+v", got)
	}
	k.wantProgress(t, "t", map[string]int64{"orders[0]": 3})
}

func TestSource_AllMalformedAndNoTable_SaysSo(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.put("orders", 0, "!", "!")
	wantCode(t, b.catchUp(k, "orders", nil), freshet.CodeBadValue)

	b.put("orders", 0, "!", "!", "!")
	src := b.source("orders", func(o *kafka.Options) { o.SampleRecords = 5 })
	wantCode(t, b.failure(k, src), freshet.CodeBadValue)
}

func TestSource_MalformedFirst_WaitsForARecordThatTells(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.put("orders", 0, "!")
	_, stop := b.follow(k, b.source("orders", nil))
	want := b.put("orders", 0, "n=1")
	k.wait(t, "t", rows(1))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
	if got := k.tables["t"].rejects; len(got) != 1 || got[0].Seq != 0 {
		t.Fatalf("got rejects %+v, want the first record", got)
	}
}

func TestSource_NewFields_WidenTheColumns(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	want := b.fill("orders", 2, 10)
	_, stop := b.follow(k, b.source("orders", nil))
	k.wait(t, "t", rows(20))
	want = append(want, b.put("orders", 0, "n=1", "n=2 color=red", "n=3", "n=4 size=7 color=blue")...)
	want = append(want, b.put("orders", 1, "n=1", "n=2 size=9", "n=3")...)
	k.wait(t, "t", rows(27))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
}

func TestSource_NewFieldsOfRejects_MakeNoColumns(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	want := b.put("orders", 0, "n=1")
	_, stop := b.follow(k, b.source("orders", nil))
	k.wait(t, "t", rows(1))
	more := b.put("orders", 0, "n=2 color=red", "n=x size=3", "n=4 color=blue")
	want = append(want, more[0], more[2])
	k.wait(t, "t", rows(3))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
	if r := k.tables["t"].rejects; len(r) != 1 || r[0].Seq != 2 {
		t.Errorf("got rejects %+v, want the third record", r)
	}
	if schema := k.tables["t"].schema; schema.HasField("size") || !schema.HasField("color") {
		t.Errorf("got the columns %s, want color and no size", schema)
	}
}

func TestSource_TableHasTypes_TheyAreKept(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	want := b.put("orders", 0, "n=word")
	b.mustCatchUp(k, "orders", nil)
	want = append(want, b.put("orders", 0, "n=1", "n=2")...)
	b.mustCatchUp(k, "orders", nil) // a sample of numbers alone would make it bigint
	k.want(t, "t", want)
}

func TestSource_Rewind_ReadsAgainFromTheTable(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	want := b.fill("orders", 2, 500)
	c := k.copy(t)
	src := b.source("orders", bounded)
	if err := src.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for round := range 4 {
		for range 1 + round {
			if batch, err := src.Next(t.Context()); err == nil {
				c.take(batch)
			}
		}
		if round%2 == 0 {
			c.commit()
		}
		c.mu.Lock()
		for _, p := range c.pending {
			p.Release()
		}
		c.pending = nil
		clear(c.owned["t"])
		c.mu.Unlock()
		if err := src.Rewind(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
	}
	for {
		batch, err := src.Next(t.Context())
		if err != nil {
			break
		}
		c.take(batch)
	}
	c.commit()
	if err := src.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.want(t, "t", want)
}
