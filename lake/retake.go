package lake

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
)

// Redecoder makes rows of entries as a pipeline does: its Retake decodes the raw payloads and runs the steps.
type Redecoder struct {
	Format freshet.Format
	Schema *arrow.Schema // the columns to decode into; new fields widen it if the format says so
	// Finish adds the columns that do not come from the payload; from has the entry of each row. nil: there are
	// none.
	Finish func(rows arrow.RecordBatch, from []*Entry) (arrow.RecordBatch, error)
	Steps  []freshet.Step
}

// decodeStep is the step of rejects that are whole records: no row of them was made.
const decodeStep = "decode"

// Retake is the function for Target.Replay. It is used by one goroutine.
func (r *Redecoder) Retake(ctx context.Context, entries []*Entry) (*freshet.Batch, error) {
	if len(entries) == 0 {
		return nil, errors.New("no entries")
	}
	b, err := r.decode(entries)
	for wider := 0; errors.Is(err, freshet.ErrNewFields) && wider < 3; wider++ {
		if err := r.widen(entries); err != nil {
			return nil, err
		}
		b, err = r.decode(entries)
	}
	if err != nil {
		return nil, err
	}
	if r.Finish != nil && b.Rows != nil {
		if err := r.finish(b, entries); err != nil {
			b.Release()
			return nil, err
		}
	}
	for _, s := range r.Steps {
		if err := s.Apply(ctx, b); err != nil {
			b.Release()
			return nil, fmt.Errorf("step %s: %w", s.Name(), err)
		}
	}
	return b, nil
}

func (r *Redecoder) widen(entries []*Entry) error {
	payloads := make([]freshet.Payload, len(entries))
	for i, e := range entries {
		payloads[i] = freshet.Payload{Key: e.Key, Value: e.Raw}
	}
	schema, err := freshet.Widen(r.Format, r.Schema, payloads)
	if err != nil {
		return fmt.Errorf("widen the schema: %w", err)
	}
	r.Schema = schema
	return nil
}

// decode makes a batch whose seqs are indices into entries.
func (r *Redecoder) decode(entries []*Entry) (*freshet.Batch, error) {
	d, err := r.Format.NewDecoder(r.Schema)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	first := entries[0]
	b := &freshet.Batch{Table: first.Table, Lane: first.Lane, After: -1, Last: int64(len(entries) - 1)}
	for i, e := range entries {
		n, err := d.Append(freshet.Payload{Key: e.Key, Value: e.Raw})
		var reject *freshet.RejectError
		switch {
		case errors.As(err, &reject):
			b.Rejects = append(b.Rejects, freshet.Reject{Seq: int64(i), Code: reject.Code, Message: reject.Error(),
				Step: decodeStep, Record: e.Record})
		case err != nil:
			return nil, err
		}
		for range n {
			b.Seqs = append(b.Seqs, int64(i))
			b.Records = append(b.Records, &e.Record)
		}
	}
	if len(b.Seqs) > 0 {
		decoded := d.Flush()
		b.Rows, b.Kinds, b.Unsent, b.Stamps = decoded.Rows, decoded.Kinds, decoded.Unsent, decoded.Stamps
		b.SetPlaces()
	}
	return b, nil
}

func (r *Redecoder) finish(b *freshet.Batch, entries []*Entry) error {
	from := make([]*Entry, len(b.Seqs))
	for row, i := range b.Seqs {
		from[row] = entries[i]
	}
	whole, err := r.Finish(b.Rows, from)
	if err != nil {
		return err
	}
	b.Rows = whole
	return nil
}
