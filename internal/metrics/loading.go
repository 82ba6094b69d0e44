package metrics

import (
	"time"

	freshet "github.com/freshet-io/freshet"
)

// Loading is how far the loading is of tables that were full when the pipeline first met them.
type Loading struct {
	Tables int   // that are being loaded
	Rows   int64 // of these, that were read
	Of     int64 // that there are, as the origin estimates; 0: it does not say
	// Left is how long it takes at the rate of so far; 0: it is not known.
	Left time.Duration
}

// loading keeps what is told of the tables that are being loaded.
type loading struct {
	tables map[string]freshet.Loading
	began  map[string]sample
}

// sample is how many rows there were when.
type sample struct {
	at   time.Time
	rows int64
}

// told takes note of how far a table is.
func (l *loading) told(now time.Time, t freshet.Loading) {
	if l.tables == nil {
		l.tables, l.began = map[string]freshet.Loading{}, map[string]sample{}
	}
	if t.Done {
		delete(l.tables, t.Table)
		delete(l.began, t.Table)
		return
	}
	l.tables[t.Table] = t
	if _, known := l.began[t.Table]; !known {
		l.began[t.Table] = sample{now, t.Rows}
	}
}

// sum is all tables together.
func (l *loading) sum(now time.Time) (all Loading) {
	rate := 0.0
	left := int64(0)
	for name, t := range l.tables {
		all.Tables++
		all.Rows, all.Of = all.Rows+t.Rows, all.Of+max(t.Of, t.Rows, 0)
		left += max(t.Of-t.Rows, 0)
		if took := now.Sub(l.began[name].at).Seconds(); took > 0 {
			rate += float64(t.Rows-l.began[name].rows) / took
		}
	}
	if rate > 0 {
		all.Left = time.Duration(float64(left) / rate * float64(time.Second)).Round(time.Second)
	}
	return all
}
