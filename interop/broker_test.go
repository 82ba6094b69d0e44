package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestBroker_Restarts_EachOffsetOnce kills and stops a broker of its own under a running process.
func TestBroker_Restarts_EachOffsetOnce(t *testing.T) {
	t.Parallel()
	needBroker(t)
	needReaders(t)
	dir := filepath.Join(t.TempDir(), "kafka")
	servers := "servers/kafka"
	run := func(args ...string) string {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.Command(servers, args...)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", servers, args, err, tail(errs.String(), 4000))
		}
		return string(out)
	}
	env := run("start", dir, "--port", "21592")
	t.Cleanup(func() { _ = exec.Command(servers, "stop", dir, "--kill").Run() })
	b := connect(t, regexp.MustCompile(`KAFKA_BROKERS=(\S+)`).FindStringSubmatch(env)[1])
	topic, table := b.topic(4, nil), filepath.Join(t.TempDir(), "t")
	file := pipeline(t, b, topic, table, "")
	stop := b.feed(topic, 4, 5)
	p := start(t, nil, "run", file, "--progress", "off")
	for _, how := range []string{"--kill", ""} {
		pause(2*time.Second, p.done)
		if how == "" {
			run("stop", dir)
		} else {
			run("stop", dir, how)
		}
		pause(time.Second, p.done)
		run("start", dir)
	}
	pause(2*time.Second, p.done)
	stop()
	if ended(p) {
		t.Fatalf("freshet ended by itself: %v\n%s", p.err, tail(p.out.String(), 8000))
	}
	p.kill()
	start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	wantEachOnce(t, table, b.ends(topic))
}

// TestTopic_TransactionsHolesTombstones_SameAsAnIndependentConsumer fills a topic with everything that makes offsets
// skip: aborted transactions, control records, compaction, a tombstone, an empty partition, and a message of 10 MB.
func TestTopic_TransactionsHolesTombstones_SameAsAnIndependentConsumer(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("needs kcat, an independent Kafka client (Debian package kcat)")
	}
	topic := b.topic(4, map[string]string{"max.message.bytes": strconv.Itoa(20 << 20)})
	transactions(t, b, topic)
	huge := event(topic, 1, 7)
	huge.Value = []byte(strings.Replace(string(huge.Value), `"order 7`, `"`+strings.Repeat("x", 10<<20)+` order 7`, 1))
	tombstone := &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k")}
	b.produce(event(topic, 1, 1), huge, tombstone, event(topic, 1, 2))
	// partition 3 stays empty

	table := filepath.Join(t.TempDir(), "t")
	file := pipeline(t, b, topic, table, "")
	for range 2 { // the second run finds nothing new, and ends
		start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	}
	wantSameAsKcat(t, b, topic, table)
}

// TestTopic_Compacted_SameAsAnIndependentConsumer has the real cleaner make the holes.
func TestTopic_Compacted_SameAsAnIndependentConsumer(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("needs kcat, an independent Kafka client (Debian package kcat)")
	}
	ctx := ctxFor(t, patience)
	backoff := "200"
	if _, err := b.admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "log.cleaner.backoff.ms", Value: &backoff}}); err != nil {
		t.Fatal(err)
	}
	topic := b.topic(1, map[string]string{"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "100",
		"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "500", "min.compaction.lag.ms": "0"})
	for n := range 5000 {
		r := event(topic, 0, n)
		r.Key = fmt.Appendf(nil, "k%d", n%10)
		b.client.Produce(ctx, r, nil)
	}
	if err := b.client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, patience, "the cleaner has made holes", func() bool {
		r := event(topic, 0, 1) // rolls the segment
		r.Key = []byte("roll")
		b.produce(r)
		return int64(len(kcat(t, b, topic))) < b.ends(topic)[0]/2
	})
	table := filepath.Join(t.TempDir(), "t")
	file := pipeline(t, b, topic, table, "")
	start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	// The cleaner may have gone on meanwhile: all that is left now must be there, and nothing twice.
	got := count(t, table)
	left := kcat(t, b, topic)
	if got.Rows != got.Distinct || got.Rows < int64(len(left)) {
		t.Errorf("%d rows, %d distinct; an independent consumer still sees %d", got.Rows, got.Distinct, len(left))
	}
	if got.Rows >= b.ends(topic)[0] {
		t.Errorf("%d rows of %d offsets: no hole was read over", got.Rows, b.ends(topic)[0])
	}
}

// transactions produces committed and aborted transactions to partitions 0 and 2, an aborted one last.
func transactions(t *testing.T, b *broker, topic string) {
	t.Helper()
	ctx := ctxFor(t, patience)
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(b.servers, ",")...), kgo.TransactionalID("fire-"+topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for turn := range 9 {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for n := range 30 {
			client.Produce(ctx, event(topic, int32(n%2)*2, turn*100+n), nil)
		}
		if err := client.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		commit := kgo.TryCommit
		if turn%2 == 0 {
			commit = kgo.TryAbort
		}
		if err := client.EndTransaction(ctx, commit); err != nil {
			t.Fatal(err)
		}
	}
}

// kcat lists "partition offset" of every record with a value that a read-committed consumer of librdkafka sees.
func kcat(t *testing.T, b *broker, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", "-C", "-q", "-e", "-o", "beginning", "-b", b.servers, "-t", topic,
		"-X", "isolation.level=read_committed", "-X", "fetch.message.max.bytes=20000000",
		"-X", "receive.message.max.bytes=100000000", "-f", "%p %o %S\\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kcat: %v", err)
	}
	var lines []string
	for line := range strings.Lines(string(bytes.TrimSpace(out))) {
		if f := strings.Fields(line); len(f) == 3 && f[2] != "-1" {
			lines = append(lines, f[0]+" "+f[1])
		}
	}
	return lines
}

func wantSameAsKcat(t *testing.T, b *broker, topic, table string) {
	t.Helper()
	want := kcat(t, b, topic)
	got := strings.Fields(string(reader(t, "once.py", table, "--list")))
	var pairs []string
	for i := 0; i+1 < len(got); i += 2 {
		pairs = append(pairs, got[i]+" "+got[i+1])
	}
	sort.Strings(want)
	sort.Strings(pairs)
	if strings.Join(pairs, "\n") != strings.Join(want, "\n") {
		t.Errorf("the table holds %d records, an independent consumer sees %d", len(pairs), len(want))
	}
	t.Logf("rows in %d, found %d", len(want), len(pairs))
}
