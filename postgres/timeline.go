package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// A server that is promoted goes on on a timeline of its own, which it begins where it stood: what the former one had written
// behind that place is not in its log, and other things are at the same places. So each table remembers, by bookmarks, on which
// timelines its log was read, one after the other:
//
//	timeline/first ─▶ 1    timeline/after-1 ─▶ 2    timeline/after-2 ─▶ 5
//
// The next one is noted before anything of it is committed, and only if it was begun behind all that the table holds.
const (
	firstTimeline  = "timeline/first"
	afterTimeline  = "timeline/after-"
	mostTimelines  = 10_000 // that a table has followed
	maxHistoryLine = 4 << 10
)

// timelineOf is the timeline that the table's log was read on last, and the name of the bookmark that tells of the next one; "":
// none was noted.
func (s *Source) timelineOf(ctx context.Context, table string) (last, next string, err error) {
	next = firstTimeline
	for range mostTimelines {
		kept, err := s.down.Bookmark(ctx, table, next, nil)
		if err != nil || kept == nil {
			return last, next, err
		}
		if number(kept) <= 0 {
			return "", "", fmt.Errorf("table %s: bookmark %s: found %.40q, wanted the number of a timeline", table, next, kept)
		}
		last = string(kept)
		next = afterTimeline + last
	}
	return "", "", fmt.Errorf("table %s: more than %d timelines", table, mostTimelines)
}

// followTimelines makes sure that the log of the server has all that tables hold, each up to a place, and returns those that were
// read on another timeline so far, or on none that was noted. Errors: CodeTimeline, those of Downstream and the connection.
func (s *Source) followTimelines(ctx context.Context, conn *pgconn.PgConn, on *server, held map[string]pgoutput.LSN) (moved []string,
	err error) {
	for _, table := range slices.Sorted(maps.Keys(held)) {
		last, _, err := s.timelineOf(ctx, table)
		if err != nil {
			return nil, err
		}
		if last == on.timeline {
			continue
		}
		moved = append(moved, table)
		if last == "" {
			continue
		}
		left, err := on.leftAt(ctx, conn, last)
		if err != nil {
			return nil, err
		}
		if at := held[table]; left < at {
			return nil, otherTimeline(on, table, at, last, left)
		}
	}
	return moved, nil
}

// noteTimelines notes of tables that their log is read on the server's timeline from now on.
func (s *Source) noteTimelines(ctx context.Context, on *server, tables []string) error {
	for _, table := range tables {
		if err := s.noteTimeline(ctx, on, table); err != nil {
			return err
		}
	}
	if len(tables) > 0 && on.timeline != "1" {
		s.o.Log.Info("the log is read on another timeline, which has all that the tables hold", "timeline", on.timeline,
			"tables", len(tables))
	}
	return nil
}

// noteTimeline notes it of one table.
func (s *Source) noteTimeline(ctx context.Context, on *server, table string) error {
	last, next, err := s.timelineOf(ctx, table)
	if err != nil || last == on.timeline {
		return err
	}
	kept, err := s.down.Bookmark(ctx, table, next, []byte(on.timeline))
	if err == nil && string(kept) != on.timeline {
		return otherTimeline(on, table, 0, string(kept), 0)
	}
	return err
}

// vouch makes sure that the log which has come from a standby, up to a place, is that of the timeline that is noted, before it is taken:
// a standby that is promoted goes on sending, on a timeline of its own. While it replays a log, all that it has sent is of that. It returns
// false, and the stream is hung up, where nobody can tell any more, since it has ended and another server answers, or none.
func (s *Source) vouch(ctx context.Context, upto pgoutput.LSN) (bool, error) {
	for s.server.standby && upto > s.vouched {
		came := max(upto, pgoutput.LSN(s.stream.received.Load()))
		over := s.stream.over.Load()
		replays, timeline, err := s.replays(ctx)
		switch {
		case err == nil && replays:
			s.vouched = came
			return true, nil
		case err == nil:
			return true, s.promoted(ctx, timeline)
		case over:
			s.hangUp()
			return false, nil
		}
		if err := s.outage(ctx, "ask whether "+s.server.database+" is on a standby still", err); err != nil {
			return false, err
		}
	}
	return true, nil
}

