package kafka_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

// whole is a format that lands payloads as they are: what remains is the source's own cost.
type whole struct{}

var wholeSchema = arrow.NewSchema([]arrow.Field{
	{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true}}, nil)

func (whole) Infer([]freshet.Payload, *arrow.Schema) (*arrow.Schema, error) { return wholeSchema, nil }

func (whole) NewDecoder(*arrow.Schema) (freshet.Decoder, error) {
	return &wholeDecoder{array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.Binary)}, nil
}

type wholeDecoder struct{ b *array.BinaryBuilder }

func (d *wholeDecoder) Append(p freshet.Payload) (int, error) {
	d.b.Append(p.Value)
	return 1, nil
}

func (d *wholeDecoder) Len() int { return d.b.Len() }

func (d *wholeDecoder) Flush() freshet.Decoded {
	values := d.b.NewArray()
	defer values.Release()
	return freshet.Decoded{Rows: array.NewRecordBatch(wholeSchema, []arrow.Array{values}, int64(values.Len()))}
}

func (d *wholeDecoder) Release() { d.b.Release() }

// BenchmarkSource measures one record of 250 bytes, from the broker to a batch, both in this process: the
// broker's part is in the figures too.
func BenchmarkSource(b *testing.B) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"plain": kgo.NoCompression(), "zstd": kgo.ZstdCompression()} {
		b.Run(name, func(b *testing.B) {
			c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"),
				kfake.SyntheticFetch(kfake.SyntheticBatch{RecordBytes: 250, RandomFrac: 0.2, Compression: codec}))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			src, err := kafka.NewSource(c.ListenAddrs(), kafka.Topics{Names: []string{"orders"}},
				kafka.RouteTo("t"), whole{}, &kafka.Options{Group: "app"})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			if err := src.Open(ctx, newSink().copy(nil)); err != nil {
				b.Fatal(err)
			}
			defer src.Close(ctx)
			b.SetBytes(250)
			b.ReportAllocs()
			batches := 0
			for n := 0; n < b.N; batches++ {
				batch, err := src.Next(ctx)
				if err != nil {
					b.Fatal(err)
				}
				n += batch.NumRows()
				batch.Release()
			}
			b.ReportMetric(float64(b.N)/float64(batches), "records/batch")
		})
	}
}
