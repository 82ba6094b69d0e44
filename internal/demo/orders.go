package demo

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	states = []string{"placed", "paid", "packed", "sent", "arrived", "returned"}
	towns  = []string{"Passau", "Wien", "Ulm", "Linz", "Győr", "Budapest", "Novi Sad", "Ruse", "Galați",
		"Tulcea"}
	goods = []string{"oar", "anchor", "rope", "lantern", "compass", "bucket", "sail", "net", "rudder", "chart"}
	notes = []string{"leave at the lock", "ring twice", "behind the mill", "fragile, keep dry",
		"call before the bridge"}
)

// epoch is when order 0 was placed.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// AppendOrder appends order number n as JSON, about 230 bytes, to b.
func AppendOrder(b []byte, n int64) []byte {
	x := mix(uint64(n))
	b = append(b, `{"order_id":`...)
	b = strconv.AppendInt(b, n, 10)
	b = fmt.Appendf(b, `,"customer":"C%07d","article":"%s-%05d","state":"%s","pieces":%d,"price":%d.%02d,"placed_at":"`,
		x%2_000_000, goods[x>>21%10], x>>25%100_000, states[x>>42%6], 1+x>>45%9, x>>48%900, x>>58%100)
	b = epoch.Add(time.Duration(n)*7*time.Millisecond).AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	return fmt.Appendf(b, `","gift":%t,"note":"%s","ship_to":{"town":"%s","code":"%05d","express":%t}}`,
		x&64 != 0, notes[x>>7%5], towns[x>>10%10], x>>14%100_000, x&128 != 0)
}

// mix is the finaliser of SplitMix64: neighbours come out unrelated.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Produce sends orders from number first on, round robin over the partitions, until there are count of them
// (0: no limit) or ctx ends, which is no error; at most perSecond of them a second, 0 meaning as fast as they
// go. It returns the last offset of each partition that got any.
func Produce(ctx context.Context, broker string, first, count int64, perSecond int) (map[int32]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(20_000),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	p := producer{last: map[int32]int64{}}
	begin := time.Now()
	for i := int64(0); (count == 0 || i < count) && ctx.Err() == nil && !p.broken(); i++ {
		if perSecond > 0 && i%64 == 0 {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
			if !waitUntil(ctx, due) {
				break
			}
		}
		n := first + i
		client.Produce(ctx, &kgo.Record{Topic: Topic, Partition: int32(n % Partitions),
			Value: AppendOrder(nil, n)}, p.landed)
	}
	if err := client.Flush(context.WithoutCancel(ctx)); err != nil {
		return p.last, err
	}
	return p.last, p.failure(ctx)
}

// waitUntil waits for a time; it is false when ctx has ended before.
func waitUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// producer keeps what became of the records.
type producer struct {
	mu   sync.Mutex
	last map[int32]int64
	err  error
}

func (p *producer) landed(r *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = err
		return
	}
	p.last[r.Partition] = max(p.last[r.Partition], r.Offset)
}

func (p *producer) broken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}

func (p *producer) failure(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	return p.err
}

// Sent is how many orders the broker holds: the number of the next one.
func Sent(ctx context.Context, broker string) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list the ends of %s: %w", Topic, err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum, nil
}
