package delta_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// manyFiles makes a table of n files, all in one commit, with statistics over four columns.
func manyFiles(b *testing.B, n int) (store.Store, *delta.Table) {
	st := store.NewMem()
	f := func(name string, t delta.Type) delta.Field { return delta.Field{Name: name, Type: t, Nullable: true} }
	schema := &delta.Schema{Fields: []delta.Field{f("order_id", delta.Long), f("customer_id", delta.String),
		f("amount", delta.Double), f("created_at", delta.Timestamp)}}
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: schema})
	if err != nil {
		b.Fatal(err)
	}
	tx := table.Begin(snapshot(b, table), nil)
	for i := range n {
		h := uint64(i) * 0x9e3779b97f4a7c15
		const low = `"order_id":%d,"customer_id":"C%08d","amount":%.2f,"created_at":"2026-01-01T%02d:%02d:00.000Z"`
		const high = `"order_id":%d,"customer_id":"C%08d","amount":%.2f,"created_at":"2026-01-02T%02d:%02d:00.000Z"`
		tx.Add(delta.Add{
			Path: fmt.Sprintf("part-%05d-%08x-%04x-4%03x-%04x-%012x-c000.zstd.parquet", i%200,
				uint32(h>>32), uint16(h>>16), h&0xfff, uint16(h>>24), h&0xffffffffffff),
			PartitionValues: map[string]*string{}, Size: 15_000_000 + int64(i),
			ModificationTime: 1_767_225_600_000 + int64(i), DataChange: true,
			Stats: `{"numRecords":250000,` +
				fmt.Sprintf(`"minValues":{`+low+`},`, i*250000, i%1000, float64(i%10), i%24, i%60) +
				fmt.Sprintf(`"maxValues":{`+high+`},`,
					i*250000+249999, 99_000_000+i%1000, float64(900-i%10), i%24, i%60) +
				`"nullCount":{"order_id":0,"customer_id":0,"amount":3,"created_at":0}}`,
		})
	}
	if _, err := tx.Commit(context.Background()); err != nil {
		b.Fatal(err)
	}
	return st, table
}

const benchFiles = 100_000

func BenchmarkCheckpoint_100kFiles(b *testing.B) {
	_, table := manyFiles(b, benchFiles)
	snap := snapshot(b, table)
	if err := table.Checkpoint(context.Background(), snap); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		snap = appendFiles(b, table, fmt.Sprint("more", i)).Snapshot
		b.StartTimer()
		if err := table.Checkpoint(context.Background(), snap); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen_100kFiles(b *testing.B) {
	st, table := manyFiles(b, benchFiles)
	if err := table.Checkpoint(context.Background(), snapshot(b, table)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		open(b, st)
	}
}

func BenchmarkFiles_100kFiles(b *testing.B) {
	for _, stats := range []bool{false, true} {
		b.Run(fmt.Sprintf("stats=%v", stats), func(b *testing.B) {
			st, table := manyFiles(b, benchFiles)
			if err := table.Checkpoint(context.Background(), snapshot(b, table)); err != nil {
				b.Fatal(err)
			}
			snap := snapshot(b, open(b, st))
			for b.Loop() {
				n := 0
				for _, err := range snap.Files(context.Background(), &delta.FilesOptions{Stats: stats}) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != benchFiles {
					b.Fatalf("got %d files", n)
				}
			}
		})
	}
}

func BenchmarkFiles_OneCommit(b *testing.B) {
	st, table := manyFiles(b, benchFiles)
	data, err := st.Get(context.Background(), "_delta_log/00000000000000000001.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	snap := snapshot(b, table)
	for b.Loop() {
		for _, err := range snap.Files(context.Background(), &delta.FilesOptions{Stats: true}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
