package interop_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestKill_AtRandomMoments_EachOffsetOnce kills the process again and again while four partitions are produced to.
func TestKill_AtRandomMoments_EachOffsetOnce(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	random := seeded(t)
	topic, table := b.topic(4, nil), filepath.Join(t.TempDir(), "t")
	file := pipeline(t, b, topic, table, "    instance_id: fire-kill")
	stop := b.feed(topic, 4, 20)
	for round := range rounds(t, 20) {
		p := start(t, nil, "run", file, "--progress", "off")
		pause(time.Duration(50+random.IntN(1200))*time.Millisecond, p.done)
		select {
		case <-p.done:
			t.Fatalf("round %d: freshet ended by itself: %v\n%s", round, p.err, tail(p.out.String(), 8000))
		default:
		}
		p.kill()
	}
	stop()
	start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	wantEachOnce(t, table, b.ends(topic))
}

// TestGroup_JoinFreezeThawDie_EachOffsetOnce has processes share a topic that grows by partitions: two, then five, by the
// classic protocol and by that of KIP-848, whose session timeout is the broker's.
func TestGroup_JoinFreezeThawDie_EachOffsetOnce(t *testing.T) {
	t.Parallel()
	for _, group := range []struct {
		size            int
		rebalance, kind string
	}{
		{2, "cooperative", "classic"}, {5, "cooperative", "classic"},
		{2, "kip848", "consumer"}, {5, "kip848", "consumer"},
	} {
		t.Run(fmt.Sprintf("%d %s", group.size, group.kind), func(t *testing.T) {
			t.Parallel()
			size := group.size
			b := needBroker(t)
			needReaders(t)
			random := seeded(t)
			topic, table := b.topic(4, nil), filepath.Join(t.TempDir(), "t")
			file := pipeline(t, b, topic, table,
				fmt.Sprintf("    group: %s\n    session_timeout: 6s\n    rebalance: %s", topic, group.rebalance))
			stop := b.feed(topic, 4, 10)
			members := make([]*process, size)
			for i := range members {
				members[i] = start(t, nil, "run", file, "--progress", "off")
				pause(time.Duration(random.IntN(800))*time.Millisecond, nil)
			}
			for round := range 4 {
				m := members[random.IntN(size)]
				switch round {
				case 0, 2: // frozen past the session timeout, thawed as a zombie
					m.signal(syscall.SIGSTOP)
					pause(time.Duration(7000+random.IntN(1500))*time.Millisecond, nil)
					m.signal(syscall.SIGCONT)
				case 1: // dies, another takes its place
					m.kill()
					i := indexOf(members, m)
					members[i] = start(t, nil, "run", file, "--progress", "off")
				case 3:
					if _, err := b.admin.UpdatePartitions(ctxFor(t, patience), 6, topic); err != nil {
						t.Fatal(err)
					}
				}
				pause(time.Duration(500+random.IntN(1500))*time.Millisecond, nil)
			}
			b.wantGroup(topic, group.kind)
			b.await(topic, 6)
			grown := connect(t, b.servers) // the other client may not know the new partitions yet
			for p := range int32(2) {
				for n := range 100 {
					grown.produce(event(topic, 4+p, n))
				}
			}
			stop()
			for _, m := range members {
				select {
				case <-m.done:
					t.Errorf("a member ended by itself: %v\n%s", m.err, tail(m.out.String(), 6000))
				default:
				}
				m.signal(syscall.SIGTERM)
			}
			for _, m := range members {
				m.mustEnd(patience)
			}
			start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
			wantEachOnce(t, table, b.ends(topic))
		})
	}
}

// wantGroup fails unless the group runs by the protocol of this kind.
func (b *broker) wantGroup(name, kind string) {
	b.t.Helper()
	groups, err := b.admin.ListGroups(ctxFor(b.t, patience))
	if err != nil {
		b.t.Fatal(err)
	}
	if got := groups[name].GroupType; got != kind {
		b.t.Errorf("group %s is of the type %q, want %q", name, got, kind)
	}
}

func indexOf(members []*process, m *process) int {
	for i := range members {
		if members[i] == m {
			return i
		}
	}
	return -1
}

// TestSameApp_FrozenBetweenFetchAndCommit_OneWinsEachCommit runs two processes that both read everything into one table
// under one app, and freezes them in turn, so that each finds the other half a batch ahead.
func TestSameApp_FrozenBetweenFetchAndCommit_OneWinsEachCommit(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	random := seeded(t)
	topic, table := b.topic(4, nil), filepath.Join(t.TempDir(), "t")
	one := pipeline(t, b, topic, table, "    group: fire-one-"+topic)
	two := pipeline(t, b, topic, table, "    group: fire-two-"+topic)
	stop := b.feed(topic, 4, 20)
	copies := []*process{start(t, nil, "run", one, "--progress", "off"), start(t, nil, "run", two, "--progress", "off")}
	for range 12 {
		m := copies[random.IntN(2)]
		m.signal(syscall.SIGSTOP)
		pause(time.Duration(50+random.IntN(600))*time.Millisecond, nil)
		m.signal(syscall.SIGCONT)
		pause(time.Duration(random.IntN(300))*time.Millisecond, nil)
	}
	stop()
	for _, m := range copies {
		select {
		case <-m.done:
			t.Errorf("a copy ended by itself: %v\n%s", m.err, tail(m.out.String(), 6000))
		default:
		}
		m.signal(syscall.SIGTERM)
	}
	for _, m := range copies {
		m.mustEnd(patience)
	}
	start(t, nil, "run", one, "--until-caught-up", "--progress", "off").mustEnd(patience)
	wantEachOnce(t, table, b.ends(topic))
}
