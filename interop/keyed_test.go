package interop_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// account is a row of the keyed tables of these tests.
type account struct {
	ID int64   `json:"id"`
	N  *int64  `json:"n"`
	S  *string `json:"s"`
	At int64   `json:"at"`
}

// accounts is a topic of changes of accounts: who makes them, how a pipeline takes them, and what they come to. An account's
// changes are all in one partition.
type accounts struct {
	b      *broker
	topic  string
	random *rand.Rand
	write  func(a *accounts, id int64) []*kgo.Record
	types  map[string]string // of the columns that the pipeline has
	every  string            // how often the pipeline commits
	there  map[int64]bool    // as far as it was produced
	at     int64

	rows map[int64]account // what state has read so far comes to
	read map[int32]int64   // how many records of each partition that is
}

const accountPartitions = 4

func newAccounts(t *testing.T, b *broker, random *rand.Rand, write func(*accounts, int64) []*kgo.Record) *accounts {
	t.Helper()
	return &accounts{b: b, topic: b.topic(accountPartitions, nil), random: random, write: write, there: map[int64]bool{},
		rows: map[int64]account{}, read: map[int32]int64{}, every: "100ms",
		types: map[string]string{"id": "bigint not null", "n": "bigint", "s": "string", "at": "bigint"}}
}

// some produces changes of n accounts and waits for their acknowledgement.
func (a *accounts) some(n int) {
	a.b.t.Helper()
	var records []*kgo.Record
	for range n {
		id := a.random.Int64N(300)
		a.at += 1000
		for _, r := range a.write(a, id) {
			r.Topic, r.Partition, r.Key = a.topic, int32(id%accountPartitions), fmt.Appendf(nil, `{"id":%d}`, id)
			records = append(records, r)
		}
	}
	a.b.produce(records...)
}

// feed produces until it is stopped.
func (a *accounts) feed(perTick int) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				a.some(perTick)
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
	a.b.t.Cleanup(stop)
	return stop
}

// asJSON writes changes for `changes: {op: op, absent: keep}` and an order by the column at. Accounts whose number five
// divides are only ever updated whole, now and then by a change that comes late.
func asJSON(a *accounts, id int64) []*kgo.Record {
	n := a.random.IntN(1000)
	whole := func(op string, at int64) []*kgo.Record {
		return []*kgo.Record{{Value: fmt.Appendf(nil, `{"op":%q,"id":%d,"n":%d,"s":"of %d","at":%d}`, op, id, n, at, at)}}
	}
	dice := a.random.IntN(10)
	switch {
	case !a.there[id]:
		a.there[id] = true
		return whole("insert", a.at)
	case id%5 == 0 && dice < 3:
		return whole("update", a.at-a.random.Int64N(200_000))
	case id%5 == 0 || dice < 5:
		return whole("update", a.at)
	case dice < 7:
		return []*kgo.Record{{Value: fmt.Appendf(nil, `{"op":"update","id":%d,"n":%d,"at":%d}`, id, n, a.at)}}
	case dice == 7:
		a.there[id] = false
		return []*kgo.Record{{Value: fmt.Appendf(nil, `{"op":"delete","id":%d,"at":%d}`, id, a.at)}}
	default:
		a.there[id] = false
		return []*kgo.Record{{}} // a tombstone
	}
}

// asPairs writes changes of id and s alone, for `changes: {op: op}`.
func asPairs(a *accounts, id int64) []*kgo.Record {
	if a.there[id] && a.random.IntN(10) < 3 {
		a.there[id] = false
		return []*kgo.Record{{}}
	}
	a.there[id] = true
	return []*kgo.Record{{Value: fmt.Appendf(nil, `{"op":"upsert","id":%d,"s":"of %d"}`, id, a.at)}}
}

// asDebezium writes change events of PostgreSQL's connector, without schemas.
func asDebezium(a *accounts, id int64) []*kgo.Record {
	event := func(op, before, after string) *kgo.Record {
		return &kgo.Record{Value: fmt.Appendf(nil, `{"before":%s,"after":%s,"source":{"connector":"postgresql","ts_ms":%d,
			"db":"bank","schema":"public","table":"accounts","lsn":%d},"op":%q,"ts_ms":%[3]d}`, before, after, a.at, a.at, op)}
	}
	row := fmt.Sprintf(`{"id":%d,"n":%d,"s":"of %d","at":%d}`, id, a.random.IntN(1000), a.at, a.at)
	key := fmt.Sprintf(`{"id":%d,"n":0,"s":null,"at":0}`, id)
	switch dice := a.random.IntN(10); {
	case !a.there[id]:
		a.there[id] = true
		return []*kgo.Record{event([]string{"c", "r"}[dice%2], "null", row)}
	case dice < 4:
		return []*kgo.Record{event("u", "null", row)}
	case dice < 7:
		unavailable := fmt.Sprintf(`{"id":%d,"n":%d,"s":"__debezium_unavailable_value","at":%d}`, id, a.random.IntN(1000), a.at)
		return []*kgo.Record{event("u", "null", unavailable)}
	default:
		a.there[id] = false
		return []*kgo.Record{event("d", key, "null"), {}}
	}
}

