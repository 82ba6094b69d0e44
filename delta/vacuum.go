package delta

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// shortestVacuum is the retention below which a vacuum must be forced: writers and readers that have been at it
// for longer than the retention lose files under their hands.
const shortestVacuum = 168 * time.Hour

// VacuumOptions tune Vacuum. The zero value of each field means its default.
type VacuumOptions struct {
	// Retention is for how long files stay after the table has let go of them, and how old a file that no version
	// names must be. Default: delta.deletedFileRetentionDuration, 7 days. Negative: no time at all.
	Retention time.Duration
	// AtLeast is a lower bound of the retention, wherever that comes from. Default: none.
	AtLeast time.Duration
	// Force allows a Retention under 168 hours.
	Force bool
	// Lite looks for files to delete in the log only, not in a listing of the table's folder: it is quicker on large
	// tables, and leaves files that no commit ever named.
	Lite bool
	// DryRun finds what can go and leaves it.
	DryRun bool
	// KeepVersions must stay readable whatever the retention: their files are kept.
	KeepVersions []int64
	// LogCommits writes commits "VACUUM START" and "VACUUM END" into the table, as Spark can. Default: the table's
	// log does not show vacuums.
	LogCommits bool
	// Now is the time from which the retention counts. Default time.Now().
	Now time.Time
	// Report is told of each file that was looked at, before it is deleted, by one goroutine at a time. Default: nobody.
	Report func(VacuumFile)
}

// VacuumReason says why a vacuum deletes a file or keeps it.
type VacuumReason string

// What a vacuum finds of a file.
const (
	VacuumUnreferenced VacuumReason = "unreferenced" // no version that is kept names it: it goes
	VacuumReferenced   VacuumReason = "referenced"   // the newest version, a young tombstone or a kept version does
	VacuumYoung        VacuumReason = "young"        // it is younger than the retention: a commit may be on its way
	VacuumHidden       VacuumReason = "hidden"       // its name, or that of a folder above it, begins with "_" or "."
	VacuumNested       VacuumReason = "nested"       // a folder above it is a Delta table of its own
)

// VacuumFile is a file that a vacuum looked at.
type VacuumFile struct {
	Key      string // below the table's root
	Size     int64  // bytes
	Modified time.Time
	Reason   VacuumReason
}

// VacuumResult is what a vacuum did, or would do in a dry run.
type VacuumResult struct {
	DryRun       bool
	Retention    time.Duration
	Deleted      int64 // files
	DeletedBytes int64
	Kept         map[VacuumReason]int64 // files that stay, by reason; with Lite only those that the log names
}

// ErrRetention says that a vacuum's retention is too short to be safe, and was not forced.
var ErrRetention = errors.New("the retention is too short")

// Vacuum deletes files below the table's folder that no version of the retention needs. Kept are: files and deletion
// vectors of the newest version and of KeepVersions, those whose removal is younger than the retention, all that is
// itself younger, hidden files and folders but for _change_data, other Delta tables below the folder, and what lies
// outside of it. Deletion goes
// on where it was, when a vacuum is called again after an error. Older versions can no longer be read afterwards.
// Files that shallow clones of the table use are not known here. Errors: ErrRetention, *UnsupportedError of tables
// that this package cannot write, ErrVersionNotFound of KeepVersions. Spec: "Add File and Remove File".
func (t *Table) Vacuum(ctx context.Context, opts *VacuumOptions) (*VacuumResult, error) {
	v := &vacuum{table: t}
	if opts != nil {
		v.opts = *opts
	}
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("vacuum %s: %w", t.st.URL(), err)
	}
	return &v.result, nil
}

// vacuum is one run of Vacuum. Only the goroutine of run changes it.
type vacuum struct {
	table  *Table
	opts   VacuumOptions
	snap   *Snapshot
	cutoff time.Time
	used   keySet          // keys of files that must stay
	tables map[string]bool // folders, and whether a Delta table is in them
	result VacuumResult
}

