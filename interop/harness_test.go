package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// seeded returns the test's random source; FRESHET_SEED=N repeats a run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FRESHET_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("FRESHET_SEED=%s: %v", s, err)
		}
		seed = n
	}
	t.Logf("seed: FRESHET_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// rounds is how often a test with faults repeats them: n, unless FRESHET_FIRE_ROUNDS says otherwise.
func rounds(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv("FRESHET_FIRE_ROUNDS"); s != "" {
		m, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("FRESHET_FIRE_ROUNDS=%s: %v", s, err)
		}
		return m
	}
	return n
}

// patience is how long a test waits for what must happen; on an idle machine seconds are enough.
const patience = 5 * time.Minute

// pause waits for d of real time, or less when done is closed first: for faults that strike at random moments.
func pause(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

var built struct {
	sync.Once
	path string
	err  error
}

// binary builds the command once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		dir, err := os.MkdirTemp("", "freshet-fire-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "freshet")
		out, err := exec.Command("go", "build", "-o", built.path, "../cmd/freshet").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// process is a running freshet.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *lockedBuffer
	done chan struct{} // closed when it has ended
	err  error         // of Wait; valid once done is closed
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs freshet with these arguments; the test's end kills it.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, out: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(binary(t), args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
	})
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill is SIGKILL, and waits for the end.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// exit waits for the process to end and returns its exit code; a test that waits too long fails.
func (p *process) exit(limit time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("freshet did not end within %v:\n%s", limit, tail(p.out.String(), 8000))
	}
	return p.cmd.ProcessState.ExitCode()
}

// mustEnd waits for exit code 0.
func (p *process) mustEnd(limit time.Duration) {
	p.t.Helper()
	if code := p.exit(limit); code != 0 {
		p.t.Fatalf("exit code %d, want 0:\n%s", code, tail(p.out.String(), 8000))
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// ctxFor ends before the test does.
func ctxFor(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// broker is the announced Kafka broker, as an independent client sees it.
type broker struct {
	t       *testing.T
	servers string
	client  *kgo.Client
	admin   *kadm.Client
}

func needBroker(t *testing.T) *broker {
	t.Helper()
	servers := os.Getenv("KAFKA_BROKERS")
	if servers == "" {
		t.Skip("needs a real Kafka broker: KAFKA_BROKERS is not set (interop/README.md)")
	}
	return connect(t, servers)
}

func connect(t *testing.T, servers string) *broker {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(16<<20),
		kgo.MaxBufferedRecords(1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &broker{t: t, servers: servers, client: client, admin: kadm.NewClient(client)}
}

// topic makes a topic of a fresh name.
func (b *broker) topic(partitions int32, configs map[string]string) string {
	b.t.Helper()
	name := fmt.Sprintf("fire-%s-%d", strings.ToLower(strings.ReplaceAll(b.t.Name(), "/", "-")), time.Now().UnixNano())
	b.makeTopic(name, partitions, configs)
	return name
}

func (b *broker) makeTopic(name string, partitions int32, configs map[string]string) {
	b.t.Helper()
	settings := map[string]*string{}
	for k, v := range configs {
		settings[k] = &v
	}
	if _, err := b.admin.CreateTopic(ctxFor(b.t, patience), partitions, 1, settings, name); err != nil {
		b.t.Fatalf("create topic %s: %v", name, err)
	}
	b.await(name, int(partitions))
}

// await waits until the brokers tell of that many partitions.
func (b *broker) await(topic string, partitions int) {
	b.t.Helper()
	waitUntil(b.t, patience, fmt.Sprintf("%s has %d partitions", topic, partitions), func() bool {
		found, err := b.admin.ListTopics(ctxFor(b.t, patience), topic)
		return err == nil && len(found[topic].Partitions) == partitions
	})
}

// produce sends records and waits for all acknowledgements.
func (b *broker) produce(records ...*kgo.Record) {
	b.t.Helper()
	if err := b.client.ProduceSync(ctxFor(b.t, patience), records...).FirstErr(); err != nil {
		b.t.Fatalf("produce: %v", err)
	}
}

// event is the record with number n of its partition, a small order.
func event(topic string, partition int32, n int) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil,
		`{"id":%d,"part":%d,"s":"order %d of %d","amount":%d.%02d}`, n, partition, n, partition, n%900, n%100)}
}

// feed produces to all partitions, about perTick records a partition each 10 ms, until stopped; stop waits for the last
// acknowledgement.
func (b *broker) feed(topic string, partitions int32, perTick int) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		var once sync.Once
		for n := 0; ; n += perTick {
			select {
			case <-quit:
				if err := b.client.Flush(context.Background()); err != nil {
					failed = err
				}
				return
			case <-ticker.C:
			}
			for p := range partitions {
				for i := range perTick {
					b.client.Produce(context.Background(), event(topic, p, n+i), func(_ *kgo.Record, err error) {
						if err != nil {
							once.Do(func() { failed = err })
						}
					})
				}
			}
		}
	}()
	var stopped sync.Once
	stop = func() {
		stopped.Do(func() {
			close(quit)
			<-ended
			if failed != nil {
				b.t.Errorf("producer: %v", failed)
			}
		})
	}
	b.t.Cleanup(stop)
	return stop
}

