package delta

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// changeFill makes the columns that are the same in all rows of a batch. It keeps them, since the next batch is rarely
// longer.
type changeFill struct {
	of          *changeCommit
	kinds       map[string]arrow.Array
	version, at arrow.Array
}

func newChangeFill(c *changeCommit) *changeFill {
	return &changeFill{of: c, kinds: map[string]arrow.Array{}}
}

// kind is n times the change type. The result is the caller's.
func (f *changeFill) kind(kind string, n int) arrow.Array {
	if a := f.kinds[kind]; a == nil || a.Len() < n {
		b := newKindBuilder(n)
		defer b.Release()
		for range n {
			b.Append(kind)
		}
		f.kinds[kind] = b.NewArray()
	}
	return array.NewSlice(f.kinds[kind], 0, int64(n))
}

func newKindBuilder(n int) *array.StringBuilder {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.Reserve(n)
	b.ReserveData(n * len(ChangePostimage))
	return b
}

// commit is n times the commit's version and its time. The results are the caller's.
func (f *changeFill) commit(n int) (version, at arrow.Array) {
	if f.version == nil || f.version.Len() < n {
		versions := array.NewInt64Builder(memory.DefaultAllocator)
		times := array.NewTimestampBuilder(memory.DefaultAllocator, arrowTimestamp)
		defer versions.Release()
		defer times.Release()
		versions.Reserve(n)
		times.Reserve(n)
		for range n {
			versions.UnsafeAppend(f.of.version)
			times.UnsafeAppend(arrow.Timestamp(f.of.at.UnixMicro()))
		}
		f.version, f.at = versions.NewArray(), times.NewArray()
	}
	return array.NewSlice(f.version, 0, int64(n)), array.NewSlice(f.at, 0, int64(n))
}