func (v *vacuum) run(ctx context.Context) error {
	if err := v.prepare(ctx); err != nil {
		return err
	}
	if err := v.mark(ctx); err != nil {
		return err
	}
	find := found(v.listed)
	if v.opts.Lite {
		find = v.logged
	}
	end, err := v.lastExpired(ctx)
	if err != nil {
		return err
	}
	if v.opts.LogCommits && !v.opts.DryRun {
		if err := v.logStart(ctx, find, end); err != nil {
			return err
		}
	}
	if err := v.sweep(ctx, find, end); err != nil {
		return err
	}
	if v.opts.DryRun {
		return nil
	}
	if len(v.opts.KeepVersions) == 0 { // else a lite vacuum later must come upon what was kept for them
		if err := v.remember(ctx, end); err != nil {
			return err
		}
	}
	if v.opts.LogCommits {
		return v.logEnd(ctx)
	}
	return nil
}

// prepare checks whether the table may be vacuumed, and from when on files stay.
func (v *vacuum) prepare(ctx context.Context) (err error) {
	if v.snap, err = v.table.Snapshot(ctx); err != nil {
		return err
	}
	if err := v.snap.CheckWrite(); err != nil {
		return err
	}
	standard, err := v.snap.state.meta.duration(propFileRetention, defaultFileRetention)
	if err != nil {
		return err
	}
	v.result.Retention = max(v.opts.Retention, 0)
	if v.opts.Retention == 0 {
		v.result.Retention = standard
	}
	v.result.Retention = max(v.result.Retention, v.opts.AtLeast)
	if v.result.Retention < shortestVacuum && !v.opts.Force {
		return fmt.Errorf("%w: found %v, wanted %v or more: whoever reads or writes the table for longer than that "+
			"loses files; force it if nobody does", ErrRetention, v.result.Retention, shortestVacuum)
	}
	if v.opts.Now.IsZero() {
		v.opts.Now = time.Now()
	}
	v.cutoff = v.opts.Now.Add(-v.result.Retention)
	v.result.DryRun, v.result.Kept = v.opts.DryRun, map[VacuumReason]int64{}
	return nil
}

// found yields files to look at to take, in no order, each once; end is the last version outside of the retention.
type found func(ctx context.Context, end int64, take func(store.Object) error) error

// listed are all files below the table's folder.
func (v *vacuum) listed(ctx context.Context, _ int64, take func(store.Object) error) error {
	for o, err := range v.table.st.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list the table's folder: %w", err)
		}
		if err := take(o); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes what nobody needs, a few files side by side. What is there no more is no error.
func (v *vacuum) sweep(ctx context.Context, find found, end int64) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(deletesAtOnce)
	err := find(gctx, end, func(o store.Object) error {
		reason, err := v.judge(gctx, o)
		if err != nil {
			return err
		}
		f := VacuumFile{Key: o.Key, Size: o.Size, Modified: o.Modified, Reason: reason}
		if v.opts.Report != nil {
			v.opts.Report(f)
		}
		if f.Reason != VacuumUnreferenced {
			v.result.Kept[f.Reason]++
			return nil
		}
		v.result.Deleted++
		v.result.DeletedBytes += o.Size
		if !v.opts.DryRun {
			group.Go(func() error { return v.table.st.Delete(gctx, o.Key) })
		}
		return gctx.Err()
	})
	// A deletion that failed has ended the search, too: it is the cause.
	if failed := group.Wait(); failed != nil {
		return fmt.Errorf("delete files: %w", failed)
	}
	return err
}

func (v *vacuum) judge(ctx context.Context, o store.Object) (VacuumReason, error) {
	switch {
	case v.used.has(o.Key):
		return VacuumReferenced, nil
	case v.hidden(o.Key):
		return VacuumHidden, nil
	case !o.Modified.Before(v.cutoff):
		return VacuumYoung, nil
	}
	nested, err := v.nested(ctx, path.Dir(o.Key))
	if nested {
		return VacuumNested, err
	}
	return VacuumUnreferenced, err
}

// nested reports whether the folder, or one above it, is a Delta table of its own, whose files this table cannot know. It
// costs a listing of one key for each folder that has something to delete.
func (v *vacuum) nested(ctx context.Context, folder string) (bool, error) {
	if folder == "." {
		return false, nil
	}
	if is, known := v.tables[folder]; known {
		return is, nil
	}
	is, err := v.nested(ctx, path.Dir(folder))
	if err != nil {
		return false, err
	}
	if !is {
		for _, err := range v.table.st.List(ctx, folder+"/"+logDir, "") {
			if err != nil {
				return false, fmt.Errorf("look for a table in %s: %w", folder, err)
			}
			is = true
			break
		}
	}
	if v.tables == nil {
		v.tables = map[string]bool{}
	}
	v.tables[folder] = is
	return is, nil
}
