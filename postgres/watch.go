package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
)

// The server is about to give a slot up, or to have its disk full, when what it may still write until then is less than a quarter of
// what it keeps for it in all, or when what it keeps grows so that it is written within an hour. Growth counts over so many readings:
// the server drops log in steps.
const (
	shareLeft    = 4
	timeLeft     = time.Hour
	steadyGrowth = 4
	warnEvery    = 10 * time.Minute
)

// watch looks at the slot, and at the tables of the publication, every while, over a connection of its own, until ctx ends: nothing
// tells beforehand of a slot that is lost, nor of a table before its first change. The goroutine of Source.watching owns it.
type watch struct {
	o       *Options
	address string
	version int
	conn    *pgconn.PgConn // nil: none is open
	warned  time.Time
	past    []reading // the last ones, the oldest first

	members map[string]member // the tables as they were when it was asked last; nil: it was not
	notices chan notice
}

// reading is what the server said once.
type reading struct {
	at       time.Time
	retained int64 // bytes of log that it keeps for the slot
	behind   int64 // bytes that it has written since what is confirmed
	safe     int64 // bytes that it may write until it gives the slot up, or its disk is full; -1: no bound is known
	disk     bool  // the bound is the disk
	status   string
	active   bool // a connection reads from the slot
}

// rateReadings are over how many readings growth is measured.
const rateReadings = 20

// run is the goroutine.
func (w *watch) run(ctx context.Context) {
	defer w.close(ctx)
	tick := time.NewTicker(w.o.WatchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r, ok, err := w.read(ctx)
		if err != nil {
			w.close(ctx) // the stream tells of outages
		}
		if ok {
			w.tell(r)
		}
		if w.conn != nil {
			w.notice(ctx)
		}
	}
}

// notice tells the source of tables that came and went.
func (w *watch) notice(ctx context.Context) {
	n, ok, err := w.look(ctx)
	if err != nil {
		w.close(ctx)
		w.o.Log.Warn("cannot tell whether there are new tables", "publication", w.o.Publication, "error", err)
		return
	}
	if !ok {
		return
	}
	select {
	case w.notices <- n:
	case <-ctx.Done():
	}
}

func (w *watch) close(ctx context.Context) {
	if w.conn != nil {
		_ = w.conn.Close(context.WithoutCancel(ctx))
		w.conn = nil
	}
}

// read asks the server; ok is false where it has no such slot.
func (w *watch) read(ctx context.Context) (r reading, ok bool, err error) {
	if w.conn == nil {
		if w.conn, err = dial(ctx, w.address, false); err != nil {
			return r, false, err
		}
	}
	bound := "safe_wal_size, wal_status"
	if w.version < 130000 {
		bound = "null, null"
	}
	rows, err := query(ctx, w.conn, `
select pg_wal_lsn_diff(l.at, s.restart_lsn), pg_wal_lsn_diff(l.at, s.confirmed_flush_lsn), s.active, `+bound+`
from pg_catalog.pg_replication_slots s, (select case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
  else pg_current_wal_lsn() end as at) l
where s.slot_name = $1`, w.o.Slot)
	if err != nil || len(rows) == 0 {
		return r, false, err
	}
	v := rows[0]
	r = reading{at: time.Now(), retained: number(v[0]), behind: number(v[1]), active: v[2][0] == 't', safe: -1,
		status: string(v[4])}
	if len(v[3]) > 0 {
		r.safe = max(0, number(v[3]))
	}
	if left := max(0, w.o.LogDisk-r.retained); w.o.LogDisk > 0 && (r.safe < 0 || left < r.safe) {
		r.safe, r.disk = left, true
	}
	return r, true, nil
}

// tell tells the Observer, and people in time.
func (w *watch) tell(r reading) {
	w.past = append(w.past, r)
	if len(w.past) > rateReadings {
		w.past = w.past[1:]
	}
	h := w.held()
	if w.o.Observer.Held != nil {
		w.o.Observer.Held(h)
	}
	if !short(h, len(w.past) >= steadyGrowth) && r.status != "unreserved" || r.at.Sub(w.warned) < warnEvery {
		return
	}
	w.warned = r.at
	w.o.Log.Warn(runsOut(h.Disk), "slot", w.o.Slot, "kept_bytes", h.Retained, "bytes_per_second", h.PerSecond, "left_bytes", h.Safe,
		"left", h.Left.Round(time.Second).String(), "wal_status", r.status)
}

// runsOut says what is about to happen.
func runsOut(disk bool) string {
	if disk {
		return "the server's disk is about to be full of log that it keeps for the slot: see why the pipeline does not keep up, or " +
			"have the server give the slot up before, by max_slot_wal_keep_size"
	}
	return "the server is about to give up the slot, and then all tables are to be loaded again: see why the pipeline does not " +
		"keep up, or raise max_slot_wal_keep_size"
}

// held is what the readings say together.
func (w *watch) held() freshet.Held {
	first, r := w.past[0], w.past[len(w.past)-1]
	h := freshet.Held{Place: "slot " + w.o.Slot, Retained: r.retained, Behind: r.behind, Safe: r.safe, Disk: r.disk}
	if took := r.at.Sub(first.at); took > 0 {
		h.PerSecond = max(0, int64(float64(r.retained-first.retained)/took.Seconds()))
	}
	if r.safe >= 0 && h.PerSecond > 0 {
		h.Left = time.Duration(float64(r.safe) / float64(h.PerSecond) * float64(time.Second))
	}
	return h
}

// short reports whether the server is about to give the slot up, or to have its disk full; growth says whether its growth counts.
func short(h freshet.Held, growth bool) bool {
	return h.Safe >= 0 && (h.Safe < (h.Safe+h.Retained)/shareLeft || growth && h.Left > 0 && h.Left < timeLeft)
}

// watching begins to watch the slot, if it is not watched yet.
func (s *Source) watching() {
	if s.unwatch != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w := &watch{o: &s.o, address: s.address, version: s.server.version, members: s.members, notices: s.notices}
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	s.unwatch = func() {
		cancel()
		<-done
	}
}
