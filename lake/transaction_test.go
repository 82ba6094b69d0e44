package lake_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/format"
	"github.com/freshet-io/freshet/kafka"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// shop is a database of which Debezium tells: orders, of two partitions, lines, and a table that nobody reads.
type shop struct {
	t       *testing.T
	cluster *kfake.Cluster
	client  *kgo.Client
	rows    map[int][2]int // by transaction: how many of orders and of lines it has
	next    int
	rng     *rand.Rand
}

const txTopic = "pg.transaction"

func newShop(t *testing.T, seed uint64) *shop {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(10*time.Millisecond))
	must(t, err)
	t.Cleanup(c.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0))
	must(t, err)
	t.Cleanup(client.Close)
	for topic, n := range map[string]int32{"pg.public.orders": 2, "pg.public.lines": 1, txTopic: 1} {
		must(t, c.CreateTopic(topic, n, nil))
	}
	return &shop{t: t, cluster: c, client: client, rows: map[int][2]int{}, rng: rand.New(rand.NewPCG(seed, 7))}
}

// message is one of Debezium's.
type message struct {
	topic string
	part  int32
	value string
}

func (s *shop) put(records ...message) {
	s.t.Helper()
	for _, r := range records {
		must(s.t, s.client.ProduceSync(s.t.Context(), &kgo.Record{Topic: r.topic, Partition: r.part, Key: []byte(`{"id":1}`),
			Value: []byte(r.value)}).FirstErr())
	}
}

// change is a new row of a transaction; 0: of the snapshot.
func change(table string, part int32, tx, place, id int) message {
	transaction, op, number := "null", "r", 7777 // that of the snapshot
	if tx > 0 {
		op, number = "c", tx
		transaction = fmt.Sprintf(`{"id":"%d:%d","total_order":%d,"data_collection_order":1}`, tx, 1000*tx+place, place)
	}
	return message{"pg.public." + table, part, fmt.Sprintf(`{"before":null,"after":{"id":%d,"tx":%d},"source":{"version":"3.6.0.Final",`+
		`"connector":"postgresql","name":"pg","ts_ms":1767225600000,"snapshot":"false","db":"shop","schema":"public","table":%q,`+
		`"txId":%d,"lsn":%d},"transaction":%s,"op":%q,"ts_ms":1767225600000}`, id, tx, table, number, 1000*tx+place, transaction, op)}
}

func begins(tx int) message {
	return message{txTopic, 0, fmt.Sprintf(`{"status":"BEGIN","id":"%d:%d","ts_ms":1767225600000,"event_count":null,`+
		`"data_collections":null}`, tx, 1000*tx)}
}

func ends(tx, orders, lines, others int) message {
	return message{txTopic, 0, fmt.Sprintf(`{"status":"END","id":"%d:%d","ts_ms":1767225600001,"event_count":%d,"data_collections":[`+
		`{"data_collection":"public.orders","event_count":%d},{"data_collection":"public.lines","event_count":%d},`+
		`{"data_collection":"public.others","event_count":%d}]}`, tx, 1000*tx+999, orders+lines+others, orders, lines, others)}
}

// transaction makes one of a few rows, as data and as what the transaction topic says.
func (s *shop) transaction() (data, said []message) {
	s.next++
	tx, place := s.next, 0
	orders, lines, others := s.rng.IntN(4), s.rng.IntN(3), s.rng.IntN(2)
	for i := range orders {
		place++
		data = append(data, change("orders", int32(s.rng.IntN(2)), tx, place, 100*tx+i))
	}
	place += others
	for i := range lines {
		place++
		data = append(data, change("lines", 0, tx, place, 100*tx+i))
	}
	s.rows[tx] = [2]int{orders, lines}
	return data, []message{begins(tx), ends(tx, orders, lines, others)}
}

// pipe reads the shop into the tables orders and lines.
func (s *shop) pipe(target freshet.Target, bounded bool, change func(*kafka.Options, *kafka.TransactionOptions)) *freshet.Pipeline {
	s.t.Helper()
	return s.pipeOf(target, bounded, change, map[string]string{"pg.public.orders": "orders", "pg.public.lines": "lines"})
}

