package postgres

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// ending is a Downstream in which that is durable which the test says. It ends the context of whoever asks
// it for the n-th time.
type ending struct {
	schemas  map[string]*arrow.Schema
	progress map[string]freshet.Progress
	marks    map[string][]byte
	asks     int
	at       int
	end      context.CancelFunc
}

func (d *ending) ask(ctx context.Context) error {
	if d.asks++; d.asks == d.at {
		d.end()
	}
	return ctx.Err()
}

func (d *ending) Schema(ctx context.Context, table string) (*arrow.Schema, error) {
	return d.schemas[table], d.ask(ctx)
}

func (d *ending) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	if err := d.ask(ctx); err != nil {
		return err
	}
	have := d.schemas[table]
	if have == nil {
		d.schemas[table] = schema
		return nil
	}
	fields := have.Fields()
	for _, f := range schema.Fields() {
		if indexOf(have, f.Name) < 0 {
			fields = append(fields, f)
		}
	}
	d.schemas[table] = arrow.NewSchema(fields, nil)
	return nil
}

func (d *ending) Widen(ctx context.Context, table string, schema *arrow.Schema) error {
	if err := d.ask(ctx); err != nil || d.schemas[table] == nil {
		return err
	}
	fields := d.schemas[table].Fields()
	for i, f := range fields {
		if k := indexOf(schema, f.Name); k >= 0 {
			fields[i].Type = schema.Field(k).Type
		}
	}
	d.schemas[table] = arrow.NewSchema(fields, nil)
	return nil
}

func (d *ending) Hold(_ context.Context, _ string, cause error) (bool, error) { return false, cause }

func (d *ending) Resume(ctx context.Context, table string, _ []freshet.Lane) (freshet.Progress, error) {
	p := freshet.Progress{}
	maps.Copy(p, d.progress[table])
	return p, d.ask(ctx)
}

func (d *ending) Start(ctx context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	if err := d.ask(ctx); err != nil {
		return nil, err
	}
	if d.progress[table] == nil {
		d.progress[table] = freshet.Progress{}
	}
	for lane, seq := range starts {
		if _, known := d.progress[table][lane]; !known {
			d.progress[table][lane] = seq
		}
	}
	return maps.Clone(d.progress[table]), nil
}

func (d *ending) Since(context.Context, string) (time.Time, bool, error) {
	return time.Time{}, false, nil
}

func (d *ending) Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error) {
	if err := d.ask(ctx); err != nil {
		return nil, err
	}
	if kept, is := d.marks[table+"/"+name]; is || mark == nil {
		return kept, nil
	}
	d.marks[table+"/"+name] = mark
	return mark, nil
}

func (d *ending) Unmark(context.Context, string, string, string) error { return nil }

func (d *ending) Release(context.Context, string, []freshet.Lane) error { return nil }

// A call of Next is told to end in the midst of a transaction since a table is to be read again, whatever of others waits then: all of it comes
// once, and the table's rows come from the beginning.
func TestCaptures_RewoundAtEveryQuestion_EachChangeOnce(t *testing.T) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	payloads := captured(t, filepath.Join(root, "cdc", "pg", "pgoutput", "ddl.pg15.ndjson"), "v1")
	read := func(again string, at int) (rows map[string]int64, asks int) {
		c := &capture{payloads: payloads, version: "13.4", random: rand.New(rand.NewPCG(1, 0))}
		_, m := c.pipe(t)
		s := m.source(t, true)
		d := &ending{schemas: map[string]*arrow.Schema{}, progress: map[string]freshet.Progress{}, marks: map[string][]byte{}}
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		if err := s.Open(ctx, d); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		d.asks, d.at = 0, at
		rows = map[string]int64{}
		for {
			hurry, end := context.WithCancel(ctx)
			d.end = end
			b, err := s.Next(hurry)
			told := hurry.Err() != nil && ctx.Err() == nil
			end()
			switch {
			case errors.Is(err, io.EOF):
				return rows, d.asks
			case err != nil && !told:
				t.Fatalf("told to end at question %d: %v", at, err)
			case err == nil:
				rows[b.Table] += int64(b.NumRows()) + int64(len(b.Rejects))
				if b.Table != again {
					d.progress[b.Table][b.Lane] = b.Last
				}
				b.Release()
			}
			if told {
				rows[again] = 0
				if err := s.Rewind(ctx, again); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want, asks := read("public_d", 0)
	if asks < 20 || len(want) < 3 {
		t.Fatalf("got %d questions, and rows of %d tables, want more of both", asks, len(want))
	}
	for at := 1; at <= asks; at++ {
		if got, _ := read("public_d", at); !maps.Equal(got, want) {
			t.Errorf("told to end at question %d: got rows %v, want %v", at, got, want)
		}
	}
}
