package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// The rows of a window come in parts of so many bytes, of which so many wait to be returned.
const (
	partBytes  = 512 << 10
	partsAhead = 1
)

// rejectPlaces is where the places of rows that could not be decoded begin: each has one that follows from its text, so that
// it is the same when the chunk is read again.
const rejectPlaces = 1 << 30

// window is a chunk that is read in a transaction of its own, which shows what its watermark sees.
type window struct {
	load *load
	chunk
	watermark
	parts    chan *part
	err      error // why reading ended before its time, once parts is closed
	end      context.CancelFunc
	opened   time.Time
	place    int32 // of the next row that is returned
	bytes    int64 // that were returned
	begun    bool  // a part was returned
	into     *rows // what collects them: the reading goroutine's, until parts is closed
	returned bool  // all were: the chunk is closed once the stream has come to the watermark
}

// part is some rows of a window.
type part struct {
	rows    arrow.RecordBatch // nil: none
	unsent  *freshet.Mask
	rejects []freshet.Reject
	bytes   int64
	lossy   map[string]int64
}

func (p *part) release() {
	if p.rows != nil {
		p.rows.Release()
	}
}

// errUnsettled says that transactions are still seen as running that the log has told of, or that may have changed rows of
// which it does not tell.
var errUnsettled = errors.New("transactions have not ended")

// errReshaped says that the table has other columns than those that were to be read.
var errReshaped = errors.New("the table has other columns now")

// errBehind says that a standby has not replayed the log up to where it must be.
var errBehind = errors.New("the standby is behind the changes that were left out")

// openWindow begins a transaction and learns what it sees. The table is locked first, as every reader locks it: it is neither
// truncated nor altered until the rows are read. A standby is waited for until it has replayed the log up to need. Errors:
// errReshaped, errBehind, errUnsettled, those of the connection.
func openWindow(ctx context.Context, conn *pgconn.PgConn, t *catalogTable, shape string, need pgoutput.LSN) (*watermark, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before, err := awaitReplay(ctx, conn, need)
	if err != nil {
		return nil, err
	}
	results, err := conn.Exec(ctx, fmt.Sprintf(`begin isolation level repeatable read read only;
set local lock_timeout = '2s';
lock table %s in access share mode;
select txid_current_snapshot(), case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end,
  (extract(epoch from coalesce(case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end, clock_timestamp()))
  * 1000000)::int8,
  (select string_agg(attname || ' ' || atttypid || ' ' || atttypmod, ',' order by attnum) from pg_attribute
  where attrelid = %d and attnum > 0 and not attisdropped), pg_is_in_recovery()`, t.from(), t.OID)).ReadAll()
	if err != nil {
		return nil, err
	}
	row := results[len(results)-1].Rows[0]
	if string(row[3]) != shape {
		return nil, errReshaped
	}
	w := &watermark{at: number(row[2])}
	if w.seen, err = parseVisibility(row[0]); err != nil {
		return nil, err
	}
	high, err := pgoutput.ParseLSN(string(row[1]))
	w.high = logEnd(high)
	if standby := string(row[4]) == "t"; standby != (before > 0) { // it was promoted just now
		return nil, errUnsettled
	}
	if before > 0 {
		w.seen.replay = &replay{before: before, after: high}
		if !w.seen.exact() {
			w.high = high + recordStart + 1
		}
	}
	return w, err
}

// awaitReplay waits until a standby has replayed the log up to need, and returns up to where it has; 0: it is none.
func awaitReplay(ctx context.Context, conn *pgconn.PgConn, need pgoutput.LSN) (pgoutput.LSN, error) {
	for {
		found, err := query(ctx, conn, "select pg_last_wal_replay_lsn() where pg_is_in_recovery()")
		if ctx.Err() != nil {
			return 0, errBehind
		}
		if err != nil || len(found) == 0 {
			return 0, err
		}
		at, err := pgoutput.ParseLSN(string(found[0][0]))
		if err != nil || at >= need {
			return at, err
		}
		if sleep(ctx, askEvery) != nil {
			return 0, errBehind
		}
	}
}

// closed reports whether rows were returned of a standby's snapshot: what comes now is behind it.
func (w *window) closed() bool { return w.seen.replay != nil && w.seen.replay.closed }

