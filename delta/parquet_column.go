package delta

import (
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// openColumn opens a leaf column of a row group. room is as of parquet.Chunk. Errors: *UnsupportedError for
// one that is encrypted.
func (f *parquetFile) openColumn(meta *metadata.RowGroupMetaData, i int, room *parquet.Room) (*parquet.ColumnReader, error) {
	part, err := chunkSpan(f, meta, i)
	if err != nil {
		return nil, err
	}
	chunk, err := meta.ColumnChunk(i)
	if err != nil {
		return nil, err
	}
	column := f.MetaData().Schema.Column(i)
	if chunk.CryptoMetadata() != nil {
		return nil, encrypted(f.src.key, "the encrypted column "+column.Path())
	}
	reach := min(part.to+unclaimed, f.src.size)
	return parquet.OpenColumn(parquet.Chunk{
		Type: parquet.Physical(column.PhysicalType()), Length: column.TypeLength(), Codec: chunk.Compression(),
		MaxDef: int(column.MaxDefinitionLevel()), MaxRep: int(column.MaxRepetitionLevel()), Slot: slotLevel(column),
		Entries: chunk.NumValues(), From: part.from, To: part.to, Reach: reach, Room: room,
		View: func(at int64, n int) ([]byte, error) { return f.src.view(at, n, reach) },
	})
}

// unclaimed bounds the bytes of a column that early writers in Java left out of its size: the header of its
// dictionary.
const unclaimed = 100

// slotLevel is the definition level from which on an entry of the column is an element of its innermost list,
// 0 where it is in none.
func slotLevel(c *schema.Column) int {
	level := int(c.MaxDefinitionLevel())
	for n := c.SchemaNode(); n != nil && n.RepetitionType() != arrowparquet.Repetitions.Repeated; n = n.Parent() {
		if n.RepetitionType() == arrowparquet.Repetitions.Optional {
			level--
		}
	}
	return level
}
