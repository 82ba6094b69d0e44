package spec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/store"
)

// Status is how a pipeline is. Its tables, what people have said of it, and its database are asked; no process that runs it is.
type Status struct {
	Pipeline *Pipeline
	State    string              // running, stopped, paused, new, lost; "": nothing tells
	Slot     *postgres.SlotState // nil: it reads no database, or that does not answer
	Problem  string              // that a person should look at; "": none
	Tables   []TableStatus
}

// TableStatus is how one of its tables is.
type TableStatus struct {
	Table     string
	State     string    // paused, parked, reloading, loading, new; "": it follows its source
	Lag       int64     // bytes of the source's log that it does not hold yet; -1: not known
	Fresh     time.Time // when it last moved on, or a cut said that it holds everything; zero: never, or not known
	PerSecond float64   // rows that it took in a second of late
	Problem   string    // that a person should look at; "": none
}

const (
	statusTogether = 8               // tables that are asked at once
	rateOver       = 5 * time.Minute // that the rate of a table is measured over
	rateCommits    = 100             // likewise, at most
)

// Status looks at the pipeline; over is how long the growth of what the server keeps is measured. A server that does not answer is a
// Problem. Errors: those of the stores.
func (p *Pipeline) Status(ctx context.Context, over time.Duration) (*Status, error) {
	said, err := p.readControl(ctx)
	if err != nil {
		return nil, err
	}
	s := &Status{Pipeline: p}
	if s.Slot, err = p.Slot(ctx, over); err != nil {
		s.Problem = err.Error()
	}
	tables := p.Tables()
	if s.Slot != nil {
		for _, t := range s.Slot.Tables {
			tables = append(tables, p.tableOf(t.Schema, t.Name))
		}
	}
	s.Tables = make([]TableStatus, len(tables))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(statusTogether)
	for i, table := range tables {
		group.Go(func() (err error) {
			s.Tables[i], err = p.tableStatus(ctx, table, s.Slot, said)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	s.judge(said)
	return s, nil
}

func (p *Pipeline) readControl(ctx context.Context) (*lake.Control, error) {
	st, err := p.OpenControl(ctx)
	if err != nil {
		return nil, err
	}
	return lake.ReadControl(ctx, st, p.App, nil)
}

// judge fills in the state of the pipeline.
func (s *Status) judge(said *lake.Control) {
	begun := false
	for _, t := range s.Tables {
		begun = begun || t.State != "new"
	}
	if s.Slot != nil && (begun || s.Slot.There) {
		s.Problem = s.Slot.Problem()
	}
	switch {
	case said.Paused != nil:
		s.State = "paused"
	case !begun:
		s.State = "new"
	case s.Slot == nil:
	case !s.Slot.There || s.Slot.Lost != "":
		s.State = "lost"
	case s.Slot.Active:
		s.State = "running"
	default:
		s.State = "stopped"
	}
}

// tableStatus looks at one table.
func (p *Pipeline) tableStatus(ctx context.Context, table string, slot *postgres.SlotState, said *lake.Control) (TableStatus, error) {
	s := TableStatus{Table: table, Lag: -1, State: "new"}
	st, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return s, err
	}
	all, err := lake.ReadProgress(ctx, st)
	switch {
	case errors.Is(err, delta.ErrNoTable):
		s.hold(said, table)
		return s, nil
	case err != nil:
		return s, fmt.Errorf("%s: %w", table, err)
	}
	err = lake.AddCuts(ctx, st, all, func(m lake.CutMarker) (store.Store, error) { return p.Project.OpenTable(ctx, m.Location) })
	if err != nil {
		return s, fmt.Errorf("%s: %w", table, err)
	}
	for _, a := range all {
		if a.App == p.App {
			s.State = ""
			s.follow(p, a.Lanes, slot)
		}
	}
	s.hold(said, table)
	if _, held := said.Tables[table]; held {
		parked, err := p.Parked(ctx, table)
		if err != nil {
			return s, err
		}
		if !parked.Over.IsZero() {
			s.Problem = "more than max_lag is parked: it must be loaded again"
		}
	}
	s.PerSecond, err = rowsPerSecond(ctx, st)
	return s, err
}

// follow fills in how far the table is behind its source.
func (s *TableStatus) follow(p *Pipeline, lanes []lake.LaneProgress, slot *postgres.SlotState) {
	for _, l := range lanes {
		if l.Updated.After(s.Fresh) {
			s.Fresh = l.Updated
		}
		switch {
		case slot == nil || l.Lane.Origin != slot.Log.Origin:
		case l.Lane.OriginID != slot.Log.OriginID:
			s.Problem = "it holds the log of another server, or of a database that was made again"
		case l.Lane.Name == slot.Log.Name:
			s.Lag = max(0, slot.End-l.Seq)
		case l.Seq < postgres.WholeHistory && p.readsHistory(l.Lane, slot, s.Table):
			s.State = fmt.Sprintf("loading, %d chunks done", l.Seq)
		}
	}
}

// readsHistory reports whether the lane is the history of the table's present source.
func (p *Pipeline) readsHistory(l freshet.Lane, slot *postgres.SlotState, table string) bool {
	for _, t := range slot.Tables {
		if t.History.Name == l.Name {
			return p.tableOf(t.Schema, t.Name) == table
		}
	}
	return false
}

// hold fills in what people, or the table's slowness, have held back.
func (s *TableStatus) hold(said *lake.Control, table string) {
	t := said.Tables[table]
	switch {
	case t.Resync != nil:
		s.State = "reloading"
	case t.Paused != nil && t.Paused.Park, t.Slow != nil:
		s.State = "parked"
	case t.Paused != nil || said.Paused != nil:
		s.State = "paused"
	}
	if t.Paused != nil && t.Paused.By == onTableError {
		s.Problem = t.Paused.Why
	}
	if t.Slow != nil {
		s.Problem = "it is slow " + t.Slow.String()
	}
}

// rowsPerSecond is how many rows the table's commits have changed in a second of late.
func rowsPerSecond(ctx context.Context, st store.Store) (float64, error) {
	table, err := delta.Open(ctx, st, nil)
	if err != nil {
		return 0, err
	}
	since, rows := time.Now().Add(-rateOver), int64(0)
	first := since
	n := 0
	for e, err := range table.History(ctx, rateCommits) {
		if err != nil {
			return 0, err
		}
		if e.Timestamp.Before(since) {
			break
		}
		rows += changedRows(e.Info.OperationMetrics)
		if n++; n == rateCommits { // there are more within that time
			first = e.Timestamp
		}
	}
	return float64(rows) / max(1, time.Since(first).Seconds()), nil
}

// changedRows is how many rows a commit says that it inserted, changed and deleted; 0 for one that only moved rows.
func changedRows(metrics map[string]string) (rows int64) {
	count := func(name string) int64 {
		var n int64
		_, _ = fmt.Sscan(metrics[name], &n) // 0 when it is not told
		return n
	}
	for _, name := range []string{"numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"} {
		rows += count(name)
	}
	if rows == 0 {
		rows = max(0, count("numOutputRows")-count("numCopiedRows"))
	}
	return rows
}
