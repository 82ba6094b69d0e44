// Package store is object storage as Freshet needs it: whole reads, ranged reads, writes, writes that happen
// only if nothing is there yet, streaming uploads, and listings in key order that begin after a given key.
//
// Guarantees every implementation gives, and storetest checks:
//   - Of any number of concurrent PutIfAbsent calls for one key, from any number of processes, exactly one
//     wins.
//   - An object is visible whole or not at all; what a finished call has written, every later Get and List
//     shows.
//   - List yields keys in the order of their bytes.
//
// Non-goals: renames, appends, folders as objects, permissions.
package store

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Errors that callers branch on with errors.Is. Implementations wrap them with the key and the cause.
var (
	// ErrNotFound says that no object has this key.
	ErrNotFound = errors.New("object not found")
	// ErrExists says that PutIfAbsent found an object under the key and left it alone.
	ErrExists = errors.New("object exists")
	// ErrAmbiguous says that a write may or may not have landed: the answer was lost on the way. Only a later
	// look at the store can tell.
	ErrAmbiguous = errors.New("result of the write is unknown")
	// ErrPermission says that the store refused the credentials or the caller's rights.
	ErrPermission = errors.New("permission denied")
	// ErrNoBucket says that there is no bucket, or container, or DynamoDB table of a log store, of the name.
	ErrNoBucket = errors.New("does not exist")
	// ErrLogStore says that what the DynamoDB table of a log store has of a table does not go with the table or with how the log
	// store is set.
	ErrLogStore = errors.New("the log store does not fit the table")
	// ErrFull says that the store has no room left.
	ErrFull = errors.New("no space left in the store")
	// ErrUnavailable says that the store did not answer, or asked to come back later; nothing was written.
	ErrUnavailable = errors.New("store unavailable")
)

// Object describes one stored object.
type Object struct {
	Key      string    // raw key below the store's root, never URL-encoded
	Size     int64     // bytes
	Modified time.Time // as the store's own clock said
}

// Store is a place for objects below one root. Keys are non-empty, slash-separated, raw (not URL-encoded),
// without a leading slash and without "." or ".." parts; other keys are errors. All methods are safe for
// concurrent use.
type Store interface {
	// Get returns the whole object; the bytes are the caller's, who may overwrite them. Errors: ErrNotFound, ErrPermission,
	// ErrUnavailable.
	Get(ctx context.Context, key string) ([]byte, error)

	// ReadRange returns the bytes [offset, offset+length) of the object, or fewer where the object ends
	// before. A negative offset counts from the end (then length is ignored: the last -offset bytes are
	// returned). The bytes are the caller's. Errors: as Get; an offset beyond the end yields io.EOF.
	ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error)

	// Stat returns size and time of the object. Errors: as Get.
	Stat(ctx context.Context, key string) (Object, error)

	// Put writes the object, replacing one that is there. Repeating it is harmless, so implementations retry.
	// Errors: ErrPermission, ErrFull, ErrUnavailable, ErrAmbiguous.
	Put(ctx context.Context, key string, data []byte) error

	// PutIfAbsent writes the object only if the key is free. It returns nil when this very call wrote it,
	// ErrExists when the key was taken (by whom, it cannot tell), and ErrAmbiguous when it cannot say whether
	// it wrote; it never hides an ambiguous attempt behind a retry of its own.
	PutIfAbsent(ctx context.Context, key string, data []byte) error

	// Create begins a streaming upload. Nothing is visible before Upload.Close returned nil.
	Create(ctx context.Context, key string) (Upload, error)

	// List yields the objects whose keys begin with prefix and are greater than after (bytewise; "" for all),
	// in key order. It reads lazily: a caller that stops early costs no further requests. The prefix need not
	// end at a slash.
	List(ctx context.Context, prefix, after string) iter.Seq2[Object, error]

	// Delete removes the object; a missing one is no error.
	Delete(ctx context.Context, key string) error

	// URL names the root for people and log lines, without secrets: "file:///data/lake",
	// "s3://bucket/prefix", "mem:".
	URL() string
}

// Upload is an object being written. It is used by one goroutine. Exactly one of Close and Abort ends it;
// Abort after Close does nothing, so that it can be deferred. One that gathers bytes in memory before it sends them
// tells how many by a method Held() int64.
type Upload interface {
	io.Writer
	// Close makes the object visible. Errors: as Put.
	Close() error
	// Abort drops what was written.
	Abort() error
}

// Retryable reports whether trying again later may help: the store was unavailable or an answer was lost, as
// opposed to a refusal that will stand. A full store counts as retryable, since room can be made.
func Retryable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrAmbiguous) || errors.Is(err, ErrFull)
}

// GetInto is Get for a caller with a buffer that is needed no more: a store that can reads into it, and makes a larger one
// where it is too small; others leave it alone. The buffer may be nil. What is returned is the caller's. Errors: as Get.
func GetInto(ctx context.Context, s Store, key string, buffer []byte) ([]byte, error) {
	if g, ok := s.(interface {
		GetInto(ctx context.Context, key string, buffer []byte) ([]byte, error)
	}); ok {
		return g.GetInto(ctx, key, buffer)
	}
	return s.Get(ctx, key)
}

// ReadRangeInto is ReadRange for a caller with a buffer that is needed no more, as GetInto is Get.
func ReadRangeInto(ctx context.Context, s Store, key string, offset, length int64, buffer []byte) ([]byte, error) {
	if r, ok := s.(interface {
		ReadRangeInto(ctx context.Context, key string, offset, length int64, buffer []byte) ([]byte, error)
	}); ok {
		return r.ReadRangeInto(ctx, key, offset, length, buffer)
	}
	return s.ReadRange(ctx, key, offset, length)
}

// Near reports whether the store is on this machine, so that large reads side by side gain nothing.
func Near(s Store) bool {
	n, ok := s.(interface{ Near() bool })
	return ok && n.Near()
}

// CreateAhead is Create of an object that nobody looks for before another one names it, which this store puts later. Where that
// is cheaper its bytes are made durable by the put, before what that writes gets its name: until then, after a loss of power, the
// object may be missing or have other content. What cannot be made durable then fails every put until it is deleted.
func CreateAhead(ctx context.Context, s Store, key string) (Upload, error) {
	if c, ok := s.(interface {
		CreateAhead(ctx context.Context, key string) (Upload, error)
	}); ok {
		return c.CreateAhead(ctx, key)
	}
	return s.Create(ctx, key)
}

// PutHint writes an object that only saves time, if the key is free. Where that is cheaper it is not made durable: after a
// loss of power it may be missing, or have other content, so that whoever reads it must notice. Errors: as PutIfAbsent.
func PutHint(ctx context.Context, s Store, key string, data []byte) error {
	if h, ok := s.(interface {
		PutHint(ctx context.Context, key string, data []byte) error
	}); ok {
		return h.PutHint(ctx, key, data)
	}
	return s.PutIfAbsent(ctx, key, data)
}