// pipeOf reads some topics of the shop into tables. Without a transaction topic in the options it reads none.
func (s *shop) pipeOf(target freshet.Target, bounded bool, change func(*kafka.Options, *kafka.TransactionOptions),
	tables map[string]string) *freshet.Pipeline {
	s.t.Helper()
	f, err := format.NewDebezium(nil, nil)
	must(s.t, err)
	o := &kafka.Options{Group: "app", Bounded: bounded, MetadataAge: 100 * time.Millisecond, SessionTimeout: 3 * time.Second,
		Tombstones: kafka.Keep, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil))}
	tx := &kafka.TransactionOptions{Topic: txTopic, Parse: func(value []byte) (kafka.Transaction, error) {
		said, err := format.ParseTransaction(value)
		t := kafka.Transaction{Name: said.Name(), Ended: said.Ended, Counts: map[string]int64{}}
		for _, table := range said.Tables {
			t.Counts[table.Name] = table.Events
		}
		return t, err
	}}
	if change != nil {
		change(o, tx)
	}
	route := func(topic string) string { return tables[topic] }
	topics := kafka.Topics{Names: slices.Sorted(maps.Keys(tables))}
	src, err := kafka.NewSource(s.cluster.ListenAddrs(), topics, route, f, o)
	must(s.t, err)
	var whole freshet.Source = src
	if tx.Topic != "" {
		whole, err = kafka.NewTransactional(src, *tx)
		must(s.t, err)
	}
	return &freshet.Pipeline{Name: "test", Source: whole, Target: target,
		Options: freshet.Options{MaxRows: 3, QueueBatches: 2, Every: 50 * time.Millisecond, ShutdownTimeout: time.Second}}
}

var wholeCuts = &lake.TargetOptions{ManyOrigins: true, Cuts: &lake.CutOptions{Table: "cuts", Plan: "p1"}}

// seen is how many rows of each transaction a version of the table has.
func (w *world) seen(t *testing.T, table string, version int64) map[int]int {
	t.Helper()
	d, err := delta.Open(t.Context(), w.store(table), nil)
	must(t, err)
	snap, err := d.SnapshotAt(t.Context(), version)
	must(t, err)
	count := map[int]int{}
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: []string{"tx"}}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			count[int(rec.Column(0).(*array.Int64).Value(i))]++
		}
		rec.Release()
	}
	return count
}

// check makes sure that each cut of both tables shows whole transactions, up to one of them, and returns that of the last.
func (s *shop) check(w *world, when string) (last int) {
	s.t.Helper()
	for _, c := range w.cuts(s.t) {
		if len(c.Tables) != 2 {
			continue
		}
		seen := map[string]map[int]int{}
		last = 0
		for _, table := range c.Tables {
			seen[table.Name] = w.seen(s.t, table.Name, table.Version)
			for tx := range seen[table.Name] {
				last = max(last, tx)
			}
		}
		for tx := 1; tx <= last; tx++ {
			if want, got := s.rows[tx], [2]int{seen["orders"][tx], seen["lines"][tx]}; got != want {
				s.t.Fatalf("%s: cut %d shows %v rows of transaction %d, want %v: %+v", when, c.Number, got, tx, want, c)
			}
		}
	}
	return last
}

// checkAll makes sure that the tables hold each row of the transactions up to one once.
func (s *shop) checkAll(w *world, when string, upTo int) {
	s.t.Helper()
	for i, table := range []string{"orders", "lines"} {
		want := map[int]int{}
		for tx, n := range s.rows {
			if n[i] > 0 && tx <= upTo {
				want[tx] = n[i]
			}
		}
		if got := w.seen(s.t, table, w.snapshot(s.t, table).Version()); !maps.Equal(got, want) {
			s.t.Fatalf("%s: %s has %v, want %v", when, table, got, want)
		}
	}
}

func (s *shop) fill(n int) {
	s.t.Helper()
	for range n {
		data, said := s.transaction()
		s.put(said[0])
		s.put(data...)
		s.put(said[1])
	}
}

func TestTransactions_TwoTables_CutsShowWholeOnes(t *testing.T) {
	const seed = 21
	w, s := newWorld(), newShop(t, seed)
	for range 5 {
		s.fill(4)
		must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
		s.checkAll(w, "so far", s.next)
	}
	if last := s.check(w, "at the end"); last < 18 || len(w.cuts(t)) < 4 {
		t.Errorf("got %d cuts up to transaction %d, want several up to the end", len(w.cuts(t)), last)
	}
}

