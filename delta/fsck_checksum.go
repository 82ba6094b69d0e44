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
		if err != nil {
			return err
		}
		if its {
			err = c.checkCommits(ctx, sum)
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

// checkCommits holds the commits against the sums that a .crc has of them.
func (c *check) checkCommits(ctx context.Context, sum *versionChecksum) error {
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
				Detail: "it is not as it was written, by " + checksumKey(c.snap.version),
				Remedy: "put it back from a backup: what it says may be wrong, also where it can be read"})
		}
	}
	return nil
}

func totalsOf(files []Add) (t fileTotals) {
	for i := range files {
		t.add(files[i].Size, files[i].DeletionVector, 1)
	}
	return t
}
