package rest

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/store"
)

const firstBytes = 64 << 10 // of an upload's buffer, so that small objects take little memory

// Upload is a store.Upload that gathers what is written into parts and hands them to a Sender.
type Upload struct {
	ctx       context.Context
	key       string
	partBytes int
	to        Sender
	buf       []byte // the part that is being gathered
	parted    bool   // a part was handed over
	failed    error  // of a part: the upload is of no use any more
	done      bool
}

// Sender sends what an Upload gathers. An object that fits into one part it gets Whole; a larger one in parts, the
// last of which makes the object visible.
type Sender interface {
	// Whole stores a small object.
	Whole(data []byte) error
	// Part takes the next part: of the full size, but for the last, which is smaller and not empty. It returns a
	// buffer to gather the next one in: nil if it keeps the bytes.
	Part(data []byte, last bool) (free []byte, err error)
	// Drop gives up the parts that were taken. The upload's context may have ended.
	Drop() error
}

// NewUpload returns an upload of the object that is sent in parts of partBytes.
func NewUpload(ctx context.Context, key string, partBytes int, to Sender) *Upload {
	return &Upload{ctx: ctx, key: key, partBytes: partBytes, to: to}
}

// Held is how many bytes of memory the part takes that is being gathered.
func (u *Upload) Held() int64 { return int64(cap(u.buf)) }

func (u *Upload) Write(p []byte) (wrote int, err error) {
	if err := u.usable(); err != nil {
		return 0, err
	}
	for len(p) > 0 {
		if len(u.buf) == u.partBytes {
			if err := u.part(false); err != nil {
				return wrote, err
			}
		}
		n := min(len(p), u.partBytes-len(u.buf))
		u.grow(n)
		u.buf = append(u.buf, p[:n]...)
		wrote, p = wrote+n, p[n:]
	}
	return wrote, nil
}

// usable is the check that Write and Close begin with.
func (u *Upload) usable() error {
	switch {
	case u.done:
		return fmt.Errorf("upload of %s: already closed or aborted", u.key)
	case u.ctx.Err() != nil:
		return fmt.Errorf("upload %s: %w", u.key, u.ctx.Err())
	}
	return u.failed
}

// grow makes room for n more bytes in the buffer.
func (u *Upload) grow(n int) {
	if need := len(u.buf) + n; need > cap(u.buf) {
		bigger := make([]byte, len(u.buf), min(u.partBytes, max(2*cap(u.buf), need, firstBytes)))
		copy(bigger, u.buf)
		u.buf = bigger
	}
}

func (u *Upload) part(last bool) error {
	u.parted = true
	free, err := u.to.Part(u.buf, last)
	u.buf, u.failed = free[:0], err
	return err
}

// Close makes the object visible. See store.Upload. What may have landed is not dropped.
func (u *Upload) Close() error {
	if u.done {
		return u.usable()
	}
	err := u.usable()
	switch {
	case err != nil:
		return errors.Join(err, u.Abort())
	case u.parted:
		err = u.part(true)
	default:
		err = u.to.Whole(u.buf)
	}
	if u.parted && err != nil && !errors.Is(err, store.ErrAmbiguous) {
		return errors.Join(err, u.Abort())
	}
	u.done, u.buf = true, nil
	return err
}

// Abort drops what was written. See store.Upload.
func (u *Upload) Abort() error {
	if u.done {
		return nil
	}
	u.done, u.buf = true, nil
	if !u.parted {
		return nil
	}
	return u.to.Drop()
}