// replays reports whether the standby whose log is read is one still, or else on which timeline it writes its own.
func (s *Source) replays(ctx context.Context) (is bool, timeline string, err error) {
	conn, err := s.ask(ctx)
	if err != nil {
		return false, "", err
	}
	found, err := query(ctx, conn, `select pg_postmaster_start_time(), pg_is_in_recovery(),
  case when not pg_is_in_recovery() then pg_walfile_name(pg_current_wal_lsn()) end`)
	if err != nil {
		return false, "", err
	}
	if string(found[0][0]) != s.server.started {
		_ = conn.Close(context.WithoutCancel(ctx))
		return false, "", errors.New("another server answers than the one whose log is read")
	}
	if string(found[0][1]) == "t" {
		return true, "", nil
	}
	file := string(found[0][2])
	id, err := strconv.ParseUint(file[:min(8, len(file))], 16, 32)
	return false, strconv.FormatUint(id, 10), err
}

// promoted notes that the standby whose log is read was promoted: all that was read of its log is in it still.
func (s *Source) promoted(ctx context.Context, timeline string) error {
	on := *s.server
	on.timeline, on.standby = timeline, false
	tables := make([]string, len(s.order))
	for i, f := range s.order {
		tables[i] = f.name
	}
	if err := s.noteTimelines(ctx, &on, tables); err != nil {
		return err
	}
	s.server = &on
	return nil
}

func otherTimeline(on *server, table string, at pgoutput.LSN, was string, left pgoutput.LSN) error {
	e := &freshet.Error{Code: freshet.CodeTimeline, Class: freshet.ClassInput, Place: on.database,
		Msg: fmt.Sprintf("the server is on timeline %s, and table %s was read on timeline %s, which that does not go back to", on.timeline,
			table, was),
		Fix: "connect to the server that goes on where the former one stopped; if there is none, load the tables again"}
	if left > 0 {
		e.Msg = fmt.Sprintf("the server is on timeline %s, which left timeline %s at %s, and table %s holds what happened on that up to %s: "+
			"the server was promoted, and has lost transactions", on.timeline, was, left, table, at)
	}
	return e
}

// leftAt is where the server's timeline has left another one that it goes back to; 0: it does not. Source: "Streaming Replication
// Protocol", TIMELINE_HISTORY.
func (s *server) leftAt(ctx context.Context, conn *pgconn.PgConn, timeline string) (pgoutput.LSN, error) {
	if s.timeline == "1" {
		return 0, nil
	}
	rows, err := simple(ctx, conn, "TIMELINE_HISTORY "+s.timeline)
	if err != nil {
		return 0, fmt.Errorf("read the history of timeline %s: %w", s.timeline, err)
	}
	if len(rows[0]) != 2 {
		return 0, fmt.Errorf("the history of timeline %s has %d columns, want 2", s.timeline, len(rows[0]))
	}
	left, err := parseTimelines(rows[0][1])
	return left[timeline], err
}

// parseTimelines reads the history of a timeline: which it goes back to, and where each was left. A line is the number, the place, and
// why, parted by tabs.
func parseTimelines(text []byte) (map[string]pgoutput.LSN, error) {
	left := map[string]pgoutput.LSN{}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		line = line[:min(len(line), maxHistoryLine)]
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			return nil, fmt.Errorf("found %.60q in a timeline's history, wanted a number and a place", line)
		}
		id, err := strconv.ParseUint(string(fields[0]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("found %.60q in a timeline's history, wanted a number first", line)
		}
		at, err := pgoutput.ParseLSN(string(fields[1]))
		if err != nil {
			return nil, err
		}
		left[strconv.FormatUint(id, 10)] = at
	}
	return left, nil
}
