package kafka

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet"
)

// What comes into a gate: where tables stand, batches, and what the transaction topic says.

// room is how much a lane may hold.
func (g *gate) room() int64 {
	lanes := 0
	for _, t := range g.tables {
		lanes += len(t.lanes)
	}
	return max(g.memory/int64(max(lanes, 1)), 64<<10)
}

// table is the table's, made if it is new.
func (g *gate) table(name string) *gateTable {
	t := g.tables[name]
	if t == nil {
		t = &gateTable{name: name, place: math.MinInt64, told: math.MinInt64, early: map[*transaction]bool{},
			lanes: map[freshet.Lane]*gateLane{}}
		g.tables[name] = t
	}
	return t
}

// ask notes that lanes of the table are asked for, and reports whether it has others, which would then stand elsewhere.
func (g *gate) ask(table string, lanes []freshet.Lane) (others bool) {
	g.checked = math.MinInt64
	t := g.table(table)
	for l, have := range t.lanes {
		others = others || have.owned && !slices.Contains(lanes, l)
	}
	t.pending = true
	g.drop(t, lanes)
	return others
}

// answer has lanes of the table go on from there. A table that is not there, and whose lanes are empty, is where the others are.
func (g *gate) answer(table string, lanes freshet.Progress, place int64, there, empty, isNew bool) {
	g.checked = math.MinInt64
	t := g.table(table)
	g.drop(t, slices.Collect(maps.Keys(lanes)))
	for l, seq := range lanes {
		t.lanes[l].at, t.lanes[l].owned = seq, true
	}
	began := place
	if !t.there && t.told == place {
		began = max(began, t.place) // nothing came of it so far, and it went on with the others
	}
	t.place, t.told, t.there, t.new, t.pending = began, place, there, isNew, false
	clear(t.early)
	for _, other := range g.tables {
		if empty && other.there {
			t.place = max(t.place, other.place)
		}
	}
	if t.place < g.from { // what was heard of it is forgotten
		g.from, g.heard, g.over = t.place, t.place, false
	}
}

// leave forgets what is kept back of the table, whose lanes are to be asked for anew.
func (g *gate) leave(table string) {
	g.checked = math.MinInt64
	if t := g.tables[table]; t != nil {
		t.pending = true
		g.drop(t, slices.Collect(maps.Keys(t.lanes)))
	}
}

// release forgets lanes, and reports whether the table has none any more.
func (g *gate) release(table string, lanes []freshet.Lane) (last bool) {
	t := g.tables[table]
	if t == nil {
		return false
	}
	g.drop(t, lanes)
	for _, l := range lanes {
		delete(t.lanes, l)
	}
	if len(t.lanes) == 0 {
		delete(g.tables, table)
		return true
	}
	return false
}

// close gives up everything.
func (g *gate) close() {
	for table := range g.tables {
		g.leave(table)
	}
}

// drop forgets what is kept back of the lanes, which are asked for anew.
func (g *gate) drop(t *gateTable, lanes []freshet.Lane) {
	for _, l := range lanes {
		if have := t.lanes[l]; have != nil {
			have.empty()
		}
		t.lanes[l] = &gateLane{seen: map[*transaction]*tally{}}
	}
	g.out = slices.DeleteFunc(g.out, func(b *freshet.Batch) bool {
		gone := b.Table == t.name && (b.Lane == g.lane || slices.Contains(lanes, b.Lane))
		if gone {
			b.Release()
		}
		return gone
	})
}

func (l *gateLane) empty() {
	for _, b := range l.batches {
		b.Release()
	}
	l.batches, l.runs, l.bytes = nil, nil, 0
}

