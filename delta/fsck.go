package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/freshet-io/freshet/store"
)

// Severity says how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	SeverityError   Severity = "error"   // rows are lost, wrong or cannot be read
	SeverityWarning Severity = "warning" // readers of rows do not notice, others do, or will
	SeverityInfo    Severity = "info"    // nothing to do
)

// The kinds of findings.
const (
	FindingMissingFile    = "missing file"
	FindingSize           = "wrong size"
	FindingUnreadable     = "unreadable file"
	FindingRows           = "wrong row count"
	FindingStats          = "wrong statistics"
	FindingNull           = "null in a NOT NULL column"
	FindingMissingVector  = "missing deletion vector"
	FindingVector         = "broken deletion vector"
	FindingRowIDs         = "row ids given twice"
	FindingGap            = "missing commits"
	FindingCommit         = "broken commit"
	FindingCheckpoint     = "broken checkpoint"
	FindingCheckpointHint = "wrong _last_checkpoint"
	FindingChecksum       = "wrong checksum" // or the log is wrong
	FindingMissingChanges = "missing change data"
	FindingChanges        = "change feed disagrees"
	FindingUnknown        = "not checked" // the store or the table's features did not let it
)

// Finding is something that a check found.
type Finding struct {
	Severity Severity
	Kind     string // one of the constants
	Path     string // of the file as the log names it, or its key in the log; "" when it is about none
	Version  int64  // of the commit that it is about, else -1
	Detail   string // what was found and what was wanted
	Remedy   string // "" when there is none
}

// CheckOptions tune Check. The zero value of each field means its default.
type CheckOptions struct {
	// Snapshot is the version to check. Default: the newest.
	Snapshot *Snapshot
	// Deep reads all files: their rows, statistics and deletion vectors, and the change feed. Default: whether files are
	// there, with their sizes, and whether the log is whole.
	Deep bool
	// Fix does what is safe: it takes files that are not there out of the table, since no reader gets past them, writes a
	// new checkpoint in the place of a broken one while what it is made of is there, and deletes a .crc that no reader
	// believes. Only for the newest version.
	Fix bool
	// Concurrency is how many files are read at once. Default: the number of processors.
	Concurrency int
	// MaxFindings is how many are listed; all are counted. Default 1000.
	MaxFindings int
	// Progress is told how many files were checked, by one goroutine at a time. Default: nobody.
	Progress func(files, of int64)
}

// CheckReport is what a check found.
type CheckReport struct {
	Version  int64
	Files    int64
	Bytes    int64
	Rows     int64     // that were read and are not deleted; -1 unless deep
	Findings []Finding // the worst first
	Errors   int64     // of all findings, also those that are not listed
	Warnings int64
	Fixed    int64 // findings that were fixed
	Unfixed  int64 // errors that were not
	FixedAt  int64 // the version that took missing files out, -1 when there is none
}

// Check looks for damage: that the log is whole, that each file of the version is there with its size, and when deep that
// each can be read and holds as many rows as the log says, that statistics and deletion vectors tell the truth, that row
// ids are given once, and that the change feed agrees with the files. Damage is a finding, not an error. Errors: those of
// opening the table but for ErrCorrupt, and of a store that refuses.
func (t *Table) Check(ctx context.Context, opts *CheckOptions) (*CheckReport, error) {
	c := &check{table: t}
	if opts != nil {
		c.opts = *opts
	}
	c.opts.Concurrency = cmp.Or(max(c.opts.Concurrency, 0), runtime.GOMAXPROCS(0))
	c.opts.MaxFindings = cmp.Or(max(c.opts.MaxFindings, 0), 1000)
	c.report.Rows, c.report.FixedAt = -1, -1
	if err := c.run(ctx); err != nil {
		return nil, fmt.Errorf("check %s: %w", t.st.URL(), err)
	}
	c.report.Unfixed = c.report.Errors
	if c.report.FixedAt >= 0 {
		c.report.Unfixed -= int64(len(c.lost))
	}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rankOfSeverity(a.Severity), rankOfSeverity(b.Severity)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Path, b.Path))
	})
	return &c.report, nil
}

// Check is Table.Check of the newest version of the table at st, also of one that cannot be opened because its log is
// damaged.
func Check(ctx context.Context, st store.Store, open *OpenOptions, opts *CheckOptions) (*CheckReport, error) {
	return newTable(st, open).Check(ctx, opts)
}

func rankOfSeverity(s Severity) int {
	return slices.Index([]Severity{SeverityError, SeverityWarning, SeverityInfo}, s)
}

// check is one run of Check.
type check struct {
	table  *Table
	opts   CheckOptions
	snap   *Snapshot
	files  []Add            // with statistics
	rows   []int64          // of each of files, deleted ones included: by its footer once that is read, else by its statistics
	lost   []Add            // that are not there
	blind  map[fileKey]bool // files that cannot be read: they are not there, or their deletion vector is not
	broken []*checkpointFile
	astray bool // _last_checkpoint names a checkpoint that is not there
	wrong  bool // the version's .crc is, and nobody believes it
	mu     sync.Mutex
	report CheckReport
	done   int64
}

