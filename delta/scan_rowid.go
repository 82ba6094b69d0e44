package delta

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// trackRows fills what the file keeps of its rows' ids or commit versions, in a batch that begins at r.row, with what the
// add action says where it is null. stored is given up. Spec: "Reader Requirements for Row Tracking".
func (r *fileReader) trackRows(role columnRole, stored arrow.Array) arrow.Array {
	first, step := r.add.DefaultRowCommitVersion, int64(0)
	if role == roleRowID {
		first, step = r.add.BaseRowID, 1
	}
	if first == nil || stored.NullN() == 0 && stored.Len() > 0 {
		return stored
	}
	defer stored.Release()
	start := *first + r.row*step
	values := stored.(*array.Int64)
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(values.Len())
	for i := range values.Len() {
		if values.IsNull(i) {
			b.UnsafeAppend(start + int64(i)*step)
		} else {
			b.UnsafeAppend(values.Value(i))
		}
	}
	return b.NewArray()
}