// ends are the end offsets of the topic's partitions.
func (b *broker) ends(topic string) map[int32]int64 {
	b.t.Helper()
	listed, err := b.admin.ListEndOffsets(ctxFor(b.t, patience), topic)
	if err != nil {
		b.t.Fatal(err)
	}
	ends := map[int32]int64{}
	for p, o := range listed[topic] {
		if o.Err != nil {
			b.t.Fatal(o.Err)
		}
		ends[p] = o.Offset
	}
	return ends
}

// counted is what readers/once.py tells of a table.
type counted struct {
	Rows, Distinct, Version int64
	Lanes                   map[string]struct {
		Rows, Distinct, Min, Max int64
		SHA256                   string
	}
}

func needReaders(t *testing.T) {
	t.Helper()
	home := os.Getenv("FRESHET_PEERS")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		home = filepath.Join(user, ".cache", "freshet-peers")
	}
	if _, err := os.Stat(filepath.Join(home, "readers", "made-from")); err != nil {
		t.Skip("needs the other engines: run interop/readers/setup (interop/README.md)")
	}
}

// reader runs a script of readers/ and returns its standard output.
func reader(t *testing.T, script string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join("readers", script), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s\n%s", script, args, err, tail(string(out), 4000), tail(errs.String(), 4000))
	}
	return out
}

func count(t *testing.T, table string, args ...string) counted {
	t.Helper()
	var c counted
	if err := json.Unmarshal(reader(t, "once.py", append([]string{table}, args...)...), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantEachOnce fails unless an independent reader finds every offset below ends once.
func wantEachOnce(t *testing.T, table string, ends map[int32]int64) {
	t.Helper()
	got := count(t, table)
	var want int64
	for p, end := range ends {
		want += end
		lane := got.Lanes[strconv.Itoa(int(p))]
		if lane.Rows != end || lane.Distinct != end || end > 0 && (lane.Min != 0 || lane.Max != end-1) {
			t.Errorf("partition %d: %d rows, %d offsets %d..%d; want each of 0..%d once: lost %d, doubled %d", p, lane.Rows,
				lane.Distinct, lane.Min, lane.Max, end-1, end-lane.Distinct, lane.Rows-lane.Distinct)
		}
	}
	if got.Rows != want {
		t.Errorf("%d rows, want %d", got.Rows, want)
	}
	t.Logf("rows in %d, found once %d, twice %d, lost %d; table version %d", want, got.Distinct,
		got.Rows-got.Distinct, want-got.Distinct, got.Version)
}

// pipeline writes a pipeline file for the events of feed, and returns its path. more is YAML of the source.kafka level,
// indented by four blanks.
func pipeline(t *testing.T, b *broker, topic, table, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fire.yaml")
	text := fmt.Sprintf(`pipeline: fire
namespace: bronze
source:
  kafka:
    brokers: ["%s"]
    topics: [%s]
    start: earliest
    format: json
    metadata: [partition, offset]
%s
  schema:
    columns: {id: bigint not null, part: int, s: string, amount: "decimal(18,2)"}
target:
  delta: {path: "%s", mode: append, commit: {every: 150ms}}
`, b.servers, topic, more, table)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
