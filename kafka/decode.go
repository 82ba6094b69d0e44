package kafka

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
)

// job is what was polled of one lane between two offsets, to be decoded by one worker; or, without a lane,
// the end.
type job struct {
	lane        *lane
	records     []*kgo.Record
	after, last int64 // as in freshet.Batch
	bytes       int64 // what it holds of inflight
	read        time.Time
	epoch       int64 // of the end: how many rewinds had been asked for

	done    chan struct{}    // closed when batches is there
	batches []*freshet.Batch // what became of it: one batch, or more where new fields made the columns change
}

// drop releases the batches, once they are there, and nothing if they never come.
func (j *job) drop() {
	select {
	case <-j.done:
		for _, b := range j.batches {
			b.Release()
		}
		j.batches = nil
	default:
	}
}

// recycle gives the records' memory back to the client.
func recycle(records []*kgo.Record) {
	for _, r := range records {
		r.Recycle()
	}
}

// maxDecoders is how many tables a worker keeps decoders for.
const maxDecoders = 16

// decodeAll is a worker goroutine.
func (s *Source) decodeAll() {
	w := &worker{Source: s, decoders: map[*table]*decoder{}}
	defer w.release()
	for {
		select {
		case <-s.life.Done():
			return
		case j := <-s.work:
			if err := w.decode(j); err != nil {
				// What has gathered of the job must not get into another: the worker ends, and the job stays
				// undone, so that Next has the error to return and nothing behind it.
				s.fail(err)
				return
			}
			close(j.done)
		}
	}
}

// worker decodes jobs, each as a whole.
type worker struct {
	*Source
	decoders map[*table]*decoder

	// What has gathered of the job at hand since its last batch.
	seqs    []int64
	rows    []*kgo.Record // one a row; only if they are needed for our columns, or kept
	rejects []freshet.Reject
	bytes   int64
	newest  time.Time
}

// decoder decodes into the columns of a table.
type decoder struct {
	freshet.Decoder
	columns *columns
}

func (w *worker) release() {
	for _, d := range w.decoders {
		d.Release()
	}
}

// decoder returns the decoder for these columns of the table.
func (w *worker) decoder(t *table, c *columns) (*decoder, error) {
	d := w.decoders[t]
	if d != nil && d.columns == c {
		return d, nil
	}
	if d != nil {
		d.Release()
		delete(w.decoders, t)
	}
	if len(w.decoders) >= maxDecoders {
		w.release()
		clear(w.decoders)
	}
	made, err := w.format.NewDecoder(c.decoded)
	if err != nil {
		return nil, fmt.Errorf("decode for %s: %w", t.name, err)
	}
	d = &decoder{made, c}
	w.decoders[t] = d
	return d, nil
}

// decode fills the job's batches, and gives its records back.
func (w *worker) decode(j *job) error {
	if j.lane.gone.Load() {
		recycle(j.records)
		return nil
	}
	t := j.lane.table
	now := t.columns.Load()
	if now == nil { // and so there is nothing to decode
		j.batches = append(j.batches, w.batch(j, nil, j.after, j.last, j.records))
		return nil
	}
	d, err := w.decoder(t, now)
	if err != nil {
		return err
	}
	after, first := j.after, 0
	w.seqs = make([]int64, 0, len(j.records))
	for i, r := range j.records {
		if r.Attrs.IsControl() {
			continue
		}
		for tries := 0; ; tries++ {
			err := w.add(d, r)
			if err == nil {
				break
			}
			if errors.Is(err, freshet.ErrFull) && d.Len() > 0 {
				j.batches = append(j.batches, w.batch(j, d, after, r.Offset-1, j.records[first:i]))
				after, first = r.Offset-1, i
				continue
			}
			if !errors.Is(err, freshet.ErrNewFields) {
				return fmt.Errorf("decode %s: %w", j.lane.Position(r.Offset), err)
			}
			wider, err := w.wider(t, d.columns, j.records[i:])
			if err != nil {
				return fmt.Errorf("decode %s: %w", j.lane.Position(r.Offset), err)
			}
			if wider == d.columns || tries > 10 {
				w.reject(r, freshet.CodeNewField, "the record has a new field for which no column can be made")
				break
			}
			if r.Offset-1 > after {
				j.batches = append(j.batches, w.batch(j, d, after, r.Offset-1, j.records[first:i]))
				after, first = r.Offset-1, i
			}
			if d, err = w.decoder(t, wider); err != nil {
				return err
			}
		}
	}
	if j.last > after {
		j.batches = append(j.batches, w.batch(j, d, after, j.last, j.records[first:]))
	}
	return nil
}

