package lake

// A history of a key is what the source said of it, one saying a sequence, folded:
//
//	said     Alice@5   Alice@10   Bob@12   Alice@15   gone@20   gone@30   Bob@40
//	periods  Alice [5,12) also 10 │ Bob [12,15) │ Alice [15,20) also 30 │ Bob [40,…
//
// The periods hold all of it: expand gives back what was said, so that something that comes late can be put into its place
// and all be folded again. The outcome does not depend on the order in which it came.

// saying is what the source said of a key at a sequence.
type saying struct {
	at   string // the sequence, as text that compares as it does
	gone bool   // that there is no such row; else that it is so:
	row  values
	by   int32 // the row of the commit that says it, or noRow: it is told by a row that is stored
}

// values are the cells of a row: each is what the first of rows says that sent it, else what is stored.
type values struct {
	rows   []int32 // of the commit, downwards
	stored int32   // or noRow
}

// period is a time in which a row was so. One that begins when it ends says only that the key was gone then.
type period struct {
	from, to string   // inclusive, exclusive; to "": it lasts
	also     []string // ascending, see AlsoSaidColumn
	row      values
	last     string // of the newest period: the sequence of what was said last; else ""
	by       int32  // of the newest period: who said that, or noRow
}

// empty reports whether the period says only that the key was gone.
func (p *period) empty() bool { return p.from == p.to }

// expand is what was said that made the periods, which follow each other.
func expand(periods []period) []saying {
	var all []saying
	for i := range periods {
		p := &periods[i]
		all = append(all, saying{at: p.from, gone: p.empty(), row: p.row, by: noRow})
		ended := p.to == "" || p.empty() || i+1 < len(periods) && periods[i+1].from == p.to
		for _, at := range p.also {
			if !ended && at > p.to {
				all, ended = append(all, saying{at: p.to, gone: true, row: p.row, by: noRow}), true
			}
			all = append(all, saying{at: at, gone: p.to != "" && at > p.to, row: p.row, by: noRow})
		}
		if !ended {
			all = append(all, saying{at: p.to, gone: true, row: p.row, by: noRow})
		}
	}
	return all
}

// folder tells how values relate.
type folder interface {
	// same reports whether two rows say the same in all columns that are tracked.
	same(a, b values) bool
	// shows reports whether a row shows what was said of it last, in columns that are not tracked, and not what it began with.
	shows() bool
	// repeats is how many sequences a period keeps of what changed nothing.
	repeats() int
	// complete makes values whole that did not send all, by those before; ok is false when they cannot be.
	complete(row values, before *values) (whole values, ok bool)
}

// fold makes periods of what was said, ascending, one saying a sequence. It returns beside them the rows that nothing makes
// whole.
func fold(all []saying, f folder) (periods []period, waiting []int32) {
	live := false
	var newest saying
	for _, s := range all {
		var now *period
		if n := len(periods); n > 0 {
			now = &periods[n-1]
		}
		if !s.gone {
			var before *values
			if live {
				before = &now.row
			}
			whole, ok := f.complete(s.row, before)
			if !ok {
				waiting = append(waiting, s.by)
				continue
			}
			s.row = whole
		}
		switch {
		case s.gone && live:
			now.to, live = s.at, false
		case s.gone && now != nil:
			now.also = append(now.also, s.at)
		case live && f.same(now.row, s.row):
			now.also = append(now.also, s.at)
			if f.shows() {
				now.row = s.row
			}
		case s.gone:
			periods = append(periods, period{from: s.at, to: s.at, row: s.row})
		default:
			if live {
				now.to = s.at
			}
			periods, live = append(periods, period{from: s.at, row: s.row}), true
		}
		newest = s
	}
	for i := range periods {
		also := &periods[i].also
		*also = (*also)[max(0, len(*also)-f.repeats()):]
	}
	if n := len(periods); n > 0 {
		periods[n-1].last, periods[n-1].by = newest.at, newest.by
	}
	return periods, waiting
}