// unread are the records that state has not read, each partition in its order.
func (a *accounts) unread() (all []*kgo.Record) {
	a.b.t.Helper()
	from, left := map[int32]kgo.Offset{}, int64(0)
	for p, end := range a.b.ends(a.topic) {
		from[p] = kgo.NewOffset().At(a.read[p])
		left += end - a.read[p]
		a.read[p] = end
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(a.b.servers, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{a.topic: from}))
	if err != nil {
		a.b.t.Fatal(err)
	}
	defer client.Close()
	for ctx := ctxFor(a.b.t, patience); int64(len(all)) < left; {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err0(); err != nil {
			a.b.t.Fatalf("read %s: %v", a.topic, err)
		}
		all = append(all, fetched.Records()...)
	}
	return all
}

// state is what the topic comes to: a map, and the order of each partition. The map is the test's, which may put into it what
// others write.
func (a *accounts) state() map[int64]account {
	a.b.t.Helper()
	for _, r := range a.unread() {
		var key account
		var e struct {
			account
			Op    string
			After *account
		}
		err := json.Unmarshal(r.Key, &key)
		if err == nil && r.Value != nil {
			err = json.Unmarshal(r.Value, &e)
		}
		if err != nil {
			a.b.t.Fatalf("%s: %v", r.Value, err)
		}
		old, there := a.rows[key.ID]
		if r.Value == nil || e.Op == "delete" || e.Op == "d" {
			delete(a.rows, key.ID)
			continue
		}
		now := e.account
		if e.After != nil {
			now = *e.After
		}
		if there && now.At < old.At {
			continue
		}
		if now.S == nil || *now.S == "__debezium_unavailable_value" {
			now.S = old.S
		}
		a.rows[key.ID] = now
	}
	return a.rows
}

// digest is that of rows in canonical form.
func (a *accounts) digest(t *testing.T, rows map[int64]account) string {
	t.Helper()
	var lines []string
	for _, row := range rows {
		cells := map[string]any{"id": row.ID, "n": row.N, "s": row.S, "at": row.At}
		maps.DeleteFunc(cells, func(column string, _ any) bool { return a.types[column] == "" })
		line, err := json.Marshal(cells)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line)+"\n")
	}
	slices.Sort(lines)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(lines, ""))))
}

// want fails unless an independent reader finds the rows, each key once in every version, and, where the table
// has a change feed, that it replays to the same.
func (a *accounts) want(t *testing.T, table string, rows map[int64]account, feed bool) {
	t.Helper()
	args := []string{table}
	if feed {
		args = append(args, "--feed")
	}
	var got struct {
		Rows         int
		SHA256, Feed string
		Version      int
		Twice        []int
	}
	if err := json.Unmarshal(reader(t, "keyed.py", args...), &got); err != nil {
		t.Fatal(err)
	}
	want := a.digest(t, rows)
	if got.Rows != len(rows) || got.SHA256 != want {
		t.Errorf("found %d rows, digest %s; the topic comes to %d, digest %s", got.Rows, got.SHA256, len(rows), want)
	}
	if len(got.Twice) > 0 {
		t.Errorf("a key is there twice in the versions %v", got.Twice)
	}
	if feed && got.Feed != want {
		t.Errorf("the change feed replays to digest %s, want %s", got.Feed, want)
	}
	t.Logf("%d rows, %d versions", got.Rows, got.Version)
}

// keyedPipeline is a pipeline file; formatted is YAML of the source.kafka level, target that of target.delta.
func (a *accounts) keyedPipeline(t *testing.T, table, index, formatted, target string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keyed.yaml")
	columns, err := json.Marshal(a.types)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`pipeline: keyed
namespace: bronze
source:
  kafka:
    brokers: ["%s"]
    topics: [%s]
    start: earliest
    group: "%s"
    instance_id: keyed
%s
  schema:
    columns: %s
target:
  delta:
    path: "%s"
    key: [id]
    index_dir: "%s"
    commit: {every: %s}
%s
`, a.b.servers, a.topic, filepath.Base(filepath.Dir(index))+a.topic, formatted, columns, table, index, a.every, target)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
