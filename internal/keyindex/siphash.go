package keyindex

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// secret is the key of SipHash-2-4 with 128 bits of result (Aumasson and Bernstein): a pseudorandom function,
// so that who does not know the secret cannot choose keys whose fingerprints meet.
type secret struct{ k0, k1 uint64 }

func newSecret() secret { return secret{randomWord(), randomWord()} }

func randomWord() uint64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return binary.LittleEndian.Uint64(random[:])
}

// sum is the fingerprint of the bytes.
func (k secret) sum(b []byte) Fingerprint {
	v0, v1, v2, v3 := k.start()
	length := uint64(len(b))
	for len(b) >= 8 {
		v0, v1, v2, v3 = sipWord(v0, v1, v2, v3, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	last := length << 56
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	return sipEnd(sipWord(v0, v1, v2, v3, last))
}

// sumNine is sum of a byte and the eight little-endian bytes of v.
func (k secret) sumNine(first byte, v uint64) Fingerprint {
	v0, v1, v2, v3 := k.start()
	v0, v1, v2, v3 = sipWord(v0, v1, v2, v3, uint64(first)|v<<8)
	return sipEnd(sipWord(v0, v1, v2, v3, 9<<56|v>>56))
}

// The state travels in four words, which stay in registers.

func (k secret) start() (v0, v1, v2, v3 uint64) {
	return k.k0 ^ 0x736f6d6570736575, k.k1 ^ 0x646f72616e646f6d ^ 0xee,
		k.k0 ^ 0x6c7967656e657261, k.k1 ^ 0x7465646279746573
}

func sipWord(v0, v1, v2, v3, m uint64) (uint64, uint64, uint64, uint64) {
	v3 ^= m
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return v0 ^ m, v1, v2, v3
}

func sipEnd(v0, v1, v2, v3 uint64) Fingerprint {
	v2 ^= 0xee
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	hi := v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return Fingerprint{hi, v0 ^ v1 ^ v2 ^ v3}
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
