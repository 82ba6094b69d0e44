package delta

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/freshet-io/freshet/store"
)

// checkFiles looks for each file in one listing of the table's folder; for those outside of it, one by one.
func (c *check) checkFiles(ctx context.Context) error {
	inside := map[string][]int{} // indices into files by key; of deletion vectors, of all that share the file
	vectors := map[string][]int{}
	for i := range c.files {
		a := &c.files[i]
		key, here := c.table.within(a.Path)
		if here {
			inside[key] = append(inside[key], i)
		} else if err := c.lookOutside(ctx, a, a.Path, a.Size); err != nil {
			return err
		}
		v := a.DeletionVector
		if v == nil || v.StorageType == "i" {
			continue
		}
		name, err := vectorName(v)
		if err != nil {
			c.about(a, SeverityError, FindingVector, "", "%v", err)
			c.skip(a)
			continue
		}
		if key, here := c.table.within(name); here {
			vectors[key] = append(vectors[key], i)
		} else if err := c.lookOutside(ctx, a, name, -1); err != nil {
			return err
		}
	}
	for o, err := range c.table.st.List(ctx, "", "") {
		if err != nil {
			return err
		}
		for _, i := range inside[o.Key] {
			if a := &c.files[i]; o.Size != a.Size {
				c.about(a, SeverityError, FindingSize, "restore the file from a copy, or the table to an older version",
					"it has %d bytes, by the log it should have %d", o.Size, a.Size)
			}
		}
		delete(inside, o.Key)
		delete(vectors, o.Key)
	}
	for _, key := range sortedNames(inside) {
		for _, i := range inside[key] {
			c.missing(&c.files[i])
		}
	}
	for _, key := range sortedNames(vectors) {
		for _, i := range vectors[key] {
			c.missingVector(&c.files[i], key)
		}
	}
	return nil
}

func (c *check) missing(a *Add) {
	c.skip(a)
	c.lost = append(c.lost, *a)
	c.about(a, SeverityError, FindingMissingFile,
		"bring the file back, restore an older version, or let fix take it out of the table", "the file is not there")
}

// missingVector is never fixed: without the vector rows that were deleted would come back.
func (c *check) missingVector(a *Add, key string) {
	c.skip(a)
	c.about(a, SeverityError, FindingMissingVector, "bring the file back, or restore an older version",
		"its deletion vector lies in %s, which is not there", key)
}

// skip keeps a deep check from reading the file.
func (c *check) skip(a *Add) {
	if c.blind == nil {
		c.blind = map[fileKey]bool{}
	}
	c.blind[a.key()] = true
}

// lookOutside looks for a file outside of the table's folder; size -1 is one that the log does not tell.
func (c *check) lookOutside(ctx context.Context, a *Add, name string, size int64) error {
	at, err := c.snap.locate(ctx, name)
	if errors.Is(err, ErrUnsupportedFeature) {
		c.about(a, SeverityInfo, FindingUnknown, "", "%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	o, err := at.st.Stat(ctx, at.key)
	switch {
	case errors.Is(err, store.ErrNotFound) && size < 0:
		c.missingVector(a, name)
		return nil
	case errors.Is(err, store.ErrNotFound):
		c.missing(a)
		return nil
	case err != nil:
		return err
	case size >= 0 && o.Size != size:
		c.about(a, SeverityError, FindingSize, "", "it has %d bytes, by the log it should have %d", o.Size, size)
	}
	return nil
}

// checkRowIDs makes sure that no two files give their rows the same ids by default, and none above the mark.
func (c *check) checkRowIDs() {
	if !c.snap.state.proto.Supports("rowTracking") {
		return
	}
	type stretch struct {
		file        *Add
		first, next int64
	}
	var all []stretch
	for i := range c.files {
		a := &c.files[i]
		if c.rows[i] >= 0 && a.BaseRowID != nil {
			all = append(all, stretch{a, *a.BaseRowID, *a.BaseRowID + c.rows[i]})
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.first, b.first) })
	mark, err := c.snap.state.rowIDHighWater()
	if err != nil {
		c.found(Finding{Severity: SeverityError, Kind: FindingRowIDs, Version: -1, Detail: err.Error()})
		return
	}
	for i, s := range all {
		if i > 0 && s.first < all[i-1].next {
			c.about(s.file, SeverityError, FindingRowIDs, "", "its row ids begin at %d, those of %s end before %d", s.first,
				all[i-1].file.Path, all[i-1].next)
		}
		if s.next-1 > mark {
			c.about(s.file, SeverityError, FindingRowIDs, "", "its row ids go up to %d, by the log none is above %d", s.next-1,
				mark)
		}
	}
}
