package freshet

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Source reads changes from an origin, lane by lane, each lane in the order of its seqs and without a hole. It keeps no
// progress of its own: where a lane goes on is asked from downstream. One goroutine calls Open, Next, Rewind and Close;
// Ack may come from another one at any time between Open and Close.
type Source interface {
	// Open connects and checks what can be checked. The source may call down from then on, also from goroutines of
	// its own, until Close returned.
	Open(ctx context.Context, down Downstream) error

	// Next returns the next batch of any lane, waiting for one. A lane's batches adjoin: After of each is Last of the
	// one before, or what Resume or Start said. The batch is the caller's. io.EOF: a bounded source has delivered
	// everything up to where its lanes ended when it was opened. Other errors end the run; outages are waited out
	// inside, as long as ctx lasts. When ctx ends Next returns an error and has lost nothing: the next call, with
	// another ctx, goes on. After io.EOF it is called again only when a Rewind came between.
	Next(ctx context.Context) (*Batch, error)

	// Rewind has the source forget what it read of the table's lanes, ask Downstream.Schema and Resume anew, and go
	// on from there. Batches read before may still come out; the pipeline drops what does not fit.
	Rewind(ctx context.Context, table string) error

	// Ack tells that the table durably holds everything up to progress: now the origin may forget. It must not
	// block for long; what it cannot deliver it drops, since the next Ack says more.
	Ack(ctx context.Context, table string, progress Progress) error

	// Close ends all reading and releases what the source holds. It is called once, also after a failed Open.
	Close(ctx context.Context) error
}

// Downstream is what a source may ask of where its changes end. It is safe for concurrent use.
type Downstream interface {
	// Schema returns the columns of the source whose types the table already fixes, those that reach it unchanged
	// through all steps, with the table's types; nil when the table does not exist.
	Schema(ctx context.Context, table string) (*arrow.Schema, error)

	// Ensure makes the table for rows of this source schema, or checks that an existing one can take them. Whoever
	// loses the race to create it gets nil too: a source asks Schema again after Ensure and adopts what it says.
	Ensure(ctx context.Context, table string, schema *arrow.Schema) error

	// Widen gives columns of the table the types of the same columns of this source schema, where these are wider and the
	// table can: whoever asks Schema again sees which. There is nothing to do where there is no table.
	Widen(ctx context.Context, table string, schema *arrow.Schema) error

	// Hold holds the table back for an error of it that the source has met: ask where its lanes stand then, and return its changes, which are
	// parked. there is false where there is no table yet: then nothing of it is to be returned. Errors: cause, where it is to end the run.
	Hold(ctx context.Context, table string, cause error) (there bool, err error)

	// Resume returns the progress of these lanes, absent where the table holds none, as the table's newest version
	// has it, or as Start has kept it for a table that is still to be made. A lane whose origin has another identity than the table remembers is a gap: an *Error with CodeOriginChanged.
	// Rows of these lanes that were read before and are not committed are dropped.
	Resume(ctx context.Context, table string, lanes []Lane) (Progress, error)

	// Start commits where lanes begin that the table does not know: the seq before their first. It returns the progress
	// that the table then has, which is another's if that one was first. Where there is no table yet the starts are kept
	// where Resume finds them, and become part of the commit that makes it: ask again after Ensure, since another may have
	// made it.
	Start(ctx context.Context, table string, starts Progress) (Progress, error)

	// Since tells whether the table holds progress of this pipeline, or starts are kept for it, and when that was recorded
	// first: the zero time where nothing says.
	Since(ctx context.Context, table string) (at time.Time, known bool, err error)

	// Bookmark keeps mark with the table under a name, a path of words, unless one is kept there already, and returns the
	// one that is: what a seq of a lane stands for, where that is more than a number. It is kept before the seq is
	// committed. With a nil mark nothing is kept, and nil is returned where nothing is.
	Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error)

	// Unmark deletes the bookmarks whose names begin with prefix and are not greater than last.
	Unmark(ctx context.Context, table, prefix, last string) error

	// Release commits, or drops, what was read of lanes that now belong to another process, and returns when it is
	// done or ctx ends.
	Release(ctx context.Context, table string, lanes []Lane) error
}