// What the topic says comes before the changes, or behind them, or the changes of one table come late.
func TestTransactions_TopicAheadOrBehind_WaitsForTheRest(t *testing.T) {
	const seed = 22
	w, s := newWorld(), newShop(t, seed)
	s.fill(3)
	for _, held := range []string{"pg.public.orders", "pg.public.lines", txTopic} {
		var late []message
		for range 6 {
			data, said := s.transaction()
			for _, r := range slices.Concat(said[:1], data, said[1:]) {
				if r.topic == held {
					late = append(late, r)
				} else {
					s.put(r)
				}
			}
		}
		must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
		if last := s.check(w, held+" is late"); last == s.next {
			t.Errorf("%s is late: got a cut of transaction %d", held, last)
		}
		s.put(late...)
		must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
		s.check(w, held+" has come")
		s.checkAll(w, held+" has come", s.next)
	}
}

func TestTransactions_CrashAtEveryStoreCall_CutsShowWholeOnes(t *testing.T) {
	const seed = 23
	t.Logf("seed %d", seed)
	for at := range someCalls(t) {
		for _, after := range []bool{false, true} {
			w, s := newWorld(), newShop(t, seed)
			s.fill(4)
			m := &mortal{w: w, at: at, after: after}
			err := s.pipe(lake.NewTarget(m.open, app, wholeCuts), true, nil).Run(t.Context())
			if !m.dead {
				must(t, err)
				t.Logf("%d calls", at-1)
				return
			}
			when := fmt.Sprintf("crash at call %d, after it: %v", at, after)
			s.check(w, when)
			s.fill(1)
			must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
			s.check(w, when+", next run")
			s.checkAll(w, when+", next run", s.next)
		}
	}
}

// A transaction larger than what is kept back goes out before it is whole, and is committed whole.
func TestTransactions_LargerThanMemory_CommittedWhole(t *testing.T) {
	w, s := newWorld(), newShop(t, 24)
	s.fill(2)
	s.next++
	tx := s.next
	s.rows[tx] = [2]int{1500, 1}
	s.put(begins(tx))
	for i := range 1500 {
		s.put(change("orders", 0, tx, i+1, 100*tx+i))
	}
	s.put(change("lines", 0, tx, 1501, 1), ends(tx, 1500, 1, 0))
	s.fill(2)
	small := func(o *kafka.Options, _ *kafka.TransactionOptions) { o.FetchMemory = 200 << 10 }
	must(t, s.pipe(w.target(wholeCuts), true, small).Run(t.Context()))
	s.check(w, "at the end")
	s.checkAll(w, "at the end", s.next)
}

// The end of a transaction is lost: it is waited for, and then the pipeline goes on.
func TestTransactions_EndIsLost_GoesOnAfterTheWait(t *testing.T) {
	w, s := newWorld(), newShop(t, 25)
	s.fill(2)
	s.next++
	s.rows[s.next] = [2]int{1, 1}
	s.put(begins(s.next), change("orders", 0, s.next, 1, 1), change("lines", 0, s.next, 2, 1))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	p := s.pipe(w.target(wholeCuts), false, func(_ *kafka.Options, tx *kafka.TransactionOptions) { tx.Wait = time.Second })
	landed := make(chan freshet.Committed, 100)
	p.Options.Observer.Committed = func(c freshet.Committed, _, _ time.Duration, _ time.Time) { landed <- c }
	go func() { ended <- p.Run(ctx) }()
	want := int64(0)
	for _, n := range s.rows {
		want += int64(n[0] + n[1])
	}
	for rows := int64(0); rows < want; {
		select {
		case c := <-landed:
			rows += c.Rows
		case err := <-ended:
			t.Fatalf("it ended with %v", err)
		case <-time.After(2 * time.Minute):
			t.Fatalf("got %d rows, want %d", rows, want)
		}
	}
	stop()
	must(t, <-ended)
	s.checkAll(w, "at the end", s.next)
}

func TestTransactions_Snapshot_PassesWithoutWaiting(t *testing.T) {
	w, s := newWorld(), newShop(t, 26)
	for i := range 5 {
		s.put(change("orders", int32(i%2), 0, i, i), change("lines", 0, 0, i, i))
	}
	s.rows[0] = [2]int{5, 5}
	s.fill(3)
	must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
	s.check(w, "at the end")
	s.checkAll(w, "at the end", s.next)
}

