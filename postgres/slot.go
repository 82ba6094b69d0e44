package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// server is what a server says of itself.
type server struct {
	system   string // identifier: of the cluster, for good; a copy of its files has the same
	timeline string
	flushed  pgoutput.LSN
	database string
	oid      string // of the database
	version  int    // 150004
	standby  bool   // it replays the log of another
	started  string // when: it tells one server from another that has the same identity
}

// identify asks a server who it is. Source: "Streaming Replication Protocol", IDENTIFY_SYSTEM.
func identify(ctx context.Context, conn *pgconn.PgConn) (*server, error) {
	rows, err := simple(ctx, conn, "IDENTIFY_SYSTEM")
	var said *pgconn.PgError
	if errors.As(err, &said) && said.Code == "42601" { // a syntax error: it takes SQL alone
		return nil, pooler("it takes no replication commands")
	}
	if err != nil {
		return nil, err
	}
	s := &server{system: string(rows[0][0]), timeline: string(rows[0][1]), database: string(rows[0][3])}
	if s.flushed, err = pgoutput.ParseLSN(string(rows[0][2])); err != nil {
		return nil, err
	}
	rows, err = simple(ctx, conn, "SELECT oid, pg_catalog.current_setting('server_version_num'), pg_catalog.pg_is_in_recovery(), "+
		"pg_catalog.pg_postmaster_start_time() FROM pg_catalog.pg_database "+
		"WHERE datname = pg_catalog.current_database()")
	if err != nil {
		return nil, err
	}
	s.oid, s.version, s.standby = string(rows[0][0]), int(number(rows[0][1])), string(rows[0][2]) == "t"
	s.started = string(rows[0][3])
	return s, nil
}

// simple runs one statement by the simple protocol, which is all that a replication connection takes, and returns its rows.
func simple(ctx context.Context, conn *pgconn.PgConn, sql string) ([][][]byte, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) == 0 {
		return nil, fmt.Errorf("%s: got no row", sql)
	}
	return results[0].Rows, nil
}

// lane is the log of the database.
func (s *server) lane() freshet.Lane {
	return freshet.Lane{Origin: s.database, OriginID: s.system + "/" + s.oid, Name: logLane}
}

// logLane is the name of the lane that is the log. Those of tables' histories bear the tables' OIDs.
const logLane = "0"

// slot is a replication slot as the server has it.
type slot struct {
	plugin, database string
	confirmed        pgoutput.LSN // transactions that committed before it are not sent any more
	restart          pgoutput.LSN // the server keeps its log from there on
	active           bool         // a connection reads from it
	synced           bool         // it is a copy of the primary's
	status           string       // of the log that it needs: "lost" when that is gone
	invalid          string       // why it is of no use any more; "": it is
}

