package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// Retaken are rows that were made of what quarantine keeps.
type Retaken struct {
	Rows    arrow.RecordBatch // nil: none
	Unsent  *freshet.Mask
	Of      []int                        // one a row: of which of what was given it is
	Refused map[int]*freshet.RejectError // why there is no row of one, by the same numbers
}

// Retake makes rows of those that a pipeline refused as it read them: each is JSON of the text of its columns, as it is in quarantine (see rows.told). A column
// that the table has no longer is left out, and one that the text does not have was not sent. Errors: values do not go into the
// columns.
func (r *Original) Retake(texts [][]byte) (*Retaken, error) {
	made, err := newRows(r.of.types, &r.table.Table, r.schema)
	if err != nil {
		return nil, unfit(&r.table.Table, err)
	}
	out := &Retaken{Refused: map[int]*freshet.RejectError{}}
	for i, text := range texts {
		err := r.retake(made, text)
		var why *freshet.RejectError
		switch {
		case errors.As(err, &why):
			made.undo()
			out.Refused[i] = why
		case err != nil:
			return nil, err
		default:
			made.end()
			out.Of = append(out.Of, i)
		}
	}
	if made.len() > 0 {
		out.Rows, out.Unsent = made.take()
	}
	return out, nil
}

// retake appends the values of one row.
func (r *Original) retake(made *rows, text []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil || len(values) == 0 {
		return &freshet.RejectError{Code: freshet.CodeMalformed, Offset: -1,
			Message: fmt.Sprintf("found %.60q, wanted the values of a row: load the table again for it, or give it up", text)}
	}
	if made.bytes()+len(text) > maxRowsBytes {
		return &freshet.RejectError{Code: freshet.CodeTooLarge, Offset: -1, Message: "the rows are too large to be taken at once: take fewer"}
	}
	for i := range r.table.Columns {
		value, sent := values[r.table.Columns[i].Name]
		switch {
		case !sent:
			made.unsent(i)
		case string(value) == "null":
			made.null(i)
		default:
			if err := made.retell(i, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Schema are the columns that rows of the table have here.
func (r *Original) Schema() *arrow.Schema { return r.schema }

// Present hands over the rows that these keys have, as one snapshot shows them; settled says that it shows all that the log told of before.
func (r *Original) Present(ctx context.Context, keys [][]string, each func(OriginalRows) error) (settled bool, err error) {
	_, settled, err = r.present(ctx, keys, each)
	return settled, err
}
