package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	api "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const (
	partBytes    = 5 << 20          // S3 takes no smaller ones, but for the last
	maxParts     = 10_000           // S3 takes no more
	partsAtOnce  = 4                // of all uploads of a store
	cleanTimeout = 30 * time.Second // for what is done after the caller has given up
)

// uploadTag is the name of the metadata by which an upload recognises the object it made.
const uploadTag = "freshet-upload"

// Create begins a streaming upload. See store.Store. An object of up to 5 MiB is one put when it is closed; a
// larger one is sent in parts of 5 MiB while it is written. All uploads of the store together have four parts on their
// way at once, beside the one that each is gathering.
func (s *Store) Create(ctx context.Context, key string) (store.Upload, error) {
	if err := rest.Admit(ctx, "create", key); err != nil {
		return nil, err
	}
	return rest.NewUpload(ctx, key, partBytes, &upload{ctx: ctx, store: s, key: key}), nil
}

// upload is the rest.Sender of one object. It hands each part over to a goroutine that sends it, once the store has
// a free slot for that.
type upload struct {
	ctx   context.Context
	store *Store
	key   string

	// Only once there is a part:
	id      *string
	tag     string
	senders *errgroup.Group
	sending context.Context // ends with the first part that fails
	stop    context.CancelFunc

	mu    sync.Mutex
	parts []types.CompletedPart // by number, which is the index + 1; only senders set an item
}

// Whole puts the object.
func (u *upload) Whole(data []byte) error { return u.store.put(u.ctx, "upload", u.key, data) }

// Part hands the bytes over and keeps them; with the last one it waits for all and makes the object. A part that
// failed is reported by a later one.
func (u *upload) Part(data []byte, last bool) ([]byte, error) {
	if u.id == nil {
		if err := u.begin(); err != nil {
			return nil, err
		}
	}
	err := u.ship(data)
	if err != nil || !last {
		return nil, err
	}
	if err := u.senders.Wait(); err != nil {
		return nil, err
	}
	defer u.stop()
	return nil, u.complete()
}

// ship lets the part be sent. It waits for a slot of the store.
func (u *upload) ship(data []byte) error {
	u.mu.Lock()
	u.parts = append(u.parts, types.CompletedPart{})
	number := len(u.parts)
	u.mu.Unlock()
	if number > maxParts {
		return fmt.Errorf("upload %s: larger than the %d bytes that fit into %d parts; write smaller objects",
			u.key, maxParts*partBytes, maxParts)
	}
	select {
	case u.store.slots <- struct{}{}:
	case <-u.sending.Done():
		if err := u.senders.Wait(); err != nil {
			return err
		}
		return fmt.Errorf("upload %s: %w", u.key, u.ctx.Err())
	}
	u.senders.Go(func() error {
		defer func() { <-u.store.slots }()
		return u.send(number, data)
	})
	return nil
}

// begin starts a multipart upload.
func (u *upload) begin() error {
	u.tag = uuid.NewString()
	out, err := u.store.client.CreateMultipartUpload(u.ctx, &api.CreateMultipartUploadInput{
		Bucket: &u.store.bucket, Key: u.store.key(u.key), Metadata: map[string]string{uploadTag: u.tag},
	})
	if err != nil {
		return u.store.readError(u.ctx, "upload", u.key, err) // nothing visible was written
	}
	u.id = out.UploadId
	ctx, stop := context.WithCancel(u.ctx)
	u.stop = stop
	u.senders, u.sending = errgroup.WithContext(ctx)
	return nil
}

// send sends one part. A failure leaves nothing visible.
func (u *upload) send(number int, data []byte) error {
	out, err := u.store.client.UploadPart(u.sending, &api.UploadPartInput{
		Bucket: &u.store.bucket, Key: u.store.key(u.key), UploadId: u.id,
		PartNumber: aws.Int32(int32(number)), Body: bytes.NewReader(data),
		ContentLength: aws.Int64(int64(len(data))),
	})
	if err != nil {
		return u.store.readError(u.ctx, "upload", u.key, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts[number-1] = types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(int32(number))}
	return nil
}

// complete makes the object of the parts. The SDK may repeat a request whose answer was lost; then the server
// says that there is no such upload, although it has made the object. The tag tells whether it has.
func (u *upload) complete() error {
	w := u.store.newWriting(u.ctx)
	_, err := u.store.client.CompleteMultipartUpload(w.ctx, &api.CompleteMultipartUploadInput{
		Bucket: &u.store.bucket, Key: u.store.key(u.key), UploadId: u.id,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	}, w.watch)
	if err == nil {
		return nil
	}
	gone := status(err) == http.StatusNotFound && code(err) != noSuchBucket
	if gone {
		err = fmt.Errorf("upload %s: %w: %v", u.key, store.ErrAmbiguous, err)
	} else {
		err = w.failed("upload", u.key, err)
	}
	if errors.Is(err, store.ErrAmbiguous) && u.landed() {
		return nil
	}
	return err
}

// landed reports whether the object is there and is certainly the one of this upload.
func (u *upload) landed() bool {
	head, err := u.store.client.HeadObject(u.ctx, &api.HeadObjectInput{
		Bucket: &u.store.bucket, Key: u.store.key(u.key),
	})
	return err == nil && head.Metadata[uploadTag] == u.tag
}

// Drop stops the senders and lets S3 forget the parts.
func (u *upload) Drop() error {
	if u.id == nil {
		return nil
	}
	u.stop()
	_ = u.senders.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), cleanTimeout)
	defer cancel()
	_, err := u.store.client.AbortMultipartUpload(ctx, &api.AbortMultipartUploadInput{
		Bucket: &u.store.bucket, Key: u.store.key(u.key), UploadId: u.id,
	})
	if err != nil && status(err) != http.StatusNotFound {
		return u.store.readError(ctx, "abort", u.key, err)
	}
	return nil
}
