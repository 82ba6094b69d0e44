package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// earliestLocal is the time that ListOffsets takes for the first offset that is on the broker's own disk.
const earliestLocal = -4

// certain is how often in a row a broker must say that there is nothing, where there should be something, to
// be believed.
const certain = 3

// passHoles moves bounded lanes on over offsets that hold no record: compacted, aborted, or markers of
// transactions. The client passes over them in silence. It looks the less often, the longer nothing comes,
// and at some lanes at a time.
func (r *reader) passHoles(lanes []*lane) {
	if time.Since(r.probed) < r.patient {
		return
	}
	r.patient = min(2*r.patient+idle, 5*time.Second)
	start := time.Now()
	for _, l := range lanes {
		if l.gone.Load() || time.Since(start) > time.Second {
			continue
		}
		next, ok := r.probe(r.life, l)
		if !ok {
			continue
		}
		next = min(next, l.end)
		j := &job{lane: l, after: l.next - 1, last: next - 1, read: time.Now(), done: make(chan struct{})}
		l.next, l.empty = next, 0
		r.pauseDone(l)
		r.pass(j)
		r.patient = 0
	}
	r.probed = time.Now()
}

// probe returns the offset up to which the log holds no record from the lane's next on. It asks for the one
// lane alone: in a fetch of several a broker fills the answer with the first ones and leaves the others
// empty, whatever they hold.
func (s *Source) probe(ctx context.Context, l *lane) (int64, bool) {
	t := s.topic(l.topic)
	leader, ok := t.leaders[l.n]
	if !ok {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := s.client.Broker(int(leader)).Request(ctx, s.probeRequest(l, t))
	if err != nil {
		s.putOff("look for what comes next", err)
		return 0, false
	}
	answer := resp.(*kmsg.FetchResponse)
	if answer.ErrorCode != 0 || len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, false
	}
	p := &answer.Topics[0].Partitions[0]
	switch {
	case p.ErrorCode != 0:
		return 0, false
	case len(p.RecordBatches) > 0:
		return s.recordless(l, p)
	case answer.ThrottleMillis > 0:
		return 0, false
	}
	return s.nothing(ctx, l, p)
}

func (s *Source) probeRequest(l *lane, t topic) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch, req.MaxWaitMillis, req.MinBytes = -1, -1, 500, 1
	req.MaxBytes = 1 // one batch comes, however large it is
	if !s.o.ReadUncommitted {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.name, t.raw
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = l.n, l.next, -1, 1
	p.LastFetchedEpoch, p.LogStartOffset = -1, -1
	rt.Partitions = append(rt.Partitions, p)
	req.Topics = append(req.Topics, rt)
	return req
}

// recordless is for an answer with batches, of which all records may be aborted or compacted away.
func (s *Source) recordless(l *lane, p *kmsg.FetchResponseTopicPartition) (int64, bool) {
	o := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Offset: l.next, Topic: l.topic, Partition: l.n}
	if !s.o.ReadUncommitted {
		o.IsolationLevel = kgo.ReadCommitted()
	}
	fp, next := kgo.ProcessFetchPartition(o, p, kgo.DefaultDecompressor(), nil)
	return next, fp.Err == nil && len(fp.Records) == 0 && next > l.next
}

// nothing is for an answer without batches, although the log goes on: compaction may have removed whole
// batches up to the end. But a broker that has yet to fetch from tiered storage answers so too. Hence it must
// say so several times, and of offsets that are on its own disk.
func (s *Source) nothing(ctx context.Context, l *lane, p *kmsg.FetchResponseTopicPartition) (int64, bool) {
	end := p.HighWatermark
	if !s.o.ReadUncommitted {
		end = p.LastStableOffset
	}
	if end <= l.next {
		return 0, false
	}
	l.empty++
	if l.empty < certain {
		return 0, false
	}
	if l.empty == certain {
		s.log.Warn("the broker delivers nothing, although the log goes on",
			"position", l.Position(l.next), "end", end)
	}
	return end, s.onDisk(ctx, l)
}

// onDisk reports whether the lane's next offset is on the broker's own disk. A broker that does not know the
// question has no other place.
func (s *Source) onDisk(ctx context.Context, l *lane) bool {
	resp, err := s.listRequest([]partition{l.partition}, earliestLocal, false).RequestWith(ctx, s.client)
	if err != nil || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return false
	}
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode == kerr.UnsupportedVersion.Code {
		return true
	}
	return p.ErrorCode == 0 && p.Offset >= 0 && p.Offset <= l.next
}