// findSlot returns the slot, nil when there is none of this name.
func findSlot(ctx context.Context, conn *pgconn.PgConn, name string, version int) (*slot, error) {
	reason := "null::text"
	switch {
	case version >= 170000:
		reason = "invalidation_reason"
	case version >= 160000:
		reason = "case when conflicting then 'conflict with recovery' end"
	}
	status := "null::text"
	if version >= 130000 {
		status = "wal_status"
	}
	synced := "false"
	if version >= 170000 {
		synced = "synced"
	}
	results, err := conn.Exec(ctx, "SELECT plugin, database, confirmed_flush_lsn, "+status+", "+reason+", restart_lsn, active, "+synced+
		" FROM pg_catalog.pg_replication_slots WHERE slot_name = "+quoteText(name)).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) == 0 {
		return nil, err
	}
	r := results[0].Rows[0]
	s := &slot{plugin: string(r[0]), database: string(r[1]), status: string(r[3]), invalid: string(r[4]), active: string(r[6]) == "t",
		synced: string(r[7]) == "t"}
	for at, into := range map[int]*pgoutput.LSN{2: &s.confirmed, 5: &s.restart} {
		if len(r[at]) == 0 {
			continue
		}
		if *into, err = pgoutput.ParseLSN(string(r[at])); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// createSlot makes the slot and returns where it begins. Standbys that synchronise slots have it, too, where the server can do that.
// On a standby it waits until the primary says which transactions run.
func createSlot(ctx context.Context, conn *pgconn.PgConn, name string, on *server) (pgoutput.LSN, error) {
	option := "NOEXPORT_SNAPSHOT"
	switch {
	case on.standby && on.version < 160000:
		return 0, &freshet.Error{Code: freshet.CodeSourceRefused, Class: freshet.ClassEnvironment, Place: on.database,
			Msg: "a standby answers, and PostgreSQL before 16 has no slots for changes there", Fix: "connect to the primary"}
	case on.version >= 170000 && !on.standby:
		option = "(SNAPSHOT 'nothing', FAILOVER true)"
	case on.version >= 150000:
		option = "(SNAPSHOT 'nothing')"
	}
	rows, err := simple(ctx, conn, "CREATE_REPLICATION_SLOT "+quoteName(name)+" LOGICAL pgoutput "+option)
	if err != nil {
		return 0, err
	}
	return pgoutput.ParseLSN(string(rows[0][1]))
}

// wayOn is what can be done when a slot has lost what tables need next.
const wayOn = "let a mirror go on with `freshet pipeline renew PIPELINE`, which repairs what was missed; load other tables again"

// lost says why nothing can be read from the slot any more; "": it can.
func (s *slot) lost() string {
	if s.invalid == "" && s.status == "lost" {
		return "its log was removed: max_slot_wal_keep_size"
	}
	return s.invalid
}

// check finds that the slot cannot be read from, or not without a hole, by those who hold everything up to these places.
func (s *slot) check(name string, on *server, held map[string]pgoutput.LSN) error {
	e := &freshet.Error{Code: freshet.CodeSlotMoved, Class: freshet.ClassInput, Place: "slot " + name,
		Fix: "what is between cannot be read any more: " + wayOn}
	switch {
	case s.plugin != "pgoutput" || s.database != on.database:
		e.Code, e.Fix = freshet.CodeBadValue, "name another slot"
		e.Msg = fmt.Sprintf("found one of the plugin %q and database %q, wanted pgoutput and %q", s.plugin, s.database,
			on.database)
		return e
	case s.synced && on.standby:
		e.Code, e.Class, e.Msg = freshet.CodeSourceRefused, freshet.ClassEnvironment, "a standby answers, and has the slot as a copy of the primary's, which is not to be read"
		e.Fix = "connect to the primary; or name another slot, which is then made on the standby"
		return e
	case s.lost() != "":
		e.Code, e.Msg = freshet.CodeSlotLost, "the server has invalidated the slot: "+s.lost()
		e.Fix = "what it had cannot be read any more: " + wayOn
		return e
	}
	for who, at := range held {
		if s.confirmed > at {
			e.Msg = fmt.Sprintf("the slot begins at %s, and table %s holds everything only up to %s: the changes between are gone; "+
				"somebody has moved the slot, or made it anew", s.confirmed, who, at)
			return e
		}
	}
	return nil
}

// checkServer finds that the server has lost what tables hold: it is a copy, or a standby that was behind. A standby that is behind
// is to be waited for: CodeSourceUnreachable.
func checkServer(on *server, held map[string]pgoutput.LSN) error {
	for who, at := range held {
		if at > on.flushed && on.standby {
			return &freshet.Error{Code: freshet.CodeSourceUnreachable, Class: freshet.ClassEnvironment, Place: on.database,
				Msg: fmt.Sprintf("the standby that answers has the log up to %s, and table %s holds it up to %s already", on.flushed, who, at)}
		}
		if at > on.flushed {
			return &freshet.Error{Code: freshet.CodeTimeline, Class: freshet.ClassInput, Place: on.database,
				Msg: fmt.Sprintf("the server's log ends at %s on timeline %s, and table %s holds changes up to %s: the server has "+
					"lost transactions", on.flushed, on.timeline, who, at),
				Fix: "find out whether the right server answers; if it was restored or promoted, load the tables again"}
		}
	}
	return nil
}

// missing says that there is no slot although tables were filled from one.
func missing(name, who string, at pgoutput.LSN) error {
	return &freshet.Error{Code: freshet.CodeSlotLost, Class: freshet.ClassInput, Place: "slot " + name,
		Msg: fmt.Sprintf("there is no such slot, and table %s holds the log up to %s: it was dropped, or another server answers, "+
			"to which the slot was not copied", who, at),
		Fix: "connect to the server that has it; if it is gone, " + wayOn}
}

// slotInUse reports whether another connection reads from the slot. Source: "PostgreSQL Error Codes", object_in_use.
func slotInUse(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && said.Code == "55006"
}

// madeByAnother reports whether what was to be made is there by now. Source: "PostgreSQL Error Codes", duplicate_object, unique_violation.
func madeByAnother(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == "42710" || said.Code == "23505")
}

// holder says who reads from the slot.
func holder(ctx context.Context, conn *pgconn.PgConn, name string) string {
	rows, err := simple(ctx, conn, "SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'local') FROM "+
		"pg_catalog.pg_replication_slots s JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = "+
		quoteText(name))
	if err != nil {
		return "another connection"
	}
	return fmt.Sprintf("process %s of the server, for %s at %s", rows[0][0], strconv.Quote(string(rows[0][1])), rows[0][2])
}

// broken counts how often the server has ended the stream in the same way without getting further.
type broken struct {
	message string
	at      pgoutput.LSN
	times   int
}

// brokenTimes is how often, until it counts as being so for good.
const brokenTimes = 5

// again counts an end of the stream, and reports whether the server fails for good: by an error of its own, or of its files. Source:
// "PostgreSQL Error Codes", classes XX and 58.
func (b *broken) again(said *pgconn.PgError, at pgoutput.LSN) bool {
	if b.message != said.Message || b.at != at {
		*b = broken{message: said.Message, at: at}
	}
	b.times++
	return b.times >= brokenTimes && len(said.Code) == 5 && (said.Code[:2] == "XX" || said.Code[:2] == "58")
}

func undecodable(name string, at pgoutput.LSN, said *pgconn.PgError) error {
	return &freshet.Error{Code: freshet.CodeUndecodable, Class: freshet.ClassInput, Place: "slot " + name, Err: said,
		Msg: fmt.Sprintf("the server fails to decode its log behind %s, %d times in the same way, and sends nothing of behind", at, brokenTimes),
		Fix: "look into the server's own log; if it stays so, drop the slot and load the tables again"}
}
