package delta

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/store"
)

// checkFeed makes sure, for each commit that has change files, that they are there, and that the rows they bring and
// take are those by which the table's files differ. What a vacuum has taken cannot be compared any more.
func (c *check) checkFeed(ctx context.Context) error {
	first, err := c.table.firstVersion(ctx)
	if err != nil {
		return err
	}
	for data, err := range c.table.fetchCommits(ctx, first, c.snap.version) {
		if errors.Is(err, store.ErrNotFound) {
			return nil // a gap, which was found before
		}
		if err != nil {
			return err
		}
		files, there, err := c.changeFiles(ctx, data)
		if errors.Is(err, ErrCorrupt) { // a checkpoint stands for it
			c.found(Finding{Severity: SeverityWarning, Kind: FindingCommit, Path: commitKey(data.version),
				Version: data.version, Detail: err.Error(), Remedy: putBack})
			continue
		}
		if err != nil {
			return err
		}
		if files > 0 && there {
			if err := c.compareFeed(ctx, data.version); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeFiles counts the change files of a commit, and reports whether all are there.
func (c *check) changeFiles(ctx context.Context, data commitData) (files int, there bool, err error) {
	there = true
	for a, err := range parseLog(commitKey(data.version), data.data, kindCDC) {
		if err != nil {
			return 0, false, err
		}
		if a.CDC == nil {
			continue
		}
		files++
		at, err := c.snap.locate(ctx, a.CDC.Path)
		if err != nil {
			return 0, false, err
		}
		if _, err := at.st.Stat(ctx, at.key); errors.Is(err, store.ErrNotFound) {
			there = false
			c.found(Finding{Severity: SeverityInfo, Kind: FindingMissingChanges, Path: a.CDC.Path, Version: data.version,
				Detail: "the change file is not there; a vacuum takes those that are older than the retention"})
		} else if err != nil {
			return 0, false, err
		}
	}
	return files, there, nil
}

// compareFeed compares the change files of a commit with what it did to the table's files: added up, rows that come and
// rows that go, as fingerprints, must be the same.
func (c *check) compareFeed(ctx context.Context, version int64) error {
	h := newRowHasher()
	feed, rows, err := c.balance(ctx, version, MethodFeed, h)
	if err == nil {
		var files fingerprint
		if files, _, err = c.balance(ctx, version, MethodVectors, h); err == nil && files != feed {
			c.found(Finding{Severity: SeverityError, Kind: FindingChanges, Version: version,
				Detail: fmt.Sprintf("the %d rows of its change files are not those by which its data files differ", rows)})
		}
	}
	var gap *GapError
	switch {
	case err == nil, errors.As(err, &gap), errors.Is(err, store.ErrNotFound):
		return nil
	case ctx.Err() != nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrPermission):
		return err
	case errors.Is(err, ErrCorrupt):
		c.found(Finding{Severity: SeverityError, Kind: FindingUnreadable, Version: version, Detail: err.Error()})
		return nil
	}
	c.found(Finding{Severity: SeverityInfo, Kind: FindingUnknown, Version: version, Detail: err.Error()})
	return nil
}

// balance adds up the fingerprints of rows that a version brings, less those that it takes.
func (c *check) balance(ctx context.Context, version int64, by ChangeMethod, h *rowHasher,
) (sum fingerprint, rows int64, err error) {
	for ch, err := range c.table.Changes(ctx, version, version, &ChangesOptions{Method: by}) {
		if err != nil {
			return sum, rows, err
		}
		n := int(ch.Batch.NumCols()) - 3 // _change_type, _commit_version, _commit_timestamp
		kinds := ch.Batch.Column(n).(*array.String)
		for i, f := range h.rows(ch.Batch.Columns()[:n], int(ch.Batch.NumRows())) {
			switch kinds.Value(i) {
			case ChangeInsert, ChangePostimage:
				sum.hi, sum.lo = sum.hi+f.hi, sum.lo+f.lo
			default:
				sum.hi, sum.lo = sum.hi-f.hi, sum.lo-f.lo
			}
		}
		rows += ch.Batch.NumRows()
		ch.Batch.Release()
	}
	return sum, rows, nil
}
