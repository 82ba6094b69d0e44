package lake_test

import (
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// batch is the seqs (after, last] of the lane; those in bad are rejects.
func batch(l freshet.Lane, after, last int64, bad ...int64) *freshet.Batch {
	b := &freshet.Batch{Table: "t", Lane: l, After: after, Last: last}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, freshettest.Schema())
	defer rows.Release()
	for seq := after + 1; seq <= last; seq++ {
		if slices.Contains(bad, seq) {
			b.Rejects = append(b.Rejects, freshet.Reject{Seq: seq, Code: freshet.CodeMalformed, Step: "decode",
				Message: "bad on purpose", Record: freshet.Record{Raw: []byte("bad")}})
			continue
		}
		rows.Field(0).(*array.StringBuilder).Append(l.String())
		rows.Field(1).(*array.Int64Builder).Append(seq)
		b.Seqs = append(b.Seqs, seq)
	}
	if len(b.Seqs) > 0 {
		b.Rows = rows.NewRecordBatch()
	}
	return b
}

// wide is batch with one more column, of the type of an array of strings or longs.
func wide(l freshet.Lane, after, last int64, column string, typ arrow.DataType) *freshet.Batch {
	b := batch(l, after, last)
	extra := array.NewBuilder(memory.DefaultAllocator, typ)
	defer extra.Release()
	for range b.NumRows() {
		must2(extra.AppendValueFromString("7"))
	}
	arr := extra.NewArray()
	defer arr.Release()
	fields := append(b.Rows.Schema().Fields(), arrow.Field{Name: column, Type: typ, Nullable: true})
	columns := append(slices.Clone(b.Rows.Columns()), arr)
	narrow := b.Rows
	b.Rows = array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, narrow.NumRows())
	narrow.Release()
	return b
}

func must2(err error) {
	if err != nil {
		panic(err)
	}
}

// start makes the table if need be, resumes the lanes and starts those that the table does not know.
func start(t *testing.T, target freshet.Target, starts freshet.Progress) freshet.Progress {
	t.Helper()
	must(t, target.Ensure(t.Context(), "t", freshettest.Schema()))
	var lanes []freshet.Lane
	for l := range starts {
		lanes = append(lanes, l)
	}
	have, err := target.Resume(t.Context(), "t", lanes)
	must(t, err)
	missing := freshet.Progress{}
	for l, seq := range starts {
		if _, ok := have[l]; !ok {
			missing[l] = seq
		}
	}
	begun, err := target.Start(t.Context(), "t", missing)
	must(t, err)
	for l, seq := range begun {
		have[l] = seq
	}
	return have
}

// write writes a batch, whatever becomes of its rows.
func write(t *testing.T, target freshet.Target, b *freshet.Batch) error {
	t.Helper()
	_, err := target.Write(t.Context(), b)
	return err
}

func sealed(t *testing.T, target freshet.Target, batches ...*freshet.Batch) freshet.Commit {
	t.Helper()
	for _, b := range batches {
		must(t, write(t, target, b))
	}
	commits, err := target.Seal(t.Context())
	must(t, err)
	if len(commits) != 1 {
		t.Fatalf("got %d commits, want 1", len(commits))
	}
	return commits[0]
}

func commit(t *testing.T, target freshet.Target, batches ...*freshet.Batch) freshet.Committed {
	t.Helper()
	done, err := sealed(t, target, batches...).Run(t.Context())
	must(t, err)
	return done
}
