package freshet

import "time"

// Observer is told what the pipe does, as it does it; any field may be nil. Its functions must not block and are called
// from several goroutines.
type Observer struct {
	// Read: a batch came from the source, before the steps.
	Read func(table string, rows, rejects int, bytes int64, took time.Duration)
	// Stage: one stage of the pipe took this long for one batch: "read", "transform", "write", "commit".
	Stage func(stage string, took time.Duration)
	// Committed: a commit landed. Latency is from the arrival of its oldest record to now.
	Committed func(c Committed, took, latency time.Duration, newest time.Time)
	// Stale: a commit was dropped because the table had moved on.
	Stale func(table string)
	// Retry: something failed that is tried again.
	Retry func(what string, err error)
	// Recovered: what Retry told under this name works again, or is no longer tried.
	Recovered func(what string)
	// Lossy: so many values of a column became null, or were changed otherwise, since its type cannot hold them.
	Lossy func(table, column string, values int64)
	// Held: what the origin keeps for us, told every while.
	Held func(h Held)
	// State: the pipeline's state: "starting", "running", "waiting", "paused", "stopping", "stopped", "failed".
	State func(state string)
	// Paused: people hold the pipeline back, or some of its tables: who, since when and why; "": nobody does.
	Paused func(why string)
	// Slow: a table takes so long that its changes are parked for now, and why; "": it does not any more.
	Slow func(table, why string)
	// Lag: what the origin has and we have not read yet; -1: the lane is no longer ours.
	Lag func(lane Lane, records int64)
	// Loading: rows that were in a table of the origin before are read.
	Loading func(l Loading)
	// Compared: a table was compared with its source.
	Compared func(c Compared)
	// Upkeep: a table was looked after beside the stream.
	Upkeep func(u Upkeep)
}

// Loading tells how far the loading of a table is.
type Loading struct {
	Table string
	Rows  int64 // that were read, by processes before, too
	Of    int64 // rows, as the origin estimates; -1: it does not say
	Done  bool
}

// Compared is what a comparison of a table with its source has found.
type Compared struct {
	Table     string
	Rows      int64            // of the source, that were compared
	Classes   map[string]int64 // rows that differ, by what is wrong with them; all classes are there
	Mended    int64            // of these, that are mended
	Undecided int64            // rows of which nothing can be said
	Took      time.Duration
}

// Upkeep is a piece of work that was done beside the stream for those who read a table.
type Upkeep struct {
	Table     string
	Kind      string // in the words of the target: "compact", "fold", "vacuum"
	Partition string // "" in a table without partitions, and of a vacuum
	Why       string // for people
	Version   int64  // that the table has since; -1: it made none
	// What was taken, and what came in its place.
	FilesBefore, BytesBefore int64
	FilesAfter, BytesAfter   int64
	Took                     time.Duration
}

// Held tells how much an origin keeps for a pipeline of what it would drop otherwise, and for how long it will.
type Held struct {
	Place     string        // for people: "slot freshet_shop"
	Retained  int64         // bytes that it keeps
	Behind    int64         // bytes that came since what every table holds
	PerSecond int64         // bytes by which that grows in a second; 0: it does not, or it is not known yet
	Safe      int64         // bytes that may come until it drops what we need, or its disk is full; -1: no bound is known
	Left      time.Duration // until then, at this rate; 0: it does not grow, or there is no bound
	Disk      bool          // the bound is its disk
}
