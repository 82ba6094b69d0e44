package delta

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
)

// FuzzCheckpoint reads Parquet files that began as checkpoints. Whatever they hold, reading ends, with
// ErrCorrupt or with actions, without a panic and without much memory. The inputs are large: run it with
// -fuzzminimizetime=10x, or all its time goes into making them smaller.
func FuzzCheckpoint(f *testing.F) {
	for _, codec := range []string{"uncompressed", "snappy", "zstd"} {
		f.Add(smallCheckpoint(f, codec))
	}
	goldenSeeds(f, "_delta_log/*.checkpoint*.parquet")
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		st := store.NewMem()
		if err := st.Put(ctx, "f", data); err != nil {
			t.Fatal(err)
		}
		for _, want := range []kinds{kindState, kindFiles | kindStats | refuseUnknown} {
			n := 0
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for _, err := range readCheckpointFile(ctx, st, "f", int64(len(data)), want, nil) {
				if err != nil {
					break
				}
				if n++; n > 1_000_000 {
					break
				}
			}
			if ctx.Err() != nil {
				t.Fatal("reading takes more than ten seconds")
			}
			runtime.ReadMemStats(&after) // all that was ever held, what each action took and was given up included
			if took, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+10*len(data)+4096*n); took > most {
				t.Fatalf("%d bytes took %d of memory, for %d actions", len(data), took, n)
			}
		}
	})
}

func smallCheckpoint(f *testing.F, codec string) []byte {
	ctx, st := context.Background(), store.NewMem()
	schema := &Schema{Fields: []Field{nullable("id", Long), nullable("at", Timestamp), nullable("p", String)}}
	table, err := Create(ctx, st, &CreateOptions{Schema: schema, PartitionBy: []string{"p"},
		Properties: map[string]string{"delta.parquet.compression.codec": codec}})
	if err != nil {
		f.Fatal(err)
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		f.Fatal(err)
	}
	tx := table.Begin(snap, nil)
	p := "x"
	for _, name := range []string{"a", "b", "c"} {
		tx.Add(Add{Path: name, PartitionValues: map[string]*string{"p": &p}, Size: 1, Tags: map[string]*string{"t": nil},
			Stats: `{"numRecords":1,"minValues":{"id":1,"at":"2026-01-31T00:00:00.000Z"},"nullCount":{"id":0}}`})
	}
	now := time.Now().UnixMilli()
	tx.Remove(Remove{Path: "gone", DeletionTimestamp: &now})
	tx.AddTxn("app", 7)
	result, err := tx.Commit(ctx)
	if err != nil {
		f.Fatal(err)
	}
	if err := table.Checkpoint(ctx, result.Snapshot); err != nil {
		f.Fatal(err)
	}
	data, err := st.Get(ctx, checkpointKey(1))
	if err != nil {
		f.Fatal(err)
	}
	return data
}
