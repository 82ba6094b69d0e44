package delta

// hilbert is the place on the Hilbert curve of a point, of whose coordinates each has bits bits. Neighbours on the
// curve are neighbours in space, which a z-order curve does not promise. point is changed. len(point)*bits is at most
// 64. The algorithm is that of J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
func hilbert(point []uint32, bits int) uint64 {
	if len(point) < 2 {
		return zorder(point, bits)
	}
	n := len(point)
	for q := uint32(1) << (bits - 1); q > 1; q >>= 1 { // undo the turns
		low := q - 1
		for i := range point {
			if point[i]&q != 0 {
				point[0] ^= low
				continue
			}
			swap := (point[0] ^ point[i]) & low
			point[0] ^= swap
			point[i] ^= swap
		}
	}
	for i := 1; i < n; i++ { // Gray code
		point[i] ^= point[i-1]
	}
	var turn uint32
	for q := uint32(1) << (bits - 1); q > 1; q >>= 1 {
		if point[n-1]&q != 0 {
			turn ^= q - 1
		}
	}
	for i := range point {
		point[i] ^= turn
	}
	return zorder(point, bits)
}
