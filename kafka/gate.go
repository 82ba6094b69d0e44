package kafka

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/freshet-io/freshet"
)

// gate keeps batches back until they can be let out transaction by transaction of the origin:
//
//	transaction topic   … BEGIN 7  END 7  BEGIN 8  END 8        END says how many changes there are in each table
//	orders[0]           7 7 8 8 9                    ┐
//	orders[1]           7 9                          ├─ all of 7 is there, and all of 8: what is of them goes out, as Partial,
//	lines[0]            7 8                          ┘  and behind it, for each table, that it holds all up to END 8
//
// The transaction topic is a lane of every table, without rows: its seq in a table is the end of the last transaction of
// which the table holds everything. Tables that are at the same place go on together; those behind go on alone until they
// are level. One goroutine at a time uses a gate.
type gate struct {
	lane    freshet.Lane          // of the transaction topic
	memory  int64                 // bytes that may be kept back before no more is read; each lane has its share
	bounded bool                  // what has not ended when everything is read is not let out
	tables  map[string]*gateTable // those whose lanes were asked for
	ends    []*transaction        // those that have ended behind the smallest place, in order
	named   map[string]*transaction
	past    []string // names of transactions that all tables are past, lately
	from    int64    // where the topic is to be read from: ends up to there are forgotten
	heard   int64    // up to where it has been
	checked int64    // up to where transactions were found to be whole, since a table was asked for
	over    bool     // bounded: that is all
	held    map[freshet.Lane]bool
	out     []*freshet.Batch
	wait    *transaction // what the next boundary waits for; nil: nothing
	since   time.Time    // when it began to, or something of it came
}

// pastNames is how many transactions are remembered that all tables are past: a connector that starts again tells of
// them once more.
const pastNames = 1 << 16

// idleEnds is how many transactions without a row for us are passed before tables are told.
const idleEnds = 4096

// transaction is one of the origin's.
type transaction struct {
	name   string
	begun  bool
	end    int64            // where in the transaction topic it ends; -1: not known
	counts map[string]int64 // changes by table, as the origin names it; only with end
	excuse bool             // what is missing of it does not come any more
	newest time.Time        // of its records
}

// gateTable is a table and what is kept back of it.
type gateTable struct {
	name    string
	there   bool  // it exists
	new     bool  // it did not know the transaction topic: what its lanes had before is not there to be counted
	place   int64 // the end of the last transaction of which it was given everything
	told    int64 // the place that it was told of
	pending bool  // its lanes are being asked for
	early   map[*transaction]bool
	lanes   map[freshet.Lane]*gateLane
}

// gateLane is a partition and what is kept back of it.
type gateLane struct {
	at      int64 // the last seq that came
	owned   bool
	shut    bool // bounded: it has come to a transaction that does not end in time
	batches []*freshet.Batch
	bytes   int64
	runs    []run // of batches, in order
	seen    map[*transaction]*tally
}

// run is a stretch of a lane, up to a seq, of one transaction; nil: of none.
type run struct {
	tx   *transaction
	last int64
}

// tally counts changes of a transaction in a lane. Places within it ascend there: what comes again is not counted.
type tally struct{ n, last int64 }

func newGate(memory int64, bounded bool) *gate {
	return &gate{memory: memory, bounded: bounded, tables: map[string]*gateTable{}, named: map[string]*transaction{},
		held: map[freshet.Lane]bool{}, from: math.MaxInt64, heard: math.MinInt64, checked: math.MinInt64}
}

// whole reports whether everything of a transaction that has ended has come of the table: as many changes as it says, or in
// each partition some of a later one.
func (t *gateTable) whole(tx *transaction) bool {
	if t.place >= tx.end || tx.excuse {
		return true
	}
	missing := map[string]int64{}
	for l, have := range t.lanes {
		if _, known := missing[l.Origin]; !known {
			missing[l.Origin] = tx.collection(l.Origin)
		}
		if c := have.seen[tx]; c != nil {
			missing[l.Origin] -= c.n
		}
	}
	for l, have := range t.lanes {
		if missing[l.Origin] > 0 && !have.past(tx) {
			return false
		}
	}
	return true
}

// past reports whether the lane has come to a later transaction.
func (l *gateLane) past(tx *transaction) bool {
	for _, r := range slices.Backward(l.runs) {
		if r.tx != nil && r.tx.end > tx.end {
			return true
		}
	}
	return false
}

