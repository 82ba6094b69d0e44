package spec

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/format"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// QuarantineTable is the quarantine table of one of the pipeline's tables, as Project.OpenTable takes it.
func (p *Pipeline) QuarantineTable(table string) string { return p.quarantineOf(table) }

// SharedQuarantine is the quarantine of all of the pipeline's tables; shared is false where each has its own.
func (p *Pipeline) SharedQuarantine() (name string, shared bool) {
	of := func(one string) string { return p.QuarantineTable(p.fill(p.TargetTable(), one)) }
	return of("x"), of("x") == of("y")
}

// Replay takes records of one table out of quarantine, decodes them as the pipeline does now, runs its steps and applies
// what comes of them, each exactly once, to the table and to its change log. The pipeline may run meanwhile.
func (b *Builder) Replay(ctx context.Context, p *Pipeline, table string,
	filter *lake.Filter) (*lake.Replayed, error) {
	if p.Source.Postgres != nil {
		return b.replayPostgres(ctx, p, table, filter)
	}
	f, err := p.format()
	if err != nil {
		return nil, err
	}
	steps, err := p.stepsOf(table)
	if err != nil {
		return nil, err
	}
	st, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return nil, err
	}
	opts := b.targetOptions(p, freshet.Observer{})
	schema, err := p.decoded(ctx, table, st, steps, lake.FilledColumns(opts))
	if err != nil {
		return nil, err
	}
	target := p.tables(func(name string) (store.Store, error) { return p.Project.OpenTable(ctx, name) }, opts)
	again := &lake.Redecoder{Format: f, Schema: schema, Steps: steps}
	if len(p.Source.Kafka.Metadata) > 0 {
		again.Finish = p.Source.Kafka.finish
	}
	if err := target.Open(ctx); err != nil {
		return nil, err
	}
	done, err := target.Replay(ctx, table, filter, p.unsealing(again.Retake))
	if closed := target.Close(context.WithoutCancel(ctx)); err == nil {
		err = closed
	}
	return done, err
}

// decoded are the columns that the format is to decode: those of the file, or those of the table that reach
// it unchanged and that the target does not fill.
func (p *Pipeline) decoded(ctx context.Context, table string, st store.Store, steps []freshet.Step, filled []arrow.Field) (
	*arrow.Schema, error) {
	if p.Source.Kafka.Format == "raw" || p.sourceSchema() != nil {
		fields, _ := p.decodedFields()
		return arrow.NewSchema(fields, nil), nil
	}
	t, err := delta.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	meta := map[string]bool{}
	for _, f := range append(filled, p.Source.Kafka.metadataFields()...) {
		meta[strings.ToLower(f.Name)] = true
	}
	var fields []arrow.Field
	hidden := p.rulesOf(p.sourcesOf(table))
	for _, f := range snap.Schema().Arrow().Fields() {
		name, ok := origin(steps, f.Name)
		if p.Source.Schema.NewFields != string(format.Add) && hidden.index(f.Name) >= 0 { // else it is inferred anew
			name, ok = f.Name, true
		}
		if low := strings.ToLower(name); ok && !meta[low] {
			meta[low] = true // two columns may come from one
			f.Name = name
			fields = append(fields, f)
		}
	}
	return arrow.NewSchema(fields, nil), nil
}

// origin is the column of the source that reaches the table unchanged under a name.
func origin(steps []freshet.Step, name string) (string, bool) {
	ok := true
	for i := len(steps) - 1; i >= 0 && ok; i-- {
		name, ok = steps[i].Origin(name)
	}
	return name, ok
}

// finish adds the columns that tell where a record came from.
func (k *Kafka) finish(rows arrow.RecordBatch, from []*lake.Entry) (arrow.RecordBatch, error) {
	columns, fields := rows.Columns(), rows.Schema().Fields()
	for _, f := range k.metadataFields() {
		b := array.NewBuilder(memory.DefaultAllocator, f.Type)
		for _, e := range from {
			if err := k.appendMetadata(b, f.Name, e); err != nil {
				b.Release()
				return nil, err
			}
		}
		columns, fields = append(columns, b.NewArray()), append(fields, f)
		b.Release()
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, rows.NumRows()), nil
}

func (k *Kafka) appendMetadata(b array.Builder, column string, e *lake.Entry) error {
	what := ""
	for _, m := range k.Metadata {
		if m.Value == column {
			what = m.Name
		}
	}
	switch what {
	case "topic":
		b.(*array.StringBuilder).Append(e.Lane.Origin)
	case "partition":
		n, err := strconv.ParseInt(e.Lane.Name, 10, 32)
		if err != nil {
			return fmt.Errorf("entry %s: %w", e.ID(), err)
		}
		b.(*array.Int32Builder).Append(int32(n))
	case "offset":
		b.(*array.Int64Builder).Append(e.Seq)
	case "timestamp":
		if e.Time.IsZero() {
			b.AppendNull()
			return nil
		}
		b.(*array.TimestampBuilder).Append(arrow.Timestamp(e.Time.UnixMicro()))
	case "timestamp_type":
		if e.TimeKind < 0 { // of an entry that an older version made
			b.AppendNull()
			return nil
		}
		b.(*array.Int32Builder).Append(e.TimeKind)
	case "key":
		return appendKey(b, e)
	case "headers":
		freshet.AppendHeaders(b.(*array.ListBuilder), e.Headers)
	}
	return nil
}

func appendKey(b array.Builder, e *lake.Entry) error {
	text, isText := b.(*array.StringBuilder)
	switch {
	case e.Key == nil:
		b.AppendNull()
	case isText && !utf8.Valid(e.Key):
		return &freshet.Error{Code: freshet.CodeBadUTF8, Class: freshet.ClassInput, Place: e.ID(),
			Msg: "the record's key is no UTF-8 text, which key_as: string wants",
			Fix: "use key_as: binary in another table, or drop the entry"}
	case isText:
		text.Append(string(e.Key))
	default:
		b.(*array.BinaryBuilder).Append(e.Key)
	}
	return nil
}
