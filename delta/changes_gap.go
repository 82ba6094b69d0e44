package delta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// GapError says that log cleanup or vacuum has taken what the changes of a version need.
type GapError struct {
	Version int64 // whose changes cannot be read
	// First is a version from which on all that is left of the range is there, and no lower one was found; -1 when there
	// is none in the range.
	First   int64
	Missing string // what is gone
	Cause   error
}

func (e *GapError) Error() string {
	remedy := "no later version of the range is whole"
	if e.First >= 0 {
		remedy = fmt.Sprintf("the first version that is still whole is %d; begin there", e.First)
	}
	return fmt.Sprintf("the changes of version %d are gone: %s; %s", e.Version, e.Missing, remedy)
}

// Unwrap returns what was met when the version was read.
func (e *GapError) Unwrap() error { return e.Cause }

// times lists the commits of the range: their times up to the first that is missing. Whatever is missing, the versions
// before it can be read, so that it becomes an error only when it is come to: hole is its version, to + 1 when there is
// none, and whole the version from which on none is.
func (r *changeReader) times(ctx context.Context) (times []time.Time, hole, whole int64, err error) {
	hole, whole = -1, r.from
	next := r.from
	for c, err := range r.table.commitFiles(ctx, r.from) {
		if err != nil {
			return nil, 0, 0, err
		}
		if c.version > r.to {
			break
		}
		if c.version != next {
			whole = c.version
			if hole < 0 {
				hole = next
			}
		}
		if hole < 0 {
			times = append(times, c.at)
		}
		next = c.version + 1
	}
	if next != r.to+1 {
		return nil, 0, 0, fmt.Errorf("list the log: it does not show version %d yet: %w", r.to, store.ErrUnavailable)
	}
	if hole < 0 {
		hole = r.to + 1
	}
	return times, hole, whole, nil
}

// missingCommit is the error of a version whose commit is missing.
func (r *changeReader) missingCommit(ctx context.Context, version, whole int64) error {
	first, err := r.table.firstVersion(ctx)
	if err != nil {
		return err
	}
	e := &GapError{Version: version, First: max(whole, first), Missing: "its commit is not in the log any more",
		Cause: store.ErrNotFound}
	if e.First > r.to {
		e.First = -1
	}
	return e
}

// gap makes the error of a version whose metadata cannot be built any more a *GapError.
func (r *changeReader) gap(ctx context.Context, err error) error {
	if !errors.Is(err, ErrVersionNotFound) {
		return err
	}
	first, ferr := r.table.firstVersion(ctx)
	if ferr != nil {
		return ferr
	}
	e := &GapError{Version: r.from, First: first, Missing: "the log before it was cleaned up", Cause: err}
	if first > r.to || first <= r.from {
		e.First = -1
	}
	return e
}

// gone makes the error of a version that lacks a file a *GapError.
func (r *changeReader) gone(ctx context.Context, version int64, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	first, ferr := r.firstWhole(ctx, version)
	if ferr != nil {
		return ferr
	}
	return &GapError{Version: version, First: first, Missing: err.Error(), Cause: err}
}

// maxGapFiles bounds the files that are looked for to tell where a range is whole again.
const maxGapFiles = 10_000

// firstWhole looks from the end of the range back to the version, for files that are gone.
func (r *changeReader) firstWhole(ctx context.Context, version int64) (int64, error) {
	first, files := int64(-1), 0
	if version >= r.to {
		return first, nil
	}
	state := &changeState{proto: r.last.state.proto, meta: r.last.state.meta}
	for data, err := range r.table.fetchCommits(ctx, r.to, version+1) {
		if errors.Is(err, store.ErrNotFound) {
			return first, nil
		}
		if err != nil {
			return 0, err
		}
		c, err := state.next(data)
		if err != nil {
			return 0, err
		}
		places, err := r.filesOf(ctx, c)
		if err != nil {
			return 0, err
		}
		if files += len(places); files > maxGapFiles {
			return first, nil
		}
		whole, err := exist(ctx, places)
		if err != nil || !whole {
			return first, err
		}
		first = c.version
	}
	return first, nil
}

// filesOf are the files that the changes of a commit are read from.
func (r *changeReader) filesOf(ctx context.Context, c *changeCommit) (places []located, err error) {
	add := func(path string, v *DeletionVector) {
		at, aerr := r.last.locate(ctx, path)
		if aerr == nil && v != nil && v.StorageType != "i" {
			places = append(places, at)
			var name string
			if name, aerr = vectorName(v); aerr == nil {
				at, aerr = r.last.locate(ctx, name)
			}
		}
		places, err = append(places, at), errors.Join(err, aerr)
	}
	if len(c.cdc) > 0 && (r.opts.Method == MethodAuto || r.opts.Method == MethodFeed) {
		for i := range c.cdc {
			add(c.cdc[i].Path, nil)
		}
		return places, err
	}
	for _, a := range c.adds {
		add(a.Path, a.DeletionVector)
	}
	for _, f := range c.removes {
		add(f.Path, f.DeletionVector)
	}
	return places, err
}

// exist reports whether all of the files are there.
func exist(ctx context.Context, places []located) (bool, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(commitsAtOnce)
	for _, at := range places {
		g.Go(func() error {
			_, err := at.st.Stat(ctx, at.key)
			return err
		})
	}
	err := g.Wait()
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
