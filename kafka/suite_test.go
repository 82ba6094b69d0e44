package kafka_test

import (
	"fmt"
	"testing"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/kafka"
)

func TestSource_AgainstTheSuite(t *testing.T) {
	freshettest.RunSource(t, func(t *testing.T) freshettest.SourceHarness {
		b := newBroker(t)
		b.topic("orders", 3)
		h := freshettest.SourceHarness{Rows: map[string][]int64{}, Rejects: map[string][]int64{}}
		for p := range int32(2) { // the third stays empty
			lane := fmt.Sprintf("orders[%d]", p)
			for seq := range int64(8) {
				switch {
				case seq == 3:
					b.put("orders", p, "!")
					h.Rejects[lane] = append(h.Rejects[lane], seq)
				case seq == 5:
					b.put("orders", p, "")
				default:
					b.put("orders", p, fmt.Sprintf("seq=%d lane=%s", seq, lane))
					h.Rows[lane] = append(h.Rows[lane], seq)
				}
			}
		}
		processes := 0
		h.New = func(t *testing.T) freshet.Source {
			processes++
			return b.source("orders", func(o *kafka.Options) {
				o.Bounded = true
				o.Group = fmt.Sprint("app", processes) // a process that has died holds its partitions for a while
			})
		}
		return h
	})
}
