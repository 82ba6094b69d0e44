package delta

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
)

// maxCommitSums is of how many commits a .crc tells the sums at most: of the newest.
const maxCommitSums = 256

// commitSums are the CRC-32C of the bytes of commits, of one version after another. The zero value is of none. It is
// shared between snapshots, and so never changed.
type commitSums struct {
	first int64 // the version of the first
	sums  []uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// with are these and that of a version's commit; where versions between are missing, the older ones are given up.
func (c commitSums) with(version int64, commit []byte) commitSums {
	sum := crc32.Checksum(commit, castagnoli)
	if len(c.sums) == 0 || version != c.first+int64(len(c.sums)) {
		return commitSums{version, []uint32{sum}}
	}
	return commitSums{c.first, append(slices.Clip(c.sums), sum)}.newest(maxCommitSums)
}

// newest are the last n.
func (c commitSums) newest(n int) commitSums {
	if over := len(c.sums) - n; over > 0 {
		return commitSums{c.first + int64(over), c.sums[over:]}
	}
	return c
}

// after are those of versions after one.
func (c commitSums) after(version int64) commitSums {
	if last := c.first + int64(len(c.sums)) - 1; version < last {
		return c.newest(int(min(last-version, maxCommitSums)))
	}
	return commitSums{}
}

// differs reports whether the commit of a version is known to have other bytes.
func (c commitSums) differs(version int64, commit []byte) bool {
	at := version - c.first
	return at >= 0 && at < int64(len(c.sums)) && c.sums[at] != crc32.Checksum(commit, castagnoli)
}

// Names of what a .crc of ours says besides what the protocol knows, which others pass over: the sums of commits; and, as its
// last field, that of all bytes before.
const (
	commitSumsField = "freshetCommits"
	selfSumField    = "freshetChecksum"
	selfSumMark     = `,"` + selfSumField + `":`
)

func (c commitSums) write(o *objectWriter) {
	o.int("first", c.first)
	o.key("crc32c")
	o.b = append(o.b, '[')
	for i, sum := range c.sums {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = strconv.AppendUint(o.b, uint64(sum), 10)
	}
	o.b = append(o.b, ']')
}

func (c *commitSums) parse(r *jsonReader) error {
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "first":
			c.first, err = r.int()
		case "crc32c":
			err = r.array(func() error {
				sum, err := r.int()
				if err == nil && (sum < 0 || sum > math.MaxUint32 || len(c.sums) == maxCommitSums) {
					return r.fail(fmt.Sprintf("at most %d sums of 32 bits", maxCommitSums))
				}
				c.sums = append(c.sums, uint32(sum))
				return err
			})
		default:
			err = r.skip()
		}
		return err
	})
	if err == nil && (c.first < 0 || c.first > math.MaxInt64-maxCommitSums) {
		return r.fail("the version of a commit")
	}
	return err
}

// withOwnSum is the text of an object with the sum of itself.
func withOwnSum(text []byte) []byte {
	text = text[:len(text)-1]
	sum := crc32.Checksum(text, castagnoli)
	return append(strconv.AppendUint(append(text, selfSumMark...), uint64(sum), 10), '}')
}

// hasOwnSum reports whether the text has the sum of itself, and whether that is right.
func hasOwnSum(text []byte) (has, right bool) {
	at := bytes.LastIndex(text, []byte(selfSumMark))
	if at < 0 {
		return false, false
	}
	return true, bytes.Equal(withOwnSum(append(slices.Clone(text[:at]), '}')), text)
}
