package parquet

const (
	// blockBytes is the unit in which memory for pages is handed out.
	blockBytes = 64 << 10
	// maxFree bounds the blocks that are kept for later.
	maxFree = 256
)

// blocks hands out memory for closed pages, so that chunks grow without being copied and their memory serves all
// columns and files in turn.
type blocks struct{ free [][]byte }

func (b *blocks) take() []byte {
	if n := len(b.free); n > 0 {
		block := b.free[n-1]
		b.free = b.free[:n-1]
		return block
	}
	return make([]byte, 0, blockBytes)
}

// chain is a sequence of bytes in blocks.
type chain struct {
	parts [][]byte
	size  int
}

func (c *chain) append(b *blocks, data []byte) {
	c.size += len(data)
	for len(data) > 0 {
		if n := len(c.parts); n == 0 || len(c.parts[n-1]) == blockBytes {
			c.parts = append(c.parts, b.take())
		}
		last := &c.parts[len(c.parts)-1]
		n := min(blockBytes-len(*last), len(data))
		*last = append(*last, data[:n]...)
		data = data[n:]
	}
}

// release gives the blocks back.
func (c *chain) release(b *blocks) {
	for _, p := range c.parts {
		if len(b.free) < maxFree {
			b.free = append(b.free, p[:0])
		}
	}
	clear(c.parts)
	c.parts, c.size = c.parts[:0], 0
}