// moving are the tables that go on next: those that are furthest behind, and up to where.
func (g *gate) moving() (tables []*gateTable, place, limit int64) {
	place, limit = math.MaxInt64, math.MaxInt64
	for _, t := range g.tables {
		if !t.pending {
			place = min(place, t.place)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.tables)) {
		switch t := g.tables[name]; {
		case t.pending:
		case t.place == place:
			tables = append(tables, t)
		default:
			limit = min(limit, t.place)
		}
	}
	return tables, place, limit
}

// advance lets out what can be.
func (g *gate) advance(now time.Time) {
	tables, place, limit := g.moving()
	if len(tables) == 0 {
		return
	}
	g.settleLost(tables)
	to, wait := g.reach(tables, place, limit)
	if wait == nil && limit != math.MaxInt64 && g.heard >= limit {
		to = limit
	}
	to = boundary(tables, to)
	some := slices.ContainsFunc(tables, func(t *gateTable) bool { return t.has(to) })
	if to > place && (some || to == limit || g.behind(to)-g.behind(place) >= idleEnds) {
		g.let(tables, to)
	}
	g.letPlain(tables)
	if wait == nil {
		wait = firstOpen(tables)
	}
	if wait != g.wait {
		g.wait, g.since = wait, now
	}
	g.overflow(tables)
}

// reach is the end of the last transaction up to which all is there of the tables, and the one after it that is not whole;
// nil when nothing is known of one.
func (g *gate) reach(tables []*gateTable, place, limit int64) (to int64, wait *transaction) {
	to = place
	if g.checked > to {
		to = min(g.checked, limit)
	}
	for _, tx := range g.ends[g.behind(to):] {
		if tx.end > limit {
			break
		}
		if slices.ContainsFunc(tables, func(t *gateTable) bool { return !t.whole(tx) }) {
			g.checked = to
			return to, tx
		}
		to = tx.end
	}
	g.checked = to
	return to, nil
}

// behind is how many of the ends there are up to a place.
func (g *gate) behind(place int64) int {
	i, _ := slices.BinarySearchFunc(g.ends, place+1, func(e *transaction, end int64) int { return cmp.Compare(e.end, end) })
	return i
}

// boundary is the last place up to one at which no table is given a part of a transaction only.
func boundary(tables []*gateTable, to int64) int64 {
	for again := true; again; {
		again = false
		for _, t := range tables {
			for tx := range t.early {
				if tx.end < 0 || tx.end > to {
					return math.MinInt64
				}
			}
			for _, l := range t.lanes {
				for _, r := range l.runs[l.until(to):] {
					if r.tx != nil && r.tx.end >= 0 && r.tx.end <= to {
						to, again = r.tx.end-1, true
					}
				}
			}
		}
	}
	return to
}

// until is how many runs of the lane are of transactions up to a place, or of none, before the first that is not.
func (l *gateLane) until(to int64) int {
	for i, r := range l.runs {
		if r.tx != nil && (r.tx.end < 0 || r.tx.end > to) {
			return i
		}
	}
	return len(l.runs)
}

// has reports whether there is something of the table to be let out up to a place.
func (t *gateTable) has(to int64) bool {
	if len(t.early) > 0 {
		return true
	}
	for _, l := range t.lanes {
		if l.until(to) > 0 {
			return true
		}
	}
	return false
}

// let lets out all up to a place, and tells the tables of it.
func (g *gate) let(tables []*gateTable, to int64) {
	var tell []*freshet.Batch
	for _, t := range tables {
		for _, l := range t.sorted() {
			g.letRuns(t, l, l.until(to), true)
			maps.DeleteFunc(l.seen, func(tx *transaction, _ *tally) bool { return tx.end >= 0 && tx.end <= to })
		}
		t.place = to
		clear(t.early)
		if t.there {
			tell = append(tell, &freshet.Batch{Table: t.name, Lane: g.lane, After: t.told, Last: to, More: true})
			t.told, t.new = to, false
		}
	}
	if len(tell) > 0 {
		tell[len(tell)-1].More = false
	}
	g.out = append(g.out, tell...)
	g.forget()
}

