package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partition is a partition of a topic.
type partition struct {
	topic string
	n     int32
}

// topic is what the broker says of a topic.
type topic struct {
	name    string
	raw     [16]byte        // its id; zero where the broker is too old to have ids
	leaders map[int32]int32 // by partition, all of them
}

// id is the topic's id as Kafka prints it; "" where there is none.
func (t topic) id() string {
	if t.raw == [16]byte{} {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(t.raw[:])
}

func (t topic) partitions() []partition {
	var all []partition
	for _, n := range slices.Sorted(maps.Keys(t.leaders)) {
		all = append(all, partition{t.name, n})
	}
	return all
}

// The times that ListOffsets takes for the first offset and for the end.
const (
	earliest = -2
	latest   = -1
)

// describe returns what the broker says of these topics, or of all if names is nil. Topics that do not exist
// are absent.
func (s *Source) describe(ctx context.Context, names []string) (map[string]topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return nil, err
	}
	found := map[string]topic{}
	for _, rt := range resp.Topics {
		err := kerr.ErrorForCode(rt.ErrorCode)
		switch {
		case errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.InvalidTopicException) ||
			rt.Topic == nil || rt.IsInternal:
			continue
		case err != nil && !(names == nil && refused(err)) && !kerr.IsRetriable(err):
			return nil, fmt.Errorf("topic %s: %w", *rt.Topic, err)
		}
		t := topic{name: *rt.Topic, raw: rt.TopicID, leaders: map[int32]int32{}}
		for _, rp := range rt.Partitions {
			t.leaders[rp.Partition] = rp.Leader
		}
		if len(t.leaders) > 0 {
			found[t.name] = t
		}
	}
	return found, nil
}

// matching returns what the broker says of the topics that are to be read.
func (s *Source) matching(ctx context.Context) (map[string]topic, error) {
	if s.topics.Pattern == "" {
		return s.describe(ctx, s.topics.Names)
	}
	all, err := s.describe(ctx, nil)
	if err != nil {
		return nil, err
	}
	pattern, err := s.topics.regexp()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ topic) bool {
		return !pattern.MatchString(name) || slices.Contains(s.topics.Except, name)
	})
	return all, nil
}

// list asks for the offset of each partition at a time in milliseconds, or earliest or latest. A time after
// the last record gives -1. It waits outages out.
func (s *Source) list(ctx context.Context, parts []partition, at int64, stable bool) (
	map[partition]int64, error) {
	found := make(map[partition]int64, len(parts))
	if len(parts) == 0 {
		return found, nil
	}
	req := s.listRequest(parts, at, stable)
	err := s.waitOut(ctx, "list offsets", func() error {
		resp, err := req.RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("%s[%d]: %w", t.Topic, p.Partition, err)
				}
				found[partition{t.Topic, p.Partition}] = p.Offset
			}
		}
		if len(found) < len(parts) {
			return errors.New("the broker left partitions out")
		}
		return nil
	})
	return found, err
}

func (s *Source) listRequest(parts []partition, at int64, stable bool) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	if stable {
		req.IsolationLevel = 1
	}
	for name, ns := range byTopic(parts) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = name
		for _, n := range ns {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp, p.CurrentLeaderEpoch = n, at, -1
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// span is what a partition's log holds: [first, end).
type span struct{ first, end int64 }

// spans asks for both ends of each partition's log. With stable the end is that of what is decided.
func (s *Source) spans(ctx context.Context, parts []partition, stable bool) (map[partition]span, error) {
	var firsts map[partition]int64
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		firsts, failed = s.list(ctx, parts, earliest, false)
	}()
	ends, err := s.list(ctx, parts, latest, stable)
	<-done
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	spans := make(map[partition]span, len(parts))
	for p, first := range firsts {
		spans[p] = span{first, ends[p]}
	}
	return spans, nil
}

// committed returns what the group has committed of the partitions: the next offset to read. Absent: nothing.
func (s *Source) committed(ctx context.Context, parts []partition) (map[partition]int64, error) {
	found := map[partition]int64{}
	if s.o.Group == "" {
		return found, nil
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = s.o.Group
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = s.o.Group
	for name, ns := range byTopic(parts) {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = name, s.topic(name).raw, ns
		group.Topics = append(group.Topics, t)
	}
	req.Groups = append(req.Groups, group)
	err := s.waitOut(ctx, "fetch the group's offsets", func() error {
		resp, err := req.RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		for _, g := range resp.Groups {
			err := kerr.ErrorForCode(g.ErrorCode)
			if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
				return err
			}
			for _, t := range g.Topics {
				name := t.Topic
				if name == "" {
					name = s.nameOf(t.TopicID)
				}
				for _, p := range t.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						return fmt.Errorf("%s[%d]: %w", name, p.Partition, err)
					}
					if p.Offset >= 0 {
						found[partition{name, p.Partition}] = p.Offset
					}
				}
			}
		}
		return nil
	})
	return found, err
}

func byTopic(parts []partition) map[string][]int32 {
	topics := map[string][]int32{}
	for _, p := range parts {
		topics[p.topic] = append(topics[p.topic], p.n)
	}
	return topics
}

// waitOut repeats try until it succeeds, the broker refuses, or ctx ends.
func (s *Source) waitOut(ctx context.Context, what string, try func() error) error {
	wait, failed := 50*time.Millisecond, false
	defer func() {
		if failed {
			s.recovered(what)
		}
	}()
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case refused(err) || final(err):
			return s.refusedError(what, err)
		}
		failed = true
		s.retry(what, err)
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