// The database writes while the pipeline is stopped and started again: each topic keeps its order, and they keep none.
func TestTransactions_WrittenMeanwhile_CutsShowWholeOnes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w, s := newWorld(), newShop(t, seed)
	queues := map[string][]message{}
	for range 60 {
		data, said := s.transaction()
		for _, r := range slices.Concat(said[:1], data, said[1:]) {
			queues[r.topic] = append(queues[r.topic], r)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 8))
	for len(queues) > 0 {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		p := s.pipe(w.target(wholeCuts), false, nil)
		go func() { ended <- p.Run(ctx) }()
		for range 80 {
			topics := slices.Sorted(maps.Keys(queues))
			if len(topics) == 0 {
				break
			}
			topic := topics[rng.IntN(len(topics))]
			n := min(1+rng.IntN(4), len(queues[topic]))
			s.put(queues[topic][:n]...)
			if queues[topic] = queues[topic][n:]; len(queues[topic]) == 0 {
				delete(queues, topic)
			}
		}
		stop()
		must(t, <-ended)
		s.check(w, "meanwhile")
	}
	must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
	s.check(w, "at the end")
	s.checkAll(w, "at the end", s.next)
}

// A transaction topic is compacted: of each transaction its end is left, which has all that counts.
func TestTransactions_TopicIsCompacted_CutsShowWholeOnes(t *testing.T) {
	w, s := newWorld(), newShop(t, 27)
	for range 8 {
		data, said := s.transaction()
		s.put(data...)
		s.put(said[1])
	}
	must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
	s.checkAll(w, "at the end", s.next)
	if last := s.check(w, "at the end"); last < s.next-1 {
		t.Errorf("got cuts up to transaction %d, want some up to the end, which is %d", last, s.next)
	}
}

// The tables were there before anybody read the transaction topic.
func TestTransactions_PipelineWasThereBefore_CutsShowWholeOnesFromThere(t *testing.T) {
	w, s := newWorld(), newShop(t, 28)
	s.fill(5)
	without := func(_ *kafka.Options, tx *kafka.TransactionOptions) { tx.Topic = "" }
	must(t, s.pipe(w.target(&lake.TargetOptions{ManyOrigins: true}), true, without).Run(t.Context()))
	s.checkAll(w, "before", s.next)
	for range 3 {
		s.fill(3)
		must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
		s.checkAll(w, "with transactions", s.next)
	}
	if last := s.check(w, "at the end"); last < s.next-1 || len(w.cuts(t)) < 3 {
		t.Errorf("got %d cuts up to transaction %d, want some up to the end, which is %d", len(w.cuts(t)), last, s.next)
	}
}

// A table of several is loaded again, with the transactions that its topic tells of.
func TestTransactions_TableLoadedAgain_CutsShowWholeOnes(t *testing.T) {
	w, s := newWorld(), newShop(t, 29)
	s.fill(6)
	must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
	_, err := w.snapshot(t, "orders").Table().Delete(t.Context(), parsed(t, "tx % 2 = 0"), nil)
	must(t, err)
	s.fill(2)
	r := &lake.Resync{App: app, Name: "orders", CopyName: "orders/resync-1", Plan: lake.ResyncPlan{Folder: "resync-1", Number: 1}}
	for table, into := range map[string]*store.Store{r.Name: &r.Main, r.CopyName: &r.Copy, "orders_quarantine": &r.Quarantine,
		r.CopyName + "_quarantine": &r.CopyQuarantine} {
		*into, err = w.folders(table)
		must(t, err)
	}
	must(t, r.Prepare(t.Context()))
	copied := s.pipeOf(lake.NewTarget(w.folders, app, &lake.TargetOptions{ManyOrigins: true}), true,
		func(o *kafka.Options, _ *kafka.TransactionOptions) { o.Group = "copy" }, map[string]string{"pg.public.orders": r.CopyName})
	must(t, copied.Run(t.Context()))
	_, err = r.Swap(t.Context())
	must(t, err)
	must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
	s.checkAll(w, "loaded again", s.next)
	s.fill(3)
	must(t, s.pipe(w.target(wholeCuts), true, nil).Run(t.Context()))
	s.checkAll(w, "and gone on", s.next)
	if last := s.check(w, "at the end"); last < s.next-1 {
		t.Errorf("got cuts up to transaction %d, want some up to the end, which is %d", last, s.next)
	}
}
