package freshet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// script is a source that delivers given stretches of lanes, which it has started at -1.
type script struct {
	lanes     []freshet.Lane
	stretches []stretch
	down      freshet.Downstream
	memory    *memory.CheckedAllocator // of all rows
}

// stretch is the records (after, last] of a lane; every third of them is a reject.
type stretch struct {
	lane        freshet.Lane
	after, last int64
}

func (s *script) Open(ctx context.Context, down freshet.Downstream) error {
	s.down = down
	if err := down.Ensure(ctx, "t", freshettest.Schema()); err != nil {
		return err
	}
	starts := freshet.Progress{}
	for _, l := range s.lanes {
		starts[l] = -1
	}
	if _, err := down.Resume(ctx, "t", s.lanes); err != nil {
		return err
	}
	_, err := down.Start(ctx, "t", starts)
	return err
}

func (s *script) Next(context.Context) (*freshet.Batch, error) {
	if len(s.stretches) == 0 {
		return nil, io.EOF
	}
	at := s.stretches[0]
	s.stretches = s.stretches[1:]
	b := &freshet.Batch{Table: "t", Lane: at.lane, After: at.after, Last: at.last}
	rows := array.NewRecordBuilder(s.memory, freshettest.Schema())
	defer rows.Release()
	for seq := at.after + 1; seq <= at.last; seq++ {
		if seq%3 == 2 {
			b.Rejects = append(b.Rejects, freshet.Reject{Seq: seq, Code: freshet.CodeMalformed})
			continue
		}
		rows.Field(0).(*array.StringBuilder).Append(at.lane.String())
		rows.Field(1).(*array.Int64Builder).Append(seq)
		b.Seqs = append(b.Seqs, seq)
		b.Kinds = append(b.Kinds, freshet.Insert)
		b.Records = append(b.Records, &freshet.Record{Raw: fmt.Append(nil, seq)})
	}
	b.Rows = rows.NewRecordBatch()
	return b, nil
}

func (s *script) Rewind(context.Context, string) error { return errors.New("rewound without need") }

func (s *script) Ack(context.Context, string, freshet.Progress) error { return nil }

func (s *script) Close(context.Context) error { return nil }

// aligned is a target that fails when the parts of a batch do not belong together.
type aligned struct {
	freshet.Target
	t *testing.T
}

func (a aligned) Write(ctx context.Context, b *freshet.Batch) (int64, error) {
	n := b.NumRows()
	if len(b.Seqs) != n || len(b.Kinds) != n || len(b.Records) != n {
		a.t.Errorf("%s: got %d rows, %d seqs, %d kinds, %d records", b.Lane.Position(b.Last), n, len(b.Seqs),
			len(b.Kinds), len(b.Records))
	}
	for i, seq := range b.Seqs {
		if seq <= b.After || seq > b.Last || string(b.Records[i].Record().Raw) != fmt.Sprint(seq) ||
			b.Rows.Column(1).(*array.Int64).Value(i) != seq {
			a.t.Errorf("%s: row %d does not belong to its seq %d", b.Lane.Position(b.Last), i, seq)
		}
	}
	return a.Target.Write(ctx, b)
}

// play runs the stretches into a new table.
func play(t *testing.T, stretches ...stretch) (*freshettest.Tables, *script, error) {
	t.Helper()
	tables := freshettest.NewTables()
	s := &script{lanes: []freshet.Lane{lane0}, stretches: stretches, memory: memory.NewCheckedAllocator(memory.DefaultAllocator)}
	p := freshet.Pipeline{Name: "test", Source: s, Target: aligned{freshettest.NewTarget(tables, nil), t}}
	return tables, s, p.Run(t.Context())
}

func TestRun_BatchesOverlap_OverlapCutAway(t *testing.T) {
	tables, s, err := play(t, stretch{lane0, -1, 3}, stretch{lane0, 1, 6}, stretch{lane0, 2, 5}, stretch{lane0, 6, 9})
	must(t, err)
	freshettest.CheckOnce(t, "rows", tables.Rows("t"), map[string][]int64{lane0.String(): {0, 1, 3, 4, 6, 7, 9}})
	freshettest.CheckOnce(t, "rejects", tables.Rejects("t"), map[string][]int64{lane0.String(): {2, 5, 8}})
	s.memory.AssertSize(t, 0) // all batches are released
}

func TestRun_OldBatchPastResume_Dropped(t *testing.T) {
	tables, _, err := play(t, stretch{lane0, 5, 9}, stretch{lane0, -1, 5}, stretch{lane0, 5, 6})
	must(t, err)
	freshettest.CheckOnce(t, "rows", tables.Rows("t"), map[string][]int64{lane0.String(): {0, 1, 3, 4, 6}})
}

func TestRun_LaneNeverResumed_InternalError(t *testing.T) {
	_, _, err := play(t, stretch{lane1, -1, 5})
	var e *freshet.Error
	if !errors.As(err, &e) || e.Code != freshet.CodeInternal {
		t.Fatalf("got %v, want an error of code %s", err, freshet.CodeInternal)
	}
}
