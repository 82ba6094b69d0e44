package delta

import "github.com/RoaringBitmap/roaring/v2/roaring64"

// RowSet is a set of physical positions of rows in a file, from 0 on: what a deletion vector holds.
type RowSet = roaring64.Bitmap

// NewRowSet returns an empty set.
func NewRowSet() *RowSet { return roaring64.New() }
