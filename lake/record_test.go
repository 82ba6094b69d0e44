package lake_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// record is the record at seq, with all that a record can have.
func record(seq int64) *freshet.Record {
	return &freshet.Record{Raw: fmt.Append(nil, "payload ", seq), Key: fmt.Append(nil, "key ", seq),
		Headers: []freshet.Header{{Key: "trace", Value: fmt.Append(nil, seq)}, {Key: "empty", Value: []byte{}},
			{Key: "trace", Value: nil}},
		Time: time.UnixMilli(1_700_000_000_000 + seq).UTC(), TimeKind: 1}
}

func wantRecord(t *testing.T, e *lake.Entry, want *freshet.Record) {
	t.Helper()
	if !reflect.DeepEqual(e.Record, *want) {
		t.Errorf("%s: got the record %+v, want %+v", e.ID(), e.Record, *want)
	}
}

// older is the quarantine of a version that kept neither headers nor the kind of time, with one entry.
func older(t *testing.T, w *world, columns []arrow.Field, seq int64) {
	t.Helper()
	rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(columns, nil))
	defer rows.Release()
	text := map[string]string{"event": "rejected", "app": app, "table_name": "t", "origin": lane0.Origin,
		"origin_id": lane0.OriginID, "lane": lane0.Name, "code": "FRE-3002", "message": "of old"}
	for i, f := range columns {
		switch b := rows.Field(i).(type) {
		case *array.StringBuilder:
			b.Append(text[f.Name])
		case *array.Int64Builder:
			b.Append(seq)
		default:
			b.AppendEmptyValue()
		}
	}
	rec := rows.NewRecordBatch()
	defer rec.Release()
	schema, err := delta.SchemaFromArrow(rec.Schema())
	must(t, err)
	d, err := delta.Create(t.Context(), w.store("t_quarantine"), &delta.CreateOptions{Schema: schema})
	must(t, err)
	made, err := d.Snapshot(t.Context())
	must(t, err)
	files, err := delta.NewWriter(w.store("t_quarantine"), made.Metadata(), made.Protocol(), nil)
	must(t, err)
	must(t, files.Write(t.Context(), rec))
	adds, err := files.Close(t.Context())
	must(t, err)
	snap, err := d.Snapshot(t.Context())
	must(t, err)
	tx := d.Begin(snap, nil)
	tx.Add(adds...)
	_, err = tx.Commit(t.Context())
	must(t, err)
}

func TestQuarantine_TableOfOlderVersion_GetsTheColumns(t *testing.T) {
	var columns []arrow.Field
	for _, f := range quarantineOf(t) {
		if f.Name != "headers" && f.Name != "record_time_kind" && f.Name != "change" {
			columns = append(columns, f)
		}
	}
	if len(columns) != 16 {
		t.Fatalf("got %d columns of old, want 16", len(columns))
	}
	w := newWorld()
	older(t, w, columns, 2)
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: 4})
	b := batch(lane0, 4, 9, 7)
	b.Rejects[0].Record = *record(7)
	commit(t, a, b)
	q, err := lake.OpenQuarantine(t.Context(), w.store("t_quarantine"), "")
	must(t, err)
	e, err := q.Get(t.Context(), "o[0]@7")
	must(t, err)
	wantRecord(t, e, record(7))
	e, err = q.Get(t.Context(), "o[0]@2")
	must(t, err)
	if e.Headers != nil || e.TimeKind != -1 || e.Message != "of old" {
		t.Errorf("got %+v of the older version, want no headers and no kind of time", e)
	}
	done, err := w.running(t, nil).Replay(t.Context(), "t", nil, mended())
	must(t, err)
	if done.Entries != 2 {
		t.Errorf("got %d replayed, want the old and the new one", done.Entries)
	}
}

func TestReplay_TableOfOlderVersion_GetsTheColumns(t *testing.T) {
	columns := quarantineOf(t)[:16]
	w := newWorld()
	older(t, w, columns, 2)
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: 4})
	done, err := w.running(t, nil).Replay(t.Context(), "t", nil, mended())
	must(t, err)
	if done.Entries != 1 {
		t.Errorf("got %d replayed, want 1", done.Entries)
	}
	if f, _ := w.snapshot(t, "t_quarantine").Schema().Lookup("headers"); f == nil {
		t.Error("the column headers was not added")
	}
}

// quarantineOf are the columns of a quarantine table that is made now.
func quarantineOf(t *testing.T) []arrow.Field {
	t.Helper()
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	commit(t, a, batch(lane0, -1, 3, 1))
	return w.snapshot(t, "t_quarantine").Schema().Arrow().Fields()
}
