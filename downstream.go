package freshet

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/store"
)

// errEnded is what a source hears that asks after the run's end.
var errEnded = errors.New("the pipeline has ended")

// ask is what Downstream wants of the write goroutine: to own lanes from now on, at this progress, or to give
// lanes up and commit what was written of them.
type ask struct {
	table    string
	own      bool
	progress Progress      // to own
	lanes    []Lane        // to give up
	gone     bool          // they are another process's from now on
	behind   int64         // what was queued before: where lanes to give up are ours, it is written first
	done     chan struct{} // closed when it is done
}

// downstream is the run as its source sees it.
type downstream struct{ *run }

// Schema maps the table's columns back through the steps.
func (d downstream) Schema(ctx context.Context, table string) (*arrow.Schema, error) {
	var schema *arrow.Schema
	err := d.waitOut(ctx, "read the schema of "+table, func() (err error) {
		schema, err = d.target.Schema(ctx, table)
		return err
	})
	if err != nil || schema == nil {
		return nil, err
	}
	d.stepping.Lock()
	defer d.stepping.Unlock()
	steps, err := d.stepsFor(table)
	if err != nil {
		return nil, err
	}
	var fields []arrow.Field
	var hidden []string // made by a step, maybe in the place of a column of the source
	seen := map[string]bool{}
	for _, f := range schema.Fields() {
		name, ok := origin(steps, f.Name)
		switch {
		case !ok:
			hidden = append(hidden, f.Name)
		case !seen[name]:
			seen[name] = true
			f.Name = name
			fields = append(fields, f)
		}
	}
	more := strings.Join(hidden, "\n")
	if _, all := origin(steps, noColumn); !all {
		more = "*"
	}
	meta := arrow.NewMetadata([]string{MoreColumns}, []string{more})
	return arrow.NewSchema(fields, &meta), nil
}

// noColumn is a name that no column has: what steps do with it they do with all columns they do not know.
const noColumn = "\x00"

// origin is the source's column that reaches the table unchanged under this name.
func origin(steps []Step, name string) (string, bool) {
	for i := len(steps) - 1; i >= 0; i-- {
		in, ok := steps[i].Origin(name)
		if !ok {
			return "", false
		}
		name = in
	}
	return name, true
}

// Ensure plans the steps and has the target make the table for what comes out.
func (d downstream) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	schema, err := d.plan(table, schema)
	if err != nil {
		return err
	}
	return d.waitOut(ctx, "create "+table, func() error { return d.target.Ensure(ctx, table, schema) })
}

// Widen has the target widen, if it can, the columns that the source's become unchanged by the steps.
func (d downstream) Widen(ctx context.Context, table string, schema *arrow.Schema) error {
	w, can := d.target.(Widener)
	if !can {
		return nil
	}
	return d.waitOut(ctx, "widen columns of "+table, func() error {
		have, err := d.target.Schema(ctx, table)
		if err != nil || have == nil {
			return err
		}
		if have, err = d.through(table, have, schema); err != nil || have.NumFields() == 0 {
			return err
		}
		return w.Widen(ctx, table, have)
	})
}

// Hold has the target hold the table back, if it can.
func (d downstream) Hold(ctx context.Context, table string, cause error) (there bool, err error) {
	h, can := d.target.(Holder)
	if !can {
		return false, cause
	}
	err = d.waitOut(ctx, "hold back "+table, func() (err error) {
		there, err = h.Hold(ctx, table, cause)
		return err
	})
	return there, err
}

// through are the columns of the table that columns of the source become, with the types of these.
func (d downstream) through(table string, have, source *arrow.Schema) (*arrow.Schema, error) {
	d.stepping.Lock()
	defer d.stepping.Unlock()
	steps, err := d.stepsFor(table)
	if err != nil {
		return nil, err
	}
	var fields []arrow.Field
	for _, f := range have.Fields() {
		if name, ok := origin(steps, f.Name); ok && source.HasField(name) {
			at := source.FieldIndices(name)[0]
			f.Type = source.Field(at).Type
			fields = append(fields, f)
		}
	}
	return arrow.NewSchema(fields, nil), nil
}

