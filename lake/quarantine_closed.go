package lake

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// entryPlace is what tells an entry from all others.
type entryPlace struct {
	app, table string
	lane       freshet.Lane
	at         place
}

func (e *Entry) place() entryPlace { return entryPlace{e.App, e.Table, e.Lane, place{e.Seq, e.Row}} }

// closing are the entries of a place that are not open any more. There may be several: what was rejected before a crash is closed,
// and rejected anew, when it is read again, and where rows are read that are no changes of a log, others may be rejected at its place. So those that
// were rejected first are closed.
type closing struct {
	n        int         // that are closed
	rejected []time.Time // when each was rejected, in order
	last     int         // of those that were rejected when the last of these was, so many are closed
}

// has reports whether an entry that was rejected then is among them. It is to be asked of each entry once. nil has none.
func (c *closing) has(rejected time.Time) bool {
	if c == nil {
		return false
	}
	until := c.rejected[min(c.n, len(c.rejected))-1]
	if rejected.Equal(until) {
		c.last--
		return c.last >= 0
	}
	return rejected.Before(until)
}

// closings finds, by place, which entries are not open any more.
func closings(ctx context.Context, snap *delta.Snapshot, where []string) (map[entryPlace]*closing, error) {
	closed := map[entryPlace]*closing{}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	err := eachPlace(ctx, snap, append(where[:len(where):len(where)], "event <> 'rejected'", "event <> 'replaying'"),
		func(at entryPlace, _ time.Time) {
			if closed[at] == nil {
				closed[at] = &closing{}
			}
			closed[at].n++
			low, high = min(low, at.at.seq), max(high, at.at.seq)
		})
	if err != nil || len(closed) == 0 {
		return closed, err
	}
	where = append(where[:len(where):len(where)], "event = 'rejected'", fmt.Sprintf("seq BETWEEN %d AND %d", low, high))
	err = eachPlace(ctx, snap, where, func(at entryPlace, when time.Time) {
		if c := closed[at]; c != nil {
			c.rejected = append(c.rejected, when)
		}
	})
	for at, c := range closed {
		if len(c.rejected) == 0 {
			delete(closed, at)
			continue
		}
		slices.SortFunc(c.rejected, time.Time.Compare)
		first := c.rejected[:min(c.n, len(c.rejected))]
		for _, when := range first {
			if when.Equal(first[len(first)-1]) {
				c.last++
			}
		}
	}
	return closed, err
}

// eachPlace visits rows that meet the conditions, with when they were written.
func eachPlace(ctx context.Context, snap *delta.Snapshot, where []string, visit func(entryPlace, time.Time)) error {
	condition, err := parseCondition(where)
	if err != nil {
		return err
	}
	columns := []string{"origin", "origin_id", "lane", "seq", "row", "app", "table_name", "quarantined_at"}
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: columns, Where: condition}) {
		if err != nil {
			return err
		}
		places(rec, visit)
		rec.Release()
	}
	return nil
}

// places visits the rows of a scan of eachPlace.
func places(rec arrow.RecordBatch, visit func(entryPlace, time.Time)) {
	text := func(c, i int) string { return strings.Clone(rec.Column(c).(*array.String).Value(i)) }
	for i := range int(rec.NumRows()) {
		l := freshet.Lane{Origin: text(0, i), OriginID: text(1, i), Name: text(2, i)}
		at := place{rec.Column(3).(*array.Int64).Value(i), rec.Column(4).(*array.Int32).Value(i)}
		visit(entryPlace{text(5, i), text(6, i), l, at}, moment(rec.Column(7), i))
	}
}
