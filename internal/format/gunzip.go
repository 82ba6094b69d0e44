package format

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math"

	"github.com/freshet-io/freshet"
)

// gunzipper unpacks gzip'ed payloads into memory that it reuses.
type gunzipper struct {
	in  bytes.Reader
	zip *gzip.Reader
	out []byte
}

// gzipped reports whether the payload begins as gzip does. No JSON text does.
func gzipped(payload []byte) bool {
	return len(payload) >= 2 && payload[0] == 0x1f && payload[1] == 0x8b
}

// unpack returns the payload unpacked, valid until the next call. It never holds more than max+1 bytes (and a
// buffer's slack), whatever the payload claims. The error is nil, CodeCompression or CodeTooLarge.
func (g *gunzipper) unpack(payload []byte, max int) ([]byte, *freshet.RejectError) {
	g.in.Reset(payload)
	defer g.in.Reset(nil)
	var err error
	if g.zip == nil {
		g.zip, err = gzip.NewReader(&g.in)
	} else {
		err = g.zip.Reset(&g.in)
	}
	if err == nil {
		g.out, err = readUpTo(g.zip, g.out[:0], max)
	}
	if errors.Is(err, errOverLimit) {
		g.out = nil // it is as large as it gets, and the next will hardly need it
		return nil, reject(freshet.CodeTooLarge, -1, "the payload unpacks to more than the limit of %d bytes", max)
	}
	if err != nil {
		return nil, reject(freshet.CodeCompression, -1, "found broken gzip (%v), wanted a whole gzip stream", err)
	}
	return g.out, nil
}

var errOverLimit = errors.New("over the limit")

func readUpTo(r io.Reader, buf []byte, max int) ([]byte, error) {
	for {
		if len(buf) > max {
			return buf, errOverLimit
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		room := min(cap(buf), saturatingInc(max))
		n, err := r.Read(buf[len(buf):room])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			if len(buf) > max {
				return buf, errOverLimit
			}
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

func saturatingInc(n int) int {
	if n == math.MaxInt {
		return n
	}
	return n + 1
}
