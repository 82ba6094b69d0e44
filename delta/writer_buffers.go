package delta

import (
	"reflect"
	"sync"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// Buffers is memory, and experience with dictionaries, that writers hand on to later ones of the same columns: for
// whoever makes a Writer for every commit. The zero value is ready. It keeps what two writers need at most, and is safe
// for concurrent use.
type Buffers struct {
	mu   sync.Mutex
	kits []*kit
}

// maxKits is how many writers' memory is kept: of one that is being filled and one that is being closed.
const maxKits = 2

// maxIdle is how many files' memory a kit keeps.
const maxIdle = 4

// kit is what the files of one writer share. One writer has it at a time.
type kit struct {
	columns []parquet.Column
	codec   parquet.Codec
	shared  parquet.Shared
	idle    []*parquet.Writer
}

// take returns a kit for files of these columns; b may be nil.
func (b *Buffers) take(columns []parquet.Column, codec parquet.Codec) *kit {
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, k := range b.kits {
			if k.codec == codec && reflect.DeepEqual(k.columns, columns) {
				b.kits = append(b.kits[:i], b.kits[i+1:]...)
				return k
			}
		}
	}
	return &kit{columns: columns, codec: codec}
}

// give puts a kit back that no writer uses any more; b may be nil.
func (b *Buffers) give(k *kit) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kits = append(b.kits, k)
	if len(b.kits) > maxKits {
		b.kits = b.kits[1:]
	}
}

// open returns a writer of a file.
func (k *kit) open(dst *sink) *parquet.Writer {
	if n := len(k.idle); n > 0 {
		w := k.idle[n-1]
		k.idle = k.idle[:n-1]
		w.Reset(dst)
		return w
	}
	return parquet.NewWriter(dst, k.columns, &parquet.Options{Codec: k.codec, Shared: &k.shared})
}

// keep takes back what open returned.
func (k *kit) keep(w *parquet.Writer) {
	if len(k.idle) < maxIdle {
		w.Reset(nil)
		k.idle = append(k.idle, w)
	}
}