// wider returns the table's columns with the new fields of these records.
func (w *worker) wider(t *table, was *columns, records []*kgo.Record) (*columns, error) {
	payloads := make([]freshet.Payload, 0, len(records))
	for _, r := range records {
		if w.decodes(r) {
			payloads = append(payloads, freshet.Payload{Key: r.Key, Value: r.Value})
		}
	}
	return t.widened(w.Source, was, payloads)
}

// decodes reports whether the format is to see the record.
func (s *Source) decodes(r *kgo.Record) bool {
	return !r.Attrs.IsControl() && (r.Value != nil || s.o.Tombstones == Keep) && !s.badKey(r)
}

// badKey reports whether the key is to be text in a column, and is none.
func (s *Source) badKey(r *kgo.Record) bool {
	return s.o.Columns.KeyAsText && s.o.Columns.Key != "" && !utf8.Valid(r.Key)
}

// add decodes one record, or makes a reject of it, or drops a tombstone. Errors: freshet.ErrNewFields, and
// those that are no fault of the record.
func (w *worker) add(d *decoder, r *kgo.Record) error {
	switch {
	case r.Value == nil && w.o.Tombstones == Skip:
		w.note(r)
		return nil
	case r.Value == nil && w.o.Tombstones == Reject:
		w.reject(r, freshet.CodeEmptyPayload, "found no value (a tombstone), wanted one")
		return nil
	case w.badKey(r):
		w.reject(r, freshet.CodeBadUTF8, "the key is not UTF-8, wanted text for the column "+w.o.Columns.Key)
		return nil
	}
	rows, err := d.Append(freshet.Payload{Key: r.Key, Value: r.Value})
	if err != nil {
		var no *freshet.RejectError
		if errors.As(err, &no) {
			w.reject(r, no.Code, no.Error())
			return nil
		}
		return err
	}
	for range rows {
		w.seqs = append(w.seqs, r.Offset)
		if w.o.KeepRecords || w.tells {
			w.rows = append(w.rows, r)
		}
	}
	w.note(r)
	return nil
}

// note counts a record.
func (w *worker) note(r *kgo.Record) {
	w.bytes += int64(len(r.Value))
	if hasTime(r) && r.Timestamp.After(w.newest) {
		w.newest = r.Timestamp
	}
}

func (w *worker) reject(r *kgo.Record, code freshet.Code, message string) {
	w.rejects = append(w.rejects, freshet.Reject{Seq: r.Offset, Code: code, Message: message, Step: "decode",
		Record: recordOf(r).Clone()})
	w.note(r)
}

// recordOf is the record, on the client's memory.
func recordOf(r *kgo.Record) freshet.Record {
	record := freshet.Record{Raw: r.Value, Key: r.Key, Headers: appendHeaders(nil, r),
		TimeKind: int32(r.Attrs.TimestampType())}
	if hasTime(r) {
		record.Time = r.Timestamp
	}
	return record
}

// batch makes a batch of what has gathered.
func (w *worker) batch(j *job, d *decoder, after, last int64, records []*kgo.Record) *freshet.Batch {
	b := &freshet.Batch{Table: j.lane.table.name, Lane: j.lane.Lane, After: after, Last: last,
		Seqs: w.seqs, Rejects: w.rejects, Bytes: w.bytes, Newest: w.newest, ReadAt: j.read}
	if len(w.seqs) > 0 {
		decoded := d.Flush()
		b.Kinds, b.Stamps, b.Unsent = decoded.Kinds, decoded.Stamps, decoded.Unsent
		b.Rows = w.withColumns(d.columns, decoded.Rows)
		b.SetPlaces()
	}
	if w.o.KeepRecords && len(w.rows) > 0 {
		b.Records = keep(w.rows)
	}
	recycle(records)
	w.seqs, w.rejects, w.bytes, w.newest = nil, nil, 0, time.Time{}
	clear(w.rows)
	w.rows = w.rows[:0]
	return b
}

// withColumns returns the decoded rows, which it takes, with our columns appended: those are always sent.
func (w *worker) withColumns(c *columns, decoded arrow.RecordBatch) arrow.RecordBatch {
	if !w.tells {
		return decoded
	}
	defer decoded.Release()
	more := w.o.Columns.arrays(w.rows)
	all := append(append([]arrow.Array{}, decoded.Columns()...), more...)
	whole := array.NewRecordBatch(c.full, all, decoded.NumRows())
	for _, a := range more {
		a.Release()
	}
	return whole
}
