package delta

import (
	"context"
	"errors"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// checkChecksum compares the version's .crc, if there is one, with the log. One that is of the version's commit and has one
// thing otherwise is as good a witness as the log: reading is an error, and nobody but a person can tell which is broken.
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
		ours, err := c.snap.commitOf(ctx, sum)
		if err != nil {
			return err
		}
		if ours && len(found) == 1 {
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

func totalsOf(files []Add) (t fileTotals) {
	for i := range files {
		t.add(files[i].Size, files[i].DeletionVector, 1)
	}
	return t
}
