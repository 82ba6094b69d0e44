package freshet

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
)

// Step changes batches on their way. It is used by one goroutine.
type Step interface {
	// Name is the step in messages and in quarantine: "filter", "derive".
	Name() string

	// Plan checks the step against the columns that come in and returns those that go out. It runs nothing.
	Plan(in *arrow.Schema) (*arrow.Schema, error)

	// Origin returns the incoming column that leaves the step unchanged under the name out, if there is one.
	Origin(out string) (in string, ok bool)

	// Apply changes the batch in place: rows it drops are gone, rows it cannot take become rejects. Seqs, Kinds,
	// Stamps and Records stay one a row, Unsent tells of the columns that go out. An error ends the run.
	Apply(ctx context.Context, b *Batch) error
}