// add takes a batch.
func (g *gate) add(b *freshet.Batch, now time.Time) {
	t := g.tables[b.Table]
	var l *gateLane
	if t != nil {
		l = t.lanes[b.Lane]
	}
	if l == nil || !l.owned || b.Last <= l.at || b.After > l.at {
		b.Release()
		return
	}
	if b.After < l.at {
		b.Cut(l.at)
	}
	l.at, t.there = b.Last, true
	if l.shut {
		b.Release()
		return
	}
	l.batches = append(l.batches, b)
	l.bytes += b.Bytes
	from := len(l.runs)
	for i := range b.NumRows() {
		tx := g.of(b, i)
		if n := len(l.runs); n == from || l.runs[n-1].tx != tx {
			if n > from {
				l.runs[n-1].last = b.Seqs[i] - 1
			}
			l.runs = append(l.runs, run{tx: tx})
		}
		if tx == nil {
			continue
		}
		if tx.end < 0 || tx.end > t.place {
			l.count(tx, b.Stamps[i].Ordinal)
		}
		if b.Newest.After(tx.newest) {
			tx.newest = b.Newest
		}
		if tx == g.wait {
			g.since = now
		}
	}
	if len(l.runs) == from {
		l.runs = append(l.runs, run{})
	}
	l.runs[len(l.runs)-1].last = b.Last
	if from > 0 && l.runs[from-1].tx == l.runs[from].tx {
		l.runs[from-1].last = l.runs[from].last
		l.runs = slices.Delete(l.runs, from, from+1)
	}
}

// of is the row's transaction; nil when it is of none, as those of an initial snapshot.
func (g *gate) of(b *freshet.Batch, row int) *transaction {
	if b.Stamps == nil || b.Stamps[row].Ordinal < 0 || b.Stamps[row].Tx == "" {
		return nil
	}
	return g.transaction(b.Stamps[row].Tx)
}

func (g *gate) transaction(name string) *transaction {
	tx := g.named[name]
	if tx == nil {
		tx = &transaction{name: name, end: -1}
		g.named[name] = tx
	}
	return tx
}

func (l *gateLane) count(tx *transaction, ordinal int64) {
	c := l.seen[tx]
	if c == nil {
		c = &tally{last: -1}
		l.seen[tx] = c
	}
	if ordinal > c.last {
		c.n, c.last = c.n+1, ordinal
	}
}

// hear takes what the transaction topic says at an offset.
func (g *gate) hear(said Transaction, offset int64, now time.Time) {
	g.heard = max(g.heard, offset)
	tx := g.transaction(said.Name)
	tx.begun = true
	if !said.Ended || tx.end >= 0 && (tx.end != offset || slices.Contains(g.ends, tx)) {
		return
	}
	tx.end, tx.counts = offset, said.Counts
	g.insert(tx)
	if tx == g.wait {
		g.since = now
	}
}

// insert puts a transaction that has ended in its place.
func (g *gate) insert(tx *transaction) {
	g.ends = slices.Insert(g.ends, g.behind(tx.end), tx)
	g.checked = min(g.checked, tx.end-1)
}

// full reports whether so many transactions have ended behind what is let out that no more need be heard of.
func (g *gate) full() bool { return len(g.ends) >= 1<<16 }

// collection is how many changes the transaction says to have in a topic, PREFIX.NAME or NAME.
func (tx *transaction) collection(topic string) int64 {
	for name := topic; ; {
		if n, ok := tx.counts[name]; ok {
			return n
		}
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return 0
		}
		name = rest
	}
}

// hold returns the lanes of which no more is to be read for now, and those that are to be read again.
func (g *gate) hold() (pause, resume []freshet.Lane) {
	room := g.room()
	full := map[freshet.Lane]bool{}
	for _, t := range g.tables {
		for key, l := range t.lanes {
			if l.bytes >= room {
				full[key] = true
			}
			if l.bytes >= room && !g.held[key] {
				pause = append(pause, key)
			}
		}
	}
	for key := range g.held {
		if !full[key] {
			resume = append(resume, key)
		}
	}
	g.held = full
	return pause, resume
}

// of are the table's lanes of a topic.
func (t *gateTable) of(topic string) []freshet.Lane {
	return slices.DeleteFunc(slices.Collect(maps.Keys(t.lanes)), func(l freshet.Lane) bool { return l.Origin != topic })
}

// some is the name of a table that is furthest behind.
func (g *gate) some() string {
	if tables, _, _ := g.moving(); len(tables) > 0 {
		return tables[0].name
	}
	return ""
}