// forget drops transactions that all tables are past, but for the names of the last ones.
func (g *gate) forget() {
	past := int64(math.MaxInt64)
	for _, t := range g.tables {
		past = min(past, t.place)
	}
	g.from = max(g.from, past)
	n := 0
	for n < len(g.ends) && g.ends[n].end <= past {
		g.ends[n].counts = nil
		g.past = append(g.past, g.ends[n].name)
		n++
	}
	g.ends = slices.Delete(g.ends, 0, n)
	if over := len(g.past) - pastNames; over > 0 {
		for _, name := range g.past[:over] {
			if tx := g.named[name]; tx != nil && tx.end <= past {
				delete(g.named, name)
			}
		}
		g.past = slices.Delete(g.past, 0, over)
	}
}

func (t *gateTable) sorted() []*gateLane {
	keys := slices.SortedFunc(maps.Keys(t.lanes), func(a, b freshet.Lane) int {
		return cmp.Or(cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Name, b.Name))
	})
	lanes := make([]*gateLane, len(keys))
	for i, k := range keys {
		lanes[i] = t.lanes[k]
	}
	return lanes
}

// letRuns lets out the lane's first n runs.
func (g *gate) letRuns(t *gateTable, l *gateLane, n int, partial bool) {
	if n == 0 {
		return
	}
	last := l.runs[n-1].last
	l.runs = slices.Delete(l.runs, 0, n)
	for len(l.batches) > 0 && l.batches[0].After < last {
		b := l.batches[0]
		if b.Last <= last {
			l.batches = slices.Delete(l.batches, 0, 1)
		} else {
			b = b.Split(last)
		}
		l.bytes -= b.Bytes
		b.Partial, b.More = partial && t.there, partial
		g.out = append(g.out, b)
	}
}

// letPlain lets out what is of no transaction, or of one that its table is past: it was told twice.
func (g *gate) letPlain(tables []*gateTable) {
	for _, t := range tables {
		maps.DeleteFunc(t.early, func(tx *transaction, _ bool) bool { return tx.end >= 0 && tx.end <= t.place })
	}
	open := slices.ContainsFunc(tables, func(t *gateTable) bool { return len(t.early) > 0 })
	for _, t := range tables {
		for _, l := range t.sorted() {
			from := len(g.out)
			g.letRuns(t, l, l.until(t.place), open)
			for _, b := range g.out[from:] {
				b.Partial = len(t.early) > 0
			}
		}
	}
}

// firstOpen is a transaction at the head of a lane that has not ended.
func firstOpen(tables []*gateTable) *transaction {
	for _, t := range tables {
		for _, l := range t.sorted() {
			if len(l.runs) > 0 && l.runs[0].tx != nil && l.runs[0].tx.end < 0 {
				return l.runs[0].tx
			}
		}
	}
	return nil
}

// settleLost gives transactions of which the topic has neither beginning nor end, although it tells of a later one of the
// same lane, the end of that: the topic has lost them.
func (g *gate) settleLost(tables []*gateTable) {
	for _, t := range tables {
		for _, l := range t.lanes {
			later := int64(-1)
			for _, r := range slices.Backward(l.runs) {
				switch {
				case r.tx == nil:
				case r.tx.end >= 0:
					later = r.tx.end
				case !r.tx.begun && later >= 0:
					r.tx.end = later
					g.insert(r.tx)
				}
			}
		}
	}
}

// overflow makes room in lanes that are full of a transaction that is larger than that: it goes out before it is whole. Of
// one that does not end in time a bounded source keeps nothing.
func (g *gate) overflow(tables []*gateTable) {
	room := g.room()
	for _, t := range tables {
		for _, l := range t.sorted() {
			if l.bytes < room || len(l.runs) == 0 || l.runs[0].tx == nil {
				continue
			}
			tx := l.runs[0].tx
			switch {
			case g.bounded && tx.end < 0:
				if g.over {
					l.empty()
					l.shut = true
				}
			case tx != g.wait && (g.wait == nil || g.wait.end >= 0 || tx.end >= 0):
			default:
				t.early[tx] = true
				g.letRuns(t, l, 1, true)
			}
		}
	}
}

// letGo has the others no longer wait for the transaction.
func (g *gate) letGo(tx *transaction) {
	tx.excuse = true
	if tx.end < 0 {
		tx.end = g.heard
		g.insert(tx)
	}
}
