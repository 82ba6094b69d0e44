package postgres

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// watermark is the moment at which rows were read: which transactions they show, and a place of the log behind all of these.
type watermark struct {
	seen visibility
	high pgoutput.LSN
	at   int64 // the server's time, in microseconds since 1970; of a standby, when what it shows was committed last
}

// visibility says which transactions a snapshot of the server shows. The order in which transactions become visible is not
// quite that of their commits in the log, so that no place of the log tells the same. Source: "System Information Functions",
// txid_current_snapshot.
type visibility struct {
	xmin, xmax uint64              // older ones have ended; this one and younger ones had not begun
	running    map[uint64]struct{} // between them: those that had not ended
	replay     *replay             // of a standby, which does not say that; nil: of a primary
}

// replay tells what a snapshot of a standby shows. There transactions become visible in the order of their commits in the log, at
// the place where the log is replayed; a snapshot does not say which transactions between xmin and xmax run.
//
//	log ──▶ seen for certain │ before ─ snapshot ─ after │ one record │ not seen
//	                                 nobody knows          being replayed: its effect is there before after tells
type replay struct {
	before, after pgoutput.LSN // where it was just before the snapshot, and just after it
	closed        bool         // what comes now is not seen: rows were returned behind what it showed
}

// sight is whether a snapshot shows a transaction.
type sight int

const (
	unseen sight = iota
	seen
	unknown
)

// recordStart is how far behind the end of one record of the log the next one begins, at most: behind the header of a page.
const recordStart = logHeader + 8

// parseVisibility reads the text of a txid_snapshot: "10:20:10,14,15".
func parseVisibility(b []byte) (visibility, error) {
	v := visibility{running: map[uint64]struct{}{}}
	parts := bytes.Split(b, []byte(":"))
	if len(parts) != 3 {
		return v, fmt.Errorf("found %.60q, wanted a snapshot", b)
	}
	var err error
	if v.xmin, err = strconv.ParseUint(string(parts[0]), 10, 64); err != nil {
		return v, err
	}
	if v.xmax, err = strconv.ParseUint(string(parts[1]), 10, 64); err != nil {
		return v, err
	}
	for _, one := range bytes.Split(parts[2], []byte(",")) {
		if len(one) == 0 {
			continue
		}
		xid, err := strconv.ParseUint(string(one), 10, 64)
		if err != nil {
			return v, err
		}
		v.running[xid] = struct{}{}
	}
	return v, nil
}

// sight tells whether the snapshot shows what the transaction did. The log has 32 bits of its number, the snapshot all.
func (v *visibility) sight(t *transaction) sight {
	full := v.xmax + uint64(int64(int32(t.xid-uint32(v.xmax))))
	r := v.replay
	_, running := v.running[full]
	switch {
	case r != nil && r.closed, full >= v.xmax, running:
		return unseen
	case full < v.xmin, r == nil, t.end <= r.before:
		return seen
	case t.begun > r.after+recordStart:
		return unseen
	}
	return unknown
}

// exact reports whether the numbers of transactions alone tell which the snapshot shows.
func (v *visibility) exact() bool { return v.replay == nil || v.xmin == v.xmax }

// The header of a page of the log, and of the first page of a file. Source: XLogPageHeaderData.
const (
	logPage   = 8 << 10
	logHeader = 40
)

// logEnd is a place that the log reaches when nothing more is written: one within a page's header is only reached with what
// comes behind that.
func logEnd(at pgoutput.LSN) pgoutput.LSN {
	if at%logPage <= logHeader {
		return at - at%logPage
	}
	return at
}