func (d downstream) plan(table string, schema *arrow.Schema) (*arrow.Schema, error) {
	d.stepping.Lock()
	defer d.stepping.Unlock()
	steps, err := d.stepsFor(table)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		if schema, err = s.Plan(schema); err != nil {
			return nil, err
		}
	}
	return schema, nil
}

// Resume settles what is on its way of these lanes, so that the table's answer counts it, and lets them go on
// from there. One at a time: were the answer of another overtaken by batches that came after it, it would set
// the lane back under them.
func (d downstream) Resume(ctx context.Context, table string, lanes []Lane) (Progress, error) {
	if err := d.turn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-d.resuming }()
	if err := d.put(ctx, ask{table: table, lanes: lanes, behind: d.queued.Load()}); err != nil {
		return nil, err
	}
	return d.own(ctx, table, "read the progress of "+table, func() (Progress, error) {
		return d.target.Resume(ctx, table, lanes)
	})
}

// Start commits where lanes begin and lets them go on from there.
func (d downstream) Start(ctx context.Context, table string, starts Progress) (Progress, error) {
	if err := d.turn(ctx); err != nil {
		return nil, err
	}
	defer func() { <-d.resuming }()
	return d.own(ctx, table, "record the start of "+table, func() (Progress, error) {
		return d.target.Start(ctx, table, starts)
	})
}

// Since asks the target.
func (d downstream) Since(ctx context.Context, table string) (at time.Time, known bool, err error) {
	err = d.waitOut(ctx, "read the progress of "+table, func() (err error) {
		at, known, err = d.target.Since(ctx, table)
		return err
	})
	return at, known, err
}

// Bookmark asks the target.
func (d downstream) Bookmark(ctx context.Context, table, name string, mark []byte) (kept []byte, err error) {
	err = d.waitOut(ctx, "keep a bookmark with "+table, func() (err error) {
		kept, err = d.target.Bookmark(ctx, table, name, mark)
		return err
	})
	return kept, err
}

// Unmark asks the target.
func (d downstream) Unmark(ctx context.Context, table, prefix, last string) error {
	return d.waitOut(ctx, "delete bookmarks with "+table, func() error {
		return d.target.Unmark(ctx, table, prefix, last)
	})
}

// turn waits until no other call asks where lanes stand.
func (d downstream) turn(ctx context.Context) error {
	select {
	case d.resuming <- struct{}{}:
		return nil
	case <-d.done:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d downstream) own(ctx context.Context, table, what string, look func() (Progress, error)) (
	Progress, error) {
	var p Progress
	err := d.waitOut(ctx, what, func() (err error) {
		p, err = look()
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, d.put(ctx, ask{table: table, own: true, progress: p})
}

// Release commits what was read of the lanes and forgets them. After the run's end there is nothing to
// commit.
func (d downstream) Release(ctx context.Context, table string, lanes []Lane) error {
	err := d.put(ctx, ask{table: table, lanes: lanes, gone: true})
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// put has the write goroutine do it and waits until it is done.
func (d downstream) put(ctx context.Context, a ask) error {
	a.done = make(chan struct{})
	select {
	case d.asks <- a:
	case <-d.done:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-a.done:
		return nil
	case <-d.done:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startTimeout is how long a target is waited for that has not answered once in the run: then a wrong address is likelier
// than an outage.
const startTimeout = 30 * time.Second

// waitOut repeats try as long as the target's store does not answer and ctx lasts.
func (r *run) waitOut(ctx context.Context, what string, try func() error) error {
	waited := false
	defer func() {
		if waited {
			r.recovered(what)
		}
	}()
	for strikes := 1; ; strikes++ {
		err := try()
		if err == nil && waited {
			r.state("running")
		}
		if !store.Retryable(err) {
			r.answered.Store(true)
			return err
		}
		if ctx.Err() != nil || !r.answered.Load() && time.Since(r.began) > startTimeout {
			return err
		}
		r.retry(what, err)
		if !waited {
			r.state("waiting")
			waited = true
		}
		pause := time.NewTimer(pauseAfter(strikes))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}
