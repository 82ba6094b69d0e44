package kafka

import (
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// firstFetch is what the first fetch asks for, in bytes, before it is known how well the topic is compressed.
const firstFetch = 2 << 20

// recordBytes is what a record takes beside its payload.
const recordBytes = int64(unsafe.Sizeof(kgo.Record{}) + unsafe.Sizeof((*kgo.Record)(nil)))

// budget keeps what a fetch takes in memory within bounds: it measures how much becomes of a byte on the
// wire, and has the client ask for as many bytes as fit. It also lends the memory that batches are unpacked
// into, over and over. It is a hook and a pool of the client.
type budget struct {
	// Bytes of the batches read since the last adjust: as they came, and as they stand in memory.
	wire, here atomic.Int64
	asked      int32 // the reader's: bytes that a fetch asks for

	records [32]sync.Pool // *[]kgo.Record, by the power of two that is their capacity
	bytes   [32]sync.Pool // *[]byte, likewise
	ratio   atomic.Int64  // unpacked size by packed size, in hundredths, of the batches lately
}

// OnFetchBatchRead implements kgo.HookFetchBatchRead.
func (b *budget) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	here := int64(m.CompressedBytes) + int64(m.NumRecords)*recordBytes
	if m.CompressionType != 0 {
		here += int64(m.UncompressedBytes)
		ratio := int64(m.UncompressedBytes) * 100 / int64(max(m.CompressedBytes, 1))
		b.ratio.Store((7*b.ratio.Load() + ratio) / 8)
	}
	b.wire.Add(int64(m.CompressedBytes))
	b.here.Add(here)
}

// adjust has the client ask for as much as takes memory bytes here, shared by the brokers, and of each of the
// lanes a part of it.
func (b *budget) adjust(client *kgo.Client, memory int64, lanes int) {
	wire, here := b.wire.Load(), b.here.Load()
	if wire < 64<<10 {
		return
	}
	b.wire.Add(-wire)
	b.here.Add(-here)
	brokers := int64(max(1, len(client.DiscoveredBrokers())))
	ask := max(memory/brokers*wire/here, 256<<10)
	ask = min(ask, 64<<20)
	if now := int64(b.asked); ask > now*4/5 && ask < now*5/4 {
		return
	}
	b.asked = int32(ask)
	client.UpdateFetchMaxBytes(int32(ask), int32(max(ask/int64(max(lanes, 1)), 256<<10)))
}

// GetRecords implements kgo.PoolRecords.
func (b *budget) GetRecords(n int) []kgo.Record {
	if s, ok := b.records[class(n)].Get().(*[]kgo.Record); ok {
		return *s
	}
	return make([]kgo.Record, 0, 1<<class(n))
}

// PutRecords implements kgo.PoolRecords.
func (b *budget) PutRecords(s []kgo.Record) {
	if c := cap(s); c > 0 {
		b.records[min(bits.Len(uint(c))-1, 31)].Put(&s)
	}
}

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (b *budget) GetDecompressBytes(packed []byte, _ kgo.CompressionCodecType) []byte {
	n := len(packed)*int(max(b.ratio.Load(), 200))/100 + len(packed)/4
	if s, ok := b.bytes[class(n)].Get().(*[]byte); ok {
		return *s
	}
	return make([]byte, 0, 1<<class(n))
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (b *budget) PutDecompressBytes(s []byte) {
	if c := cap(s); c > 0 {
		b.bytes[min(bits.Len(uint(c))-1, 31)].Put(&s)
	}
}

// class is the smallest power of two that is at least n, at most 2^30.
func class(n int) int { return min(bits.Len(uint(max(n, 1)-1)), 30) }

func itoa(n int32) string { return strconv.Itoa(int(n)) }
