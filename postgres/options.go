package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet"
)

// Options are the settings of a Source. The zero value of each field means its default.
type Options struct {
	// Slot is the replication slot: lower-case letters, digits and underscores. It is made if no table knows the database yet.
	Slot string
	// Publication says which changes of which tables the server sends. It is made, of the tables that are read, if it is not
	// there. Default: the slot's name.
	Publication string
	// Tables are patterns of the tables that are read: public.orders, public.*, *.*. Default: all of the publication.
	Tables []string
	// Table names the table that a table's rows go to. Default: schema_name.
	Table func(schema, name string) string
	// Keyed says that rows go to tables that tell them apart by their key: of the tables that a pattern with * selects, those
	// without a key are left out then, and one that is named is an error.
	Keyed bool
	// Alike says, with Keyed, that these tables take rows without a key, too, of which several may be alike. Then only those tables are
	// left out, or are an error, of which the log does not tell whole rows: that have neither a key nor REPLICA IDENTITY FULL.
	Alike bool
	// Types are choices among the types of columns.
	Types Types
	// History says how the rows are loaded that are in the tables already.
	History History
	// DDL says what follows changes of tables.
	DDL DDL
	// TableDDL says so of single tables, "public.orders", where that is not as in DDL.
	TableDDL map[string]DDL
	// Bounded ends where the log ended when the source was opened.
	Bounded bool
	// MemoryBytes bounds the transactions in memory that are not committed, and those that are and wait. Beyond it the largest
	// is spilled, or the server waits. Default 64 MiB.
	MemoryBytes int64
	// SpillDir is the folder for transactions that do not fit. Default: the system's for temporary files.
	SpillDir string
	// StatusEvery is how often the server hears of us, whatever else we do. Default 10 s.
	StatusEvery time.Duration
	// LogDisk is how many bytes of log the server's disk has room for, which the server does not tell: until it is full is told where
	// no bound of the server comes first. Default 0: not known.
	LogDisk int64
	// WatchEvery is how often the server is asked what it keeps for the slot. Default 30 s.
	WatchEvery time.Duration
	// Patience is how long a slot is waited for that another connection holds: a server may notice late that one of ours is
	// gone. Default 75 s.
	Patience time.Duration
	// RetryAfter is how long is waited after an outage until it is tried again; each time that it goes on twice as long, up to 30 s.
	// Default 100 ms.
	RetryAfter time.Duration
	// Observer is told of outages.
	Observer freshet.Observer
	// Log takes what a person should see. Default: nothing is logged.
	Log *slog.Logger
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Validate reports everything in it that cannot be.
func (o *Options) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !slotName.MatchString(o.Slot) {
		fault("slot: found %q, wanted up to 63 lower-case letters, digits and underscores", o.Slot)
	}
	o.DDL.validate("ddl", fault)
	for _, table := range slices.Sorted(maps.Keys(o.TableDDL)) {
		o.TableDDL[table].validate("ddl of "+table, fault)
		if schema, name, ok := strings.Cut(table, "."); !ok || schema == "" || name == "" || strings.Contains(table, "*") {
			fault("ddl: found the table %q, wanted SCHEMA.TABLE", table)
		}
	}
	if o.MemoryBytes < 0 || o.MemoryBytes > 0 && o.MemoryBytes < 1<<20 {
		fault("memory: found %d bytes, wanted at least 1 MiB", o.MemoryBytes)
	}
	if o.LogDisk < 0 {
		fault("log disk: found %d bytes, wanted none or more", o.LogDisk)
	}
	if h := o.History; h.Parallel < 0 || h.ChunkRows < 0 || h.RowsPerSecond < 0 || h.MaxAge < 0 {
		fault("history: found %d connections, %d rows a chunk, %d rows a second and %s, wanted nothing below 0", h.Parallel,
			h.ChunkRows, h.RowsPerSecond, h.MaxAge)
	}
	for _, p := range o.Tables {
		if schema, name, ok := strings.Cut(p, "."); !ok || schema == "" || name == "" {
			fault("tables: found %q, wanted SCHEMA.TABLE, in which * stands for all", p)
		}
	}
	return errors.Join(append(faults, o.Types.Validate())...)
}

func (o Options) withDefaults() Options {
	if o.Publication == "" {
		o.Publication = o.Slot
	}
	if len(o.Tables) == 0 {
		o.Tables = []string{"*.*"}
	}
	if o.Table == nil {
		o.Table = func(schema, name string) string { return schema + "_" + name }
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 64 << 20
	}
	if o.SpillDir == "" {
		o.SpillDir = os.TempDir()
	}
	if o.History.Parallel == 0 {
		o.History.Parallel = 4
	}
	if o.History.ChunkRows == 0 {
		o.History.ChunkRows = 200_000
	}
	if o.History.MaxAge == 0 {
		o.History.MaxAge = time.Hour
	}
	if o.StatusEvery <= 0 {
		o.StatusEvery = 10 * time.Second
	}
	if o.WatchEvery <= 0 {
		o.WatchEvery = 30 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 75 * time.Second
	}
	if o.RetryAfter <= 0 {
		o.RetryAfter = 100 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
