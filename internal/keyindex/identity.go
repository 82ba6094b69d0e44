package keyindex

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// None is the version of an index that has been created and holds nothing yet.
const None int64 = -1

// Identity says what an index is of. An index is opened only as what it was created as.
type Identity struct {
	Table         string   // the table's id
	Columns       []Column // of the key, in order; at least one
	NullKeys      bool     // key columns may be null, and nulls are equal; else a null is a *NullKeyError
	SequenceBytes int      // of the sequence of each entry, 0 (none) to 32; what is in it is the caller's
}

// Column is one column of a key. A changed type changes fingerprints, so the index is then of something else.
type Column struct{ Name, Type string }

// MaxSequenceBytes is the longest sequence that an entry can carry.
const MaxSequenceBytes = 32

// Validate reports all that is wrong with the identity.
func (id Identity) Validate() error {
	var faults []error
	if id.Table == "" {
		faults = append(faults, errors.New("the table has no id"))
	}
	if len(id.Columns) == 0 {
		faults = append(faults, errors.New("the key has no columns"))
	}
	if id.SequenceBytes < 0 || id.SequenceBytes > MaxSequenceBytes {
		faults = append(faults, fmt.Errorf("a sequence has %d bytes, wanted 0 to %d",
			id.SequenceBytes, MaxSequenceBytes))
	}
	return errors.Join(faults...)
}

// differs tells how the identity differs from the wanted one; "" when it does not.
func (id Identity) differs(wanted Identity) string {
	switch {
	case id.Table != wanted.Table:
		return fmt.Sprintf("it is of table %q, wanted %q", id.Table, wanted.Table)
	case !slices.Equal(id.Columns, wanted.Columns):
		return fmt.Sprintf("its key is %v, wanted %v", id.Columns, wanted.Columns)
	case id.NullKeys != wanted.NullKeys:
		return fmt.Sprintf("its keys may be null: %t, wanted %t", id.NullKeys, wanted.NullKeys)
	case id.SequenceBytes != wanted.SequenceBytes:
		return fmt.Sprintf("its sequences have %d bytes, wanted %d", id.SequenceBytes, wanted.SequenceBytes)
	}
	return ""
}

// FileID names a data file inside one index. Ids are never used again. Zero is no file.
type FileID uint32

// Position is where the row of a key lies. The zero Position says that the key has none.
type Position struct {
	File FileID
	Row  int64 // in the file, from 0
}

// Tombstone is no file: a position in it says that the key has no row, and that Bury was told of its end; the
// sequence is that of the end.
const Tombstone FileID = math.MaxUint32

// rank is how much a position counts beside another one of its key in the same Change: none least, then a
// tombstone, then a file, the later more.
func (f FileID) rank() uint64 {
	switch f {
	case 0:
		return 0
	case Tombstone:
		return 1
	}
	return uint64(f) + 1
}

// maxRow is the last row that an entry can hold.
const maxRow = 1<<40 - 1
