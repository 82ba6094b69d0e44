package kafka

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
)

// kept is a record that a batch keeps: where it lies in a block that is the batch's own. The client's records would keep all that was
// fetched with them in memory, unpacked, and take as much again themselves. Each record in a block is
//
//	value | key | number of headers | key, value of each | type of timestamp | 0, or 1 and the time in milliseconds since 1970
//
// where numbers are varints, and bytes stand behind their number plus one, 0 alone for nil.
type kept struct {
	in *[]byte
	at int
}

// keep copies the records of rows, those of one record once.
func keep(rows []*kgo.Record) []freshet.RecordRef {
	size := 0
	for i, r := range rows {
		if i == 0 || r != rows[i-1] {
			size += keptBytes(r)
		}
	}
	block := make([]byte, 0, size)
	all, refs := make([]freshet.RecordRef, len(rows)), make([]kept, len(rows))
	for i, r := range rows {
		refs[i] = kept{&block, len(block)}
		if i > 0 && r == rows[i-1] {
			refs[i].at = refs[i-1].at
		} else {
			block = appendRecord(block, r)
		}
		all[i] = &refs[i]
	}
	return all
}

// keptBytes is about what appendRecord appends.
func keptBytes(r *kgo.Record) int {
	n := len(r.Value) + len(r.Key) + 16
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 4
	}
	return n
}

func appendRecord(to []byte, r *kgo.Record) []byte {
	to = appendBytes(appendBytes(to, r.Value), r.Key)
	to = binary.AppendUvarint(to, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		to = appendBytes(appendBytes(to, []byte(h.Key)), h.Value)
	}
	to = binary.AppendVarint(to, int64(r.Attrs.TimestampType()))
	if !hasTime(r) {
		return append(to, 0)
	}
	return binary.AppendVarint(append(to, 1), r.Timestamp.UnixMilli())
}

func appendBytes(to, b []byte) []byte {
	if b == nil {
		return append(to, 0)
	}
	return append(binary.AppendUvarint(to, uint64(len(b))+1), b...)
}

// Record implements freshet.RecordRef.
func (k *kept) Record() freshet.Record {
	c := cursor((*k.in)[k.at:])
	r := freshet.Record{Raw: c.bytes(), Key: c.bytes()}
	if n := c.count(); n > 0 {
		r.Headers = make([]freshet.Header, n)
	}
	for i := range r.Headers {
		r.Headers[i] = freshet.Header{Key: string(c.bytes()), Value: c.bytes()}
	}
	if r.TimeKind = int32(c.number()); c.count() == 1 {
		r.Time = time.UnixMilli(c.number())
	}
	return r
}

// cursor is what is left to be read of what appendRecord has written.
type cursor []byte

func (c *cursor) count() uint64 {
	v, n := binary.Uvarint(*c)
	*c = (*c)[n:]
	return v
}

func (c *cursor) number() int64 {
	v, n := binary.Varint(*c)
	*c = (*c)[n:]
	return v
}

func (c *cursor) bytes() []byte {
	n := c.count()
	if n == 0 {
		return nil
	}
	b := (*c)[: n-1 : n-1]
	*c = (*c)[n-1:]
	return b
}
