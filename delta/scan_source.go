package delta

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
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

// int96Micros converts nanoseconds of the day and Julian day. It wraps around as Spark does, whose own files hold
// moments of which only that makes sense.
func int96Micros(v arrowparquet.Int96) int64 {
	const epoch, day = 2440588, 86_400_000_000 // the Julian day of 1970-01-01; µs
	days := int64(int32(binary.LittleEndian.Uint32(v[8:]))) - epoch
	return days*day + floorDiv(int64(binary.LittleEndian.Uint64(v[:8])), 1000)
}