func (c *check) run(ctx context.Context) error {
	if c.snap = c.opts.Snapshot; c.snap == nil {
		snap, err := c.table.Snapshot(ctx)
		if errors.Is(err, ErrCorrupt) {
			return c.unopened(ctx, err)
		}
		if err != nil {
			return err
		}
		c.snap = snap
	}
	c.report.Version = c.snap.version
	if err := c.checkLog(ctx); err != nil {
		return err
	}
	if len(c.broken) > 0 || c.astray { // the snapshot may be read from a checkpoint that is broken, or gone
		snap, err := c.table.load(ctx, c.snap.version)
		if err != nil {
			c.found(Finding{Severity: SeverityError, Kind: FindingUnreadable, Version: c.snap.version, Detail: err.Error()})
			return nil
		}
		c.snap = snap
	}
	for a, err := range c.snap.listed(ctx, kindAdd|kindStats, nil, nil) {
		if errors.Is(err, ErrCorrupt) {
			c.found(Finding{Severity: SeverityError, Kind: FindingCommit, Version: -1, Detail: err.Error(), Remedy: putBack})
			return nil // which files there are is not known
		}
		if err != nil {
			return err
		}
		n, known := recordCount(a.Stats)
		if !known {
			n = -1
		}
		c.files, c.rows = append(c.files, *a), append(c.rows, n)
		c.report.Files++
		c.report.Bytes += a.Size
	}
	if err := c.checkChecksum(ctx); err != nil {
		return err
	}
	if err := c.checkFiles(ctx); err != nil {
		return err
	}
	if c.opts.Deep {
		c.report.Rows = 0
		if err := c.checkRows(ctx); err != nil {
			return err
		}
		if err := c.checkFeed(ctx); err != nil {
			return err
		}
	}
	c.checkRowIDs()
	if c.opts.Fix {
		return c.fix(ctx)
	}
	return nil
}

// found notes a finding.
func (c *check) found(f Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f.Severity {
	case SeverityError:
		c.report.Errors++
	case SeverityWarning:
		c.report.Warnings++
	}
	if len(c.report.Findings) < c.opts.MaxFindings {
		c.report.Findings = append(c.report.Findings, f)
	}
}

// about notes a finding of a data file.
func (c *check) about(a *Add, s Severity, kind, remedy, detail string, args ...any) {
	c.found(Finding{Severity: s, Kind: kind, Path: a.Path, Version: -1, Remedy: remedy, Detail: fmt.Sprintf(detail, args...)})
}

// fix does what is safe.
func (c *check) fix(ctx context.Context) error {
	newest, err := c.table.Snapshot(ctx)
	if err != nil {
		return err
	}
	if newest.version != c.snap.version {
		return fmt.Errorf("version %d was checked, and there is a version %d by now: check again", c.snap.version,
			newest.version)
	}
	if c.wrong {
		if err := c.table.st.Delete(ctx, checksumKey(c.snap.version)); err != nil {
			return err
		}
		c.report.Fixed++
	}
	if len(c.lost) > 0 {
		if err := c.dropLost(ctx); err != nil {
			return err
		}
	}
	return c.renew(ctx)
}

// renew writes broken checkpoints again, from older ones and the commits since. Where these are gone, the broken one stays.
func (c *check) renew(ctx context.Context) error {
	for _, k := range c.broken {
		snap, err := c.table.loadWithout(ctx, k.version, k)
		if unusable(err) || errors.Is(err, ErrVersionNotFound) {
			continue
		}
		if err == nil {
			err = c.table.Checkpoint(ctx, snap)
		}
		if err == nil {
			err = c.table.deleteAll(ctx, k.others())
		}
		if err != nil {
			return err
		}
		c.report.Fixed++
	}
	snap, err := c.table.load(ctx, latest)
	if err != nil {
		return err
	}
	c.table.remember(snap)
	if !c.astray {
		return nil
	}
	if err := c.table.Checkpoint(ctx, snap); err != nil {
		return err
	}
	c.report.Fixed++
	return nil
}

// others are the files of the checkpoint that a classic one, in its place, does not overwrite.
func (c *checkpointFile) others() (keys []string) {
	for _, o := range c.files {
		if o.Key != checkpointKey(c.version) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// dropLost takes the files that are not there out of the table. Their rows are gone: the commit says so (dataChange),
// so that whoever follows the table's changes hears of it.
func (c *check) dropLost(ctx context.Context) error {
	if err := c.snap.CheckWrite(); err != nil {
		return err
	}
	tx := c.table.Begin(c.snap, nil)
	var bytes int64
	for i := range c.lost {
		a := &c.lost[i]
		at, err := c.snap.locate(ctx, a.Path)
		if err != nil {
			return err
		}
		if _, err := at.st.Stat(ctx, at.key); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s was not there, and is there now, or cannot be looked for: check again: %w", a.Path,
				errors.Join(err, ErrCorrupt))
		}
		bytes += a.Size
		remove := a.Remove()
		remove.DataChange = true
		tx.Remove(remove)
	}
	tx.Operation("FSCK", map[string]string{}, map[string]string{"numRemovedFiles": strconv.Itoa(len(c.lost)),
		"numRemovedBytes": strconv.FormatInt(bytes, 10)})
	result, err := tx.Commit(ctx)
	if err != nil {
		return err
	}
	c.report.Fixed += int64(len(c.lost))
	c.report.FixedAt = result.Version
	return nil
}
