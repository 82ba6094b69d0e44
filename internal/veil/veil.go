// Package veil hides values from whoever may read a table. A value becomes its hash under a secret key, one and the same wherever
// the value stands, so that hashes can be joined; a record that holds such values is sealed under that key, and whoever has it opens
// the record again.
//
//	key := veil.New(secret)
//	text := key.Hasher().Append(nil, []byte("ann@example.org")) // 64 hexadecimal digits
//	kept := key.Seal(record)
//
// Hashes are HMAC-SHA-256 (RFC 2104), sealed bytes AES-256-GCM under a key that is derived from the secret.
//
// Non-goals: secrets that are short enough to be guessed, and hiding which values are the same.
package veil

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
)

// Key is a secret by which values are hashed and records sealed. It is safe for concurrent use.
type Key struct {
	secret []byte
	id     [idBytes]byte
	aead   cipher.AEAD
}

// idBytes is the length of what tells keys apart.
const idBytes = 4

// HashLen is how many bytes a hash is, as text.
const HashLen = 2 * sha256.Size

// New returns the key of a secret, which is not empty.
func New(secret string) *Key {
	k := &Key{secret: []byte(secret)}
	derive := func(what string) []byte {
		mac := hmac.New(sha256.New, k.secret)
		mac.Write([]byte(what))
		return mac.Sum(nil)
	}
	copy(k.id[:], derive("freshet: id of a key"))
	block, err := aes.NewCipher(derive("freshet: sealed records"))
	if err == nil {
		k.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		panic(err) // the key is of a length that there is
	}
	return k
}

// ID tells keys apart, and tells nothing else of them: 8 hexadecimal digits.
func (k *Key) ID() string { return hex.EncodeToString(k.id[:]) }

// Hasher returns what hashes by the key.
func (k *Key) Hasher() *Hasher { return &Hasher{mac: hmac.New(sha256.New, k.secret)} }

// Hasher hashes values. Used by one goroutine.
type Hasher struct {
	mac hash.Hash
	sum [sha256.Size]byte
}

// Append appends the hash of a value as hexadecimal digits: what PostgreSQL's encode(hmac(value, key, 'sha256'), 'hex') is.
func (h *Hasher) Append(to, value []byte) []byte {
	h.mac.Reset()
	h.mac.Write(value)
	return hex.AppendEncode(to, h.mac.Sum(h.sum[:0]))
}

// Hash is the hash of one value.
func (k *Key) Hash(value string) string { return string(k.Hasher().Append(nil, []byte(value))) }

// sealed is what sealed bytes begin with: no text, and no JSON, does.
var sealed = []byte("\x00freshet sealed 1\x00")

// Seal seals bytes, so that only whoever has the key can read them:
//
//	mark (18 bytes) | id of the key (4) | nonce (12) | encrypted, with a tag (16)
func (k *Key) Seal(plain []byte) []byte {
	head := len(sealed) + idBytes + k.aead.NonceSize()
	out := make([]byte, head, head+len(plain)+k.aead.Overhead())
	copy(out, sealed)
	copy(out[len(sealed):], k.id[:])
	nonce := out[len(sealed)+idBytes:]
	_, _ = rand.Read(nonce) // it ends the process where there is no randomness
	return k.aead.Seal(out, nonce, plain, out[:len(sealed)+idBytes])
}

// IsSealed reports whether Seal made these bytes, by what they begin with.
func IsSealed(b []byte) bool { return bytes.HasPrefix(b, sealed) }

// ErrKey says that bytes were sealed under another key.
var ErrKey = errors.New("it was sealed under another key than those that are given")

// ErrBroken says that sealed bytes are not as they were made.
var ErrBroken = errors.New("what was sealed is damaged")

// Open returns what was sealed under one of the keys. Errors: ErrKey, ErrBroken.
func Open(b []byte, keys []*Key) ([]byte, error) {
	rest, is := bytes.CutPrefix(b, sealed)
	if !is || len(rest) < idBytes {
		return nil, ErrBroken
	}
	for _, k := range keys {
		if !bytes.Equal(rest[:idBytes], k.id[:]) {
			continue
		}
		body := rest[idBytes:]
		if len(body) < k.aead.NonceSize() {
			return nil, ErrBroken
		}
		n := k.aead.NonceSize()
		plain, err := k.aead.Open(nil, body[:n], body[n:], b[:len(sealed)+idBytes])
		if err != nil {
			return nil, ErrBroken
		}
		return plain, nil
	}
	return nil, ErrKey
}
