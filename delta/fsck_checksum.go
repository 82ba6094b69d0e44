package delta

import (
	"context"
	"errors"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// checkChecksum compares the version's .crc, if there is one, with the log. One that is of the version's commit and has one
// thing otherwise, or is sure to be as it was written, is as good a witness as the log: reading is an error, and nobody but a
// person can tell which is broken.
func (c *check) checkChecksum(ctx context.Context) error {
	sum, err := c.table.getChecksum(ctx, c.snap.version)
	f := Finding{Severity: SeverityWarning, Kind: FindingChecksum, Path: checksumKey(c.snap.version),
		Version: c.snap.version, Remedy: "delete it: readers do without"}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case errors.Is(err, ErrCorrupt):
		f.Detail = err.Error()
	case err != nil:
		return err
	default:
		found := sum.otherState(c.snap)
		if other := sum.otherFiles(totalsOf(c.files)); other != "" {
			found = append(found, other)
		}
		f.Detail = strings.Join(found, "; ")
		its, err := c.snap.commitOf(ctx, sum)
		var lost *ChecksumError
		if errors.As(err, &lost) {
			c.found(Finding{Severity: SeverityError, Kind: FindingCommit, Path: commitKey(c.snap.version),
				Version: c.snap.version, Detail: lost.Detail, Remedy: putBack})
			return nil
		}
		if err != nil {
			return err
		}
		if its {
			err = c.checkCommits(ctx, sum, c.snap.version)
		}
		if err != nil {
			return err
		}
		if its && (len(found) == 1 || sum.ours) {
			f.Severity = SeverityError
			f.Remedy = "one of the two is broken: look into the log, or into a backup of it; if the log is right, delete the checksum"
		}
	}
	if f.Detail != "" {
		c.wrong = f.Severity == SeverityWarning
		c.found(f)
	}
	return nil
}

// checkCommits holds the commits against the sums that the .crc of a version has of them; when deep those before, too,
// against that of the version which these follow.
func (c *check) checkCommits(ctx context.Context, sum *versionChecksum, of int64) error {
	for i := range sum.commits.sums {
		version := sum.commits.first + int64(i)
		data, err := c.table.getCommit(ctx, version)
		if errors.Is(err, store.ErrNotFound) {
			continue // a gap, or cleaned away behind a checkpoint
		}
		if err != nil {
			return err
		}
		if sum.commits.differs(version, data) {
			c.found(Finding{Severity: SeverityError, Kind: FindingChecksum, Path: commitKey(version), Version: version,
				Detail: "it is not as it was written, by " + checksumKey(of), Remedy: putBackToo})
		}
	}
	older := sum.commits.first - 1
	if !c.opts.Deep || len(sum.commits.sums) == 0 || older < 0 || older >= of {
		return nil
	}
	sum, err := c.table.getChecksum(ctx, older)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, ErrCorrupt):
		return nil
	case err != nil:
		return err
	}
	return c.checkCommits(ctx, sum, older)
}

func totalsOf(files []Add) (t fileTotals) {
	for i := range files {
		t.add(files[i].Size, files[i].DeletionVector, 1)
	}
	return t
}
