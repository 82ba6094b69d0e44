package delta_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// gathering is a store whose uploads keep all bytes in memory until they end, as those of an object store keep a part.
type gathering struct {
	*store.Mem
	held int64
}

type gatheringUpload struct {
	store.Upload
	in   *gathering
	held int64
}

func (g *gathering) Create(ctx context.Context, key string) (store.Upload, error) {
	u, err := g.Mem.Create(ctx, key)
	return &gatheringUpload{Upload: u, in: g}, err
}

func (u *gatheringUpload) Write(p []byte) (int, error) {
	n, err := u.Upload.Write(p)
	u.held += int64(n)
	u.in.held += int64(n)
	return n, err
}

func (u *gatheringUpload) Held() int64 { return u.held }

func (u *gatheringUpload) Close() error {
	u.in.held -= u.held
	return u.Upload.Close()
}

func TestWriter_UploadsGatherInMemory_StaysWithinMemoryBytes(t *testing.T) {
	const seed, partitions, bound = 5, 50, 2 << 20
	r := rand.New(rand.NewPCG(seed, seed))
	s := fields("p", delta.Integer, "v", delta.String)
	arrowSchema := s.Arrow()
	st := &gathering{Mem: store.NewMem()}
	opts := &delta.WriterOptions{MemoryBytes: bound}
	w, err := delta.NewWriter(st, describe(s, []string{"p"}, nil), oldest, opts)
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for range 80 {
		rec := noise(r, arrowSchema, 500, partitions)
		if err := w.Write(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
		rec.Release()
		rows += 500
		if held := st.held + w.Buffered(); held > bound {
			t.Fatalf("seed %d: uploads hold %d bytes and encoders %d, want %d at most", seed, st.held, w.Buffered(), bound)
		}
	}
	adds, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range adds {
		rows -= rowsOf(t, st, a)
	}
	if rows != 0 || len(adds) <= partitions {
		t.Errorf("seed %d: %d rows are missing in %d files, want none in more files than partitions", seed, rows, len(adds))
	}
}

// noise is rows of values that cannot be compressed.
func noise(r *rand.Rand, schema *arrow.Schema, rows, partitions int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for range rows {
		b.Field(0).(*array.Int32Builder).Append(int32(r.IntN(partitions)))
		var text strings.Builder
		for range 500 {
			text.WriteByte(byte(' ' + r.IntN(95)))
		}
		b.Field(1).(*array.StringBuilder).Append(text.String())
	}
	return b.NewRecordBatch()
}