// read reads the rows of the window and hands them over in parts, and ends the transaction. It is a goroutine of the history's,
// to which the connection goes back.
func (w *window) read(ctx context.Context, h *history, conn *pgconn.PgConn, sql string) {
	defer h.poke()
	defer close(w.parts)
	r := w.into
	var rejects []freshet.Reject
	full := func() error {
		p := &part{rejects: rejects, bytes: int64(r.bytes()), lossy: map[string]int64{}}
		r.nulled(p.lossy)
		if r.len() > 0 {
			p.rows, p.unsent = r.take()
		}
		rejects = nil
		select {
		case w.parts <- p:
			h.poke()
			return nil
		case <-ctx.Done():
			p.release()
			return context.Cause(ctx)
		}
	}
	reject := func(line []byte, why *freshet.RejectError) error {
		rejects = append(rejects, w.reject(r.table, line, why))
		return nil
	}
	w.err = copyRows(ctx, conn, sql, r, partBytes, full, reject)
	if w.err == nil && len(rejects) > 0 {
		w.err = full()
	}
	if w.err == nil {
		_, w.err = conn.Exec(ctx, "commit").ReadAll()
	}
	h.giveBack(conn)
}

// reject is a row that cannot be taken, with the text of its columns as JSON; see rows.told.
func (w *window) reject(t *Table, line []byte, why *freshet.RejectError) freshet.Reject {
	values := map[string]any{}
	for i, v := range strings.Split(string(line), "\t") {
		if i >= len(t.Columns) {
			break
		}
		told, ok := w.into.told(i, unescape(nil, []byte(v)))
		if v == `\N` {
			told = nil
		}
		if ok {
			values[t.Columns[i].Name] = told
		}
	}
	raw, _ := json.Marshal(values)
	place := fnv.New32a()
	_, _ = place.Write(line)
	return freshet.Reject{Seq: w.seq, Row: rejectPlaces | int32(place.Sum32()&(rejectPlaces-1)), Code: why.Code,
		Message: why.Error(), Step: "decode",
		Record: freshet.Record{Raw: raw, Time: time.UnixMicro(w.at).UTC(), TimeKind: -1}}
}

// batch is a part as a batch of the table's history. The chunk is finished by another one.
func (w *window) batch(p *part) *freshet.Batch {
	after := w.seq
	if !w.begun {
		after--
	}
	b := w.load.batch(after, w.seq)
	b.Rows, b.Unsent, b.Rejects, b.Bytes, b.Unfinished = p.rows, p.unsent, p.rejects, p.bytes, true
	b.ReadAt = w.opened
	n := b.NumRows()
	b.Seqs, b.Places, b.Stamps = make([]int64, n), make([]int32, n), make([]freshet.Stamp, n)
	behind, first := w.load.feed.state(n + len(b.Rejects))
	b.Behind = behind
	for i := range n {
		b.Seqs[i], b.Places[i] = w.seq, w.place+int32(i)
		b.Stamps[i] = freshet.Stamp{Ordinal: first + int64(i), Committed: w.at}
	}
	switch {
	case w.load.again:
		b.Kinds = slices.Repeat([]freshet.Kind{freshet.Insert}, n)
	case w.load.fill:
		b.Kinds = slices.Repeat([]freshet.Kind{freshet.UpdatePostimage}, n) // they tell what is already there
	}
	for i := range b.Rejects {
		change := freshet.Change{Stamp: freshet.Stamp{Ordinal: first + int64(n+i), Committed: w.at}, Behind: behind}
		if w.load.fill {
			change.Kind = freshet.UpdatePostimage
		}
		b.Rejects[i].Headers = change.Headers()
	}
	w.place += int32(n)
	w.begun, w.bytes = true, w.bytes+p.bytes
	return b
}

// state has so many rows that were read stand behind all that was returned of the log, before what they do not show, and returns where
// that is, and the ordinal of the first of them. Others that stand at the same place come before them.
func (f *feed) state(rows int) (behind *freshet.Place, first int64) {
	if f.statedAt != f.after {
		f.statedAt, f.stated = f.after, 0
	}
	first = freshet.ReadOrdinals + f.stated
	f.stated += int64(rows)
	return &freshet.Place{Lane: f.lane, Seq: f.after}, first
}

// drop ends the reading, and forgets what was not returned.
func (w *window) drop() {
	w.end()
	for p := range w.parts {
		p.release()
	}
}
