package delta

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// columnSource reads the column of a row group that a file has for a column of the table.
type columnSource interface {
	// next returns the next n values, which there must be, with the types of the file.
	next(n int64) (arrow.Array, error)
	close()
}

// arrowSource reads whatever the Arrow library reads.
type arrowSource struct{ column *pqarrow.ColumnReader }

func (s arrowSource) close() { s.column.Release() }

func (s arrowSource) next(n int64) (arrow.Array, error) {
	chunks, err := s.column.NextBatch(n)
	if err != nil {
		return nil, err
	}
	if int64(chunks.Len()) != n {
		return nil, fmt.Errorf("the column ends %d values early", n-int64(chunks.Len()))
	}
	if parts := chunks.Chunks(); len(parts) == 1 {
		parts[0].Retain()
		return parts[0], nil
	}
	return array.Concatenate(chunks.Chunks(), memory.DefaultAllocator)
}

// int96Source reads top-level timestamps of the type INT96, which old versions of Spark wrote. The Arrow library makes
// nanoseconds of them, which end in the year 2262.
type int96Source struct {
	column *file.Int96ColumnChunkReader
	maxDef int16
	defs   []int16
	values []arrowparquet.Int96
}

func newInt96Source(r *file.Int96ColumnChunkReader) *int96Source {
	return &int96Source{column: r, maxDef: r.Descriptor().MaxDefinitionLevel()}
}

func (s *int96Source) close() {}

func (s *int96Source) next(n int64) (arrow.Array, error) {
	if int64(len(s.defs)) < n {
		s.defs, s.values = make([]int16, n), make([]arrowparquet.Int96, n)
	}
	b := array.NewTimestampBuilder(memory.DefaultAllocator, arrowTimestamp)
	defer b.Release()
	b.Reserve(int(n))
	for left := n; left > 0; {
		entries, _, err := s.column.ReadBatch(left, s.values, s.defs, nil)
		if err != nil {
			return nil, err
		}
		if entries == 0 {
			return nil, fmt.Errorf("the column ends %d values early", left)
		}
		at := 0
		for _, d := range s.defs[:entries] {
			if d < s.maxDef {
				b.AppendNull()
				continue
			}
			b.Append(arrow.Timestamp(int96Micros(s.values[at])))
			at++
		}
		left -= entries
	}
	return b.NewArray(), nil
}

// int96Micros converts nanoseconds of the day and Julian day. It wraps around as Spark does, whose own files hold
// moments of which only that makes sense.
func int96Micros(v arrowparquet.Int96) int64 {
	const epoch, day = 2440588, 86_400_000_000 // the Julian day of 1970-01-01; µs
	days := int64(int32(binary.LittleEndian.Uint32(v[8:]))) - epoch
	return days*day + floorDiv(int64(binary.LittleEndian.Uint64(v[:8])), 1000)
}
