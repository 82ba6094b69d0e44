package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Mem is a Store in memory, for tests and for pipes that need not outlive the process. Two Mems share
// nothing. It is safe for concurrent use; it copies what it is given and what it gives.
type Mem struct {
	mu      sync.RWMutex
	keys    []string // in order
	objects map[string]memObject
}

type memObject struct {
	data     []byte // never changed once it is here
	modified time.Time
}

// NewMem returns an empty store.
func NewMem() *Mem {
	return &Mem{objects: map[string]memObject{}}
}

// URL is always "mem:".
func (m *Mem) URL() string { return "mem:" }

// Get returns a copy of the object. See Store.
func (m *Mem) Get(ctx context.Context, key string) ([]byte, error) {
	o, err := m.look(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(o.data), nil
}

// ReadRange returns a copy of a part of the object. See Store.
func (m *Mem) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	o, err := m.look(ctx, "read", key)
	if err != nil {
		return nil, err
	}
	from, to, err := Span(int64(len(o.data)), offset, length)
	if err != nil {
		return nil, wrap("read", key, err)
	}
	return bytes.Clone(o.data[from:to]), nil
}

// Stat returns size and time of the object. See Store.
func (m *Mem) Stat(ctx context.Context, key string) (Object, error) {
	o, err := m.look(ctx, "stat", key)
	if err != nil {
		return Object{}, err
	}
	return Object{Key: key, Size: int64(len(o.data)), Modified: o.modified}, nil
}

// Put writes the object. See Store.
func (m *Mem) Put(ctx context.Context, key string, data []byte) error {
	if err := admit(ctx, "put", key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(key, bytes.Clone(data))
	return nil
}

// PutIfAbsent writes the object if the key is free. See Store. It is never ambiguous.
func (m *Mem) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := admit(ctx, "put", key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.objects[key]; taken {
		return wrap("put", key, ErrExists)
	}
	m.set(key, bytes.Clone(data))
	return nil
}

// Create begins a streaming upload. See Store.
func (m *Mem) Create(ctx context.Context, key string) (Upload, error) {
	if err := admit(ctx, "create", key); err != nil {
		return nil, err
	}
	return &memUpload{ctx: ctx, mem: m, key: key}, nil
}

// List yields objects in key order. See Store. Objects that are written while it runs may or may not appear.
func (m *Mem) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		from, inclusive := after, false
		if prefix > after {
			from, inclusive = prefix, true
		}
		for {
			if err := ctx.Err(); err != nil {
				yield(Object{}, wrap("list", prefix, err))
				return
			}
			o, ok := m.next(from, inclusive)
			if !ok || !strings.HasPrefix(o.Key, prefix) || !yield(o, nil) {
				return
			}
			from, inclusive = o.Key, false
		}
	}
}

// Delete removes the object. See Store.
func (m *Mem) Delete(ctx context.Context, key string) error {
	if err := admit(ctx, "delete", key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, found := slices.BinarySearch(m.keys, key); found {
		m.keys = slices.Delete(m.keys, at, at+1)
		delete(m.objects, key)
	}
	return nil
}

func (m *Mem) look(ctx context.Context, verb, key string) (memObject, error) {
	if err := admit(ctx, verb, key); err != nil {
		return memObject{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.objects[key]
	if !ok {
		return memObject{}, wrap(verb, key, ErrNotFound)
	}
	return o, nil
}

// set stores data, which is Mem's own from here. The lock is held.
func (m *Mem) set(key string, data []byte) {
	if at, found := slices.BinarySearch(m.keys, key); !found {
		m.keys = slices.Insert(m.keys, at, key)
	}
	m.objects[key] = memObject{data: data, modified: time.Now()}
}

// next returns the first object behind from, or at it when inclusive.
func (m *Mem) next(from string, inclusive bool) (Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at, found := slices.BinarySearch(m.keys, from)
	if found && !inclusive {
		at++
	}
	if at == len(m.keys) {
		return Object{}, false
	}
	key := m.keys[at]
	o := m.objects[key]
	return Object{Key: key, Size: int64(len(o.data)), Modified: o.modified}, true
}

type memUpload struct {
	ctx  context.Context
	mem  *Mem
	key  string
	data []byte
	done bool
}

func (u *memUpload) Write(p []byte) (int, error) {
	if err := writable(u.ctx, u.done, u.key); err != nil {
		return 0, err
	}
	u.data = append(u.data, p...)
	return len(p), nil
}

func (u *memUpload) Close() error {
	if err := writable(u.ctx, u.done, u.key); err != nil {
		return err
	}
	u.done = true
	u.mem.mu.Lock()
	defer u.mem.mu.Unlock()
	u.mem.set(u.key, u.data)
	return nil
}

func (u *memUpload) Abort() error {
	u.done, u.data = true, nil
	return nil
}

// Span turns the arguments of Store.ReadRange into the half-open range [from, to) of an object of size bytes.
// It returns io.EOF for an offset at or beyond the end.
func Span(size, offset, length int64) (from, to int64, err error) {
	switch {
	case offset < 0:
		return max(0, size+offset), size, nil
	case length < 0:
		return 0, 0, fmt.Errorf("length %d of the range is negative", length)
	case offset >= size:
		return 0, 0, io.EOF
	}
	return offset, offset + min(length, size-offset), nil
}

// admit is the check that every call on a key begins with.
func admit(ctx context.Context, verb, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return wrap(verb, key, err)
	}
	return nil
}

// writable is the check that Write and Close of an upload begin with.
func writable(ctx context.Context, done bool, key string) error {
	if done {
		return fmt.Errorf("upload of %s: already closed or aborted", key)
	}
	if err := ctx.Err(); err != nil {
		return wrap("upload", key, err)
	}
	return nil
}

func wrap(verb, key string, err error) error {
	return fmt.Errorf("%s %s: %w", verb, key, err)
}
