package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ackAll is the goroutine that commits the group's offsets, the newest at a time. At the end it has a second
// for the last.
func (s *Source) ackAll() {
	for {
		select {
		case <-s.acked:
			s.commitAcks(s.life)
		case <-s.life.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), time.Second)
			defer cancel()
			s.commitAcks(ctx)
			return
		}
	}
}

// commitAcks commits what is ackable. What fails is tried again with the next commit, unless that says more.
func (s *Source) commitAcks(ctx context.Context) {
	s.mu.Lock()
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for p, next := range s.ackable {
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.topic][p.n] = kgo.EpochOffset{Epoch: -1, Offset: next}
	}
	clear(s.ackable)
	s.mu.Unlock()
	if len(offsets) == 0 || s.o.Group == "" {
		return
	}
	var err error
	if len(s.o.Partitions) > 0 {
		err = s.commitByHand(ctx, offsets)
	} else {
		s.client.CommitOffsetsSync(ctx, offsets,
			func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, e error) { err = e })
	}
	if err == nil {
		return
	}
	if ctx.Err() == nil {
		s.putOff("commit the group's offsets", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ns := range offsets {
		for n, o := range ns {
			p := partition{name, n}
			if _, newer := s.ackable[p]; !newer && s.lanes[p] != nil {
				s.ackable[p] = o.Offset
			}
		}
	}
}

// commitByHand commits for a group that we are not a member of.
func (s *Source) commitByHand(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = s.o.Group, -1
	for name, ns := range offsets {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = name, s.topic(name).raw
		for n, o := range ns {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset = n, o.Offset
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
