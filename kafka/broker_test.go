package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

// broker is a fake one that speaks the real protocol, and a client to fill it.
type broker struct {
	*kfake.Cluster
	*kgo.Client
	t *testing.T
}

func newBroker(t *testing.T, opts ...kfake.Opt) *broker {
	t.Helper()
	return newBrokerFor(t, kgo.ProducerLinger(0), opts...)
}

// patience is how long a test waits for what must happen; on an idle machine a second is enough.
const patience = 2 * time.Minute

// shortSessions lets tests be quick.
var shortSessions = kfake.GroupMinSessionTimeout(10 * time.Millisecond)

// newBrokerFor makes a broker that its own client reaches with the option.
func newBrokerFor(t *testing.T, client kgo.Opt, opts ...kfake.Opt) *broker {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), shortSessions}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &broker{c, newClient(t, c, client), t}
}

func newClient(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(20 << 20), kgo.MaxBufferedBytes(100 << 20),
		kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (b *broker) topic(name string, partitions int32, config ...string) {
	b.t.Helper()
	configs := map[string]string{}
	for i := 0; i < len(config); i += 2 {
		configs[config[i]] = config[i+1]
	}
	if err := b.CreateTopic(name, partitions, configs); err != nil {
		b.t.Fatal(err)
	}
}

// put produces one record a value, "" for a tombstone, and returns the rows that they become.
func (b *broker) put(topic string, partition int32, values ...string) []string {
	b.t.Helper()
	var records []*kgo.Record
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
		if v == "" {
			r.Key, r.Value = []byte("k"), nil
		}
		records = append(records, r)
	}
	return b.putRecords(records...)
}

func (b *broker) putRecords(records ...*kgo.Record) []string {
	b.t.Helper()
	if err := b.ProduceSync(b.t.Context(), records...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
	var rows []string
	for _, r := range records {
		rows = append(rows, fmt.Sprintf("%s[%d]@%d %s", r.Topic, r.Partition, r.Offset, r.Value))
	}
	return rows
}

// fill puts n records into each of the partitions.
func (b *broker) fill(topic string, partitions int32, n int) []string {
	b.t.Helper()
	var rows []string
	for p := range partitions {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprintf("n=%d", i)
		}
		rows = append(rows, b.put(topic, p, values...)...)
	}
	return rows
}

// source makes a source of the topic into the table "t", quick to notice things.
func (b *broker) source(topic string, change func(*kafka.Options)) *kafka.Source {
	b.t.Helper()
	return b.sourceOf(kafka.Topics{Names: []string{topic}}, kafka.RouteTo("t"), change)
}

func (b *broker) sourceOf(topics kafka.Topics, route func(string) string,
	change func(*kafka.Options)) *kafka.Source {
	b.t.Helper()
	o := &kafka.Options{Group: "app", MetadataAge: 100 * time.Millisecond, SessionTimeout: 3 * time.Second,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil))}
	if change != nil {
		change(o)
	}
	src, err := kafka.NewSource(b.ListenAddrs(), topics, route, pairs{}, o)
	if err != nil {
		b.t.Fatal(err)
	}
	return src
}

func bounded(o *kafka.Options) { o.Bounded = true }

// catchUp runs a bounded source into the sink.
func (b *broker) catchUp(k *sink, topic string, change func(*kafka.Options)) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	err := k.copy(b.t).run(ctx, b.source(topic, func(o *kafka.Options) {
		o.Bounded = true
		if change != nil {
			change(o)
		}
	}))
	if ctx.Err() != nil {
		b.t.Fatal("the source did not end")
	}
	return err
}

func (b *broker) mustCatchUp(k *sink, topic string, change func(*kafka.Options)) {
	b.t.Helper()
	if err := b.catchUp(k, topic, change); err != nil {
		b.t.Fatal(err)
	}
}

// follow runs the source into the sink until the test ends or stop is called, which returns its error.
func (b *broker) follow(k *sink, src *kafka.Source) (c *copyOf, stop func() error) {
	ctx, cancel := context.WithCancel(b.t.Context())
	c = k.copy(b.t)
	done := make(chan error, 1)
	go func() { done <- c.run(ctx, src) }()
	var err error
	stopped := false
	stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			err = <-done
		}
		return err
	}
	b.t.Cleanup(func() {
		if err := stop(); err != nil {
			b.t.Logf("source: %v", err)
		}
	})
	return c, stop
}

// failure runs the source until it fails by itself.
func (b *broker) failure(k *sink, src *kafka.Source) error {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	err := k.copy(b.t).run(ctx, src)
	if err == nil {
		b.t.Fatal("got no error")
	}
	return err
}

// wantCode checks the error's code and returns it.
func wantCode(t *testing.T, err error, code freshet.Code) *freshet.Error {
	t.Helper()
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	return e
}
