package delta

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

// trackRows fills what the file keeps of the ids or commit versions of rows, counted from row from of the file, with what
// the add action says where it is null. stored is given up. Spec: "Reader Requirements for Row Tracking".
func (r *fileReader) trackRows(role columnRole, stored arrow.Array, rows []expr.Span, from int64) arrow.Array {
	first, step := r.add.DefaultRowCommitVersion, int64(0)
	if role == roleRowID {
		first, step = r.add.BaseRowID, 1
	}
	if first == nil || stored.NullN() == 0 && stored.Len() > 0 {
		return stored
	}
	defer stored.Release()
	values := stored.(*array.Int64)
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(values.Len())
	i := 0
	for _, s := range rows {
		for row := from + int64(s.From); row < from+int64(s.To); row++ {
			if values.IsNull(i) {
				b.UnsafeAppend(*first + row*step)
			} else {
				b.UnsafeAppend(values.Value(i))
			}
			i++
		}
	}
	return b.NewArray()
}
