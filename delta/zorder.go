package delta

// zorder interleaves the bits of a point's coordinates, of which each has the lowest bits bits: the most significant
// ones of all coordinates first, in their order. Points that are close on this curve are close in most coordinates.
// len(point)*bits is at most 64.
func zorder(point []uint32, bits int) uint64 {
	var index uint64
	for bit := bits - 1; bit >= 0; bit-- {
		for _, c := range point {
			index = index<<1 | uint64(c>>bit&1)
		}
	}
	return index
}
