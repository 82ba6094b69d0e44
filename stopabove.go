package freshet

import (
	"fmt"
	"time"
)

// StopAbove is the share of records in quarantine that ends the run.
type StopAbove struct {
	Share  float64       // 0 to 1: rejects of all records
	Window time.Duration // over which it is taken. Default 5 min
	// AtLeast is how many records the window must hold to be judged; a run that comes to its end by itself is
	// judged whatever it holds. Default 1000.
	AtLeast int64
}

// rejectWindow counts records and rejects over the last StopAbove.Window, in slices of a tenth.
type rejectWindow struct {
	limit  *StopAbove
	slices [10]struct {
		at            int64 // number of the slice since the epoch
		rows, rejects int64
	}
}

func newRejectWindow(limit *StopAbove) *rejectWindow {
	if limit == nil {
		return &rejectWindow{}
	}
	l := *limit
	if l.Window <= 0 {
		l.Window = 5 * time.Minute
	}
	if l.AtLeast <= 0 {
		l.AtLeast = 1000
	}
	return &rejectWindow{limit: &l}
}

// add counts rows and rejects at the time now. It returns an error when the share of rejects is too high.
func (w *rejectWindow) add(now time.Time, rows, rejects int64) error {
	if w.limit == nil {
		return nil
	}
	at := now.UnixNano() / max(1, int64(w.limit.Window)/int64(len(w.slices)))
	s := &w.slices[at%int64(len(w.slices))]
	if s.at != at {
		s.at, s.rows, s.rejects = at, 0, 0
	}
	s.rows += rows
	s.rejects += rejects
	return w.judge(at, w.limit.AtLeast)
}

// final judges the window at the end of a run.
func (w *rejectWindow) final() error {
	if w.limit == nil {
		return nil
	}
	var last int64
	for _, s := range w.slices {
		last = max(last, s.at)
	}
	return w.judge(last, 1)
}

func (w *rejectWindow) judge(at, atLeast int64) error {
	var all, rejects int64
	for _, s := range w.slices {
		if at-s.at < int64(len(w.slices)) {
			all += s.rows + s.rejects
			rejects += s.rejects
		}
	}
	if all < atLeast || float64(rejects) <= w.limit.Share*float64(all) {
		return nil
	}
	return &Error{Code: CodeTooManyRejects, Class: ClassCheck,
		Msg: fmt.Sprintf("%d of the last %d records went to quarantine (%.2f %%), more than the %.2f %% that "+
			"stop_above allows",
			rejects, all, 100*float64(rejects)/float64(all), 100*w.limit.Share),
		Fix: "look at them with `freshet quarantine list`, mend the origin or the schema, and run again; " +
			"what was read is committed"}
}
