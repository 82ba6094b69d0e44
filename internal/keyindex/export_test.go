package keyindex

import (
	"encoding/binary"
	"hash/crc32"
)

// SipHash is the hash of a message under the key 0, 1 … 15.
func SipHash(message []byte) []byte {
	fp := secret{0x0706050403020100, 0x0f0e0d0c0b0a0908}.sum(message)
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, fp.Hi), fp.Lo)
}

// signed appends the checksum that manifests and footers end with.
func signed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b[:len(b):len(b)], crc32.Checksum(b, castagnoli))
}
