package freshet

import (
	"context"
	"errors"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// ErrStale says that what was written no longer fits the table: its progress is not the one the batches started from
// (another copy committed, a partition moved), or its schema has changed under them. Everything that was written of the table and not committed is to be
// dropped, and its lanes read again from the progress the table has.
var ErrStale = errors.New("the table has moved on")

// Target takes batches and commits them with their progress. One goroutine calls Write, Seal and Discard; the sealed
// commits run in others: those of one table in the order they were sealed, those of different tables of one Seal side by
// side; the asking methods are safe for concurrent use.
type Target interface {
	// Open connects and checks what can be checked before the first table is named.
	Open(ctx context.Context) error

	// Schema returns the table's columns, nil when there is no table.
	Schema(ctx context.Context, table string) (*arrow.Schema, error)

	// Ensure creates the table with these columns, or checks that the present one can take rows of this schema,
	// adding columns where the configuration allows. Losing the race to create it is no error.
	Ensure(ctx context.Context, table string, schema *arrow.Schema) error

	// Resume, Start and Since: as Downstream has them.
	Resume(ctx context.Context, table string, lanes []Lane) (Progress, error)
	Start(ctx context.Context, table string, starts Progress) (Progress, error)
	Since(ctx context.Context, table string) (at time.Time, known bool, err error)

	// Bookmark and Unmark: as Downstream has them.
	Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error)
	Unmark(ctx context.Context, table, prefix, last string) error

	// Write takes the batch, whose After must be the Last of the batch before of that lane (or the resumed progress).
	// It takes ownership, and returns how many of the batch's rows it could not accept: those are rejects now. Errors:
	// ErrStale when the batch's schema no longer fits the table, and any error of which
	// store.Retryable is true: then all that was written of the table is dropped and read again.
	Write(ctx context.Context, b *Batch) (rejected int64, err error)

	// Pending is what was written and not yet sealed: rows (with rejects), and bytes, roughly: as they will be stored, or, of rows that
	// wait in memory for their commit, what they may take there together with those of commits before them.
	Pending() (rows, bytes int64)

	// Seal closes what was written into one commit a table, ready to run. The first has ended when the others, of which
	// there is no order, begin. Writing may go on at once.
	// With an error come the commits of the tables that could be sealed; the others are dropped, and read again if the
	// error is one that Write names.
	Seal(ctx context.Context) ([]Commit, error)

	// Discard drops what was written of the table and not sealed.
	Discard(table string)

	// Close releases everything; what is not committed is dropped.
	Close(ctx context.Context) error
}

// Widener is a Target whose tables can give a column a wider type.
type Widener interface {
	// Widen gives columns of the table the types that they have in schema, where these are wider; others stay as they are.
	Widen(ctx context.Context, table string, schema *arrow.Schema) error
}

// Finisher is a Target that puts work off until there is time for it.
type Finisher interface {
	// Finish does the work that is due, once all of a source that has ended is committed; what takes long it leaves for another time.
	// Nothing of it fails a pipeline.
	Finish(ctx context.Context)
}

// Holder is a Target that can hold one table back alone.
type Holder interface {
	// Hold holds the table back for an error of it that its source has met, as for one that the target itself meets: once its lanes are
	// asked for anew its changes are parked, and the other tables go on. there is false where there is no table yet: then it is forgotten
	// where its lanes were to start. Errors: cause, where the error of a table is to end the run.
	Hold(ctx context.Context, table string, cause error) (there bool, err error)
}

// Commit is a sealed part of one table, to be committed as one version.
type Commit interface {
	// Table is the table it belongs to.
	Table() string
	// Run commits: rejects first, into quarantine, then rows and progress in one commit. Outages are retried inside
	// for as long as ctx lasts. Errors: ErrStale, and then nothing was committed; of a target that has several
	// tables for one, what was committed of them is skipped when it is read again.
	Run(ctx context.Context) (Committed, error)
	// Abort drops it; only before Run, or after Run returned ErrStale.
	Abort()
}

// Committed tells what a commit did.
type Committed struct {
	Table    string
	Version  int64    // of the table
	Progress Progress // of the lanes it advanced
	Rows     int64
	Rejects  int64
	Bytes    int64 // stored bytes of new data files
	Files    int
	Retries  int  // how often another writer's commit came first
	Parked   bool // it went where changes of the table wait while that is held back: Version, Bytes and Files are of there

	// Beside are other tables that were committed with it, as its change log. When the table itself held all of it already,
	// and was not committed, its Version is -1.
	Beside []Committed
}
