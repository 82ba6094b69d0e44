package keyindex

import (
	"encoding/binary"
	"math/bits"
)

// secret is the key of SipHash-2-4 with 128 bits of result (Aumasson and Bernstein): a pseudorandom function,
// so that who does not know the secret cannot choose keys whose fingerprints meet.
type secret struct{ k0, k1 uint64 }

// sip is the state of one hash.
type sip struct{ v0, v1, v2, v3 uint64 }

func (k secret) start() sip {
	return sip{
		k.k0 ^ 0x736f6d6570736575, k.k1 ^ 0x646f72616e646f6d ^ 0xee,
		k.k0 ^ 0x6c7967656e657261, k.k1 ^ 0x7465646279746573,
	}
}

func (s *sip) round() {
	s.v0 += s.v1
	s.v2 += s.v3
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v1
	s.v0 += s.v3
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 = bits.RotateLeft64(s.v2, 32)
}

func (s *sip) word(m uint64) {
	s.v3 ^= m
	s.round()
	s.round()
	s.v0 ^= m
}

// finish takes the last, partial word with the length in its top byte.
func (s *sip) finish(last uint64) Fingerprint {
	s.word(last)
	s.v2 ^= 0xee
	s.round()
	s.round()
	s.round()
	s.round()
	hi := s.v0 ^ s.v1 ^ s.v2 ^ s.v3
	s.v1 ^= 0xdd
	s.round()
	s.round()
	s.round()
	s.round()
	return Fingerprint{hi, s.v0 ^ s.v1 ^ s.v2 ^ s.v3}
}

// sum is the fingerprint of the bytes.
func (k secret) sum(b []byte) Fingerprint {
	s := k.start()
	length := uint64(len(b))
	for len(b) >= 8 {
		s.word(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	last := length << 56
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	return s.finish(last)
}
