package spec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
)

// TraceOptions say what is looked for.
type TraceOptions struct {
	Table    string   // as it is in the lake
	Key      []string // the values of the key's columns, in their order
	Versions int64    // how many versions of the table, and of its change log, are looked at, back from the newest
}

// Traced is the life of a key, as far as it is known where it came from and where it went.
type Traced struct {
	Table, Source string // in the lake; in the database, "" where the source is none
	Key           []lake.TracedValue
	Original      lake.TracedRow // in the database now; nil: there is none, or it was not asked
	Asked         bool           // the database was
	Position      string         // of its log, behind what it was asked
	Trail         *lake.Trail    // of the table
	Log           *lake.Trail    // its change log: its rows are the changes; nil: there is none
	Quarantined   []*lake.Entry  // entries whose bytes name all values of the key, the newest last
}

// Trace follows a key: its row in the database, what the table's change log and versions tell of it, its present row, and quarantine.
// Errors: *freshet.Error.
func (p *Pipeline) Trace(ctx context.Context, o *TraceOptions) (*Traced, error) {
	t := &Traced{Table: o.Table}
	columns, err := p.traceOrigin(ctx, o, t)
	if err != nil {
		return nil, err
	}
	if p.Source.Postgres != nil && len(columns) == 0 {
		return nil, &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: o.Table,
			Msg: "the table has no key: nothing says which of its rows was which before", Fix: "query its change log"}
	}
	if len(columns) != len(o.Key) {
		return nil, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: "key",
			Msg: fmt.Sprintf("found %d values, wanted those of the columns %s", len(o.Key), strings.Join(columns, ", ")),
			Fix: "give one value for each column of the key, in this order"}
	}
	here := p.keyHere(o.Table, columns, o.Key)
	for i, c := range columns {
		t.Key = append(t.Key, lake.TracedValue{Column: c, Value: &here[i]})
	}
	if t.Trail, err = p.trail(ctx, o.Table, &lake.TrailOptions{App: p.App, Key: t.Key, Versions: o.Versions}); err != nil {
		return nil, err
	}
	if p.Target.Delta.hasLog() {
		t.Log, err = p.trail(ctx, p.changeLogOf(o.Table), &lake.TrailOptions{App: p.App, Key: t.Key})
		var none *freshet.Error
		if errors.As(err, &none) && none.Code == freshet.CodeNoTable {
			err = nil
		}
		if err != nil {
			return nil, err
		}
		if t.Log != nil {
			sortChanges(t.Log.Rows)
		}
	}
	return t, p.traceQuarantine(ctx, o, t)
}

// sortChanges puts rows of a change log in the order of the source.
func sortChanges(rows []lake.TracedRow) {
	at := func(row lake.TracedRow, column string) (n int64) {
		for _, v := range row {
			if v.Column == column && v.Value != nil {
				n, _ = strconv.ParseInt(*v.Value, 10, 64)
			}
		}
		return n
	}
	slices.SortStableFunc(rows, func(a, b lake.TracedRow) int {
		return cmp.Or(cmp.Compare(at(a, lake.CommitVersionColumn), at(b, lake.CommitVersionColumn)),
			cmp.Compare(at(a, lake.OrdinalColumn), at(b, lake.OrdinalColumn)))
	})
}

func (p *Pipeline) trail(ctx context.Context, table string, o *lake.TrailOptions) (*lake.Trail, error) {
	st, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return nil, err
	}
	return lake.Trace(ctx, table, st, o)
}

// traceOrigin asks the database for the row, and returns the columns of the key: those of the file, or else of the database.
func (p *Pipeline) traceOrigin(ctx context.Context, o *TraceOptions, t *Traced) (columns []string, err error) {
	columns = texts(p.Target.Delta.Key)
	if of := p.keyOf(); of != nil {
		columns = of(o.Table)
	}
	if p.Source.Postgres == nil {
		return columns, nil
	}
	originals, err := postgres.OpenOriginals(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, originals.Close(ctx)) }()
	for _, of := range originals.Tables() {
		if p.tableOf(of[0], of[1]) != o.Table {
			continue
		}
		st, err := p.Project.OpenTable(ctx, o.Table)
		if err != nil {
			return nil, err
		}
		schema, err := lake.ComparedSchema(ctx, st)
		if err != nil {
			return nil, err
		}
		original, err := originals.Table(ctx, of[0], of[1], schema)
		if err != nil {
			return nil, err
		}
		t.Source = of[0] + "." + of[1]
		if len(columns) == 0 {
			columns = original.Key()
		}
		if len(p.Target.Delta.Key) > 0 || len(columns) != len(o.Key) {
			return columns, nil
		}
		t.Asked = true
		high, err := original.Find(ctx, o.Key, func(rows postgres.OriginalRows) error {
			t.Original = lake.TracedRowOf(rows.Batch, 0)
			return nil
		})
		t.Position = originals.Lane().Position(high)
		return columns, err
	}
	return nil, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: o.Table,
		Msg: "no table of the pipeline is called so", Fix: "name tables as they are in the lake, such as bronze.public_orders"}
}

// traceQuarantine looks for records in quarantine that have all values of the key.
func (p *Pipeline) traceQuarantine(ctx context.Context, o *TraceOptions, t *Traced) error {
	st, err := p.Project.OpenTable(ctx, p.quarantineOf(o.Table))
	if err != nil {
		return err
	}
	q, err := lake.OpenQuarantine(ctx, st, "")
	var none *freshet.Error
	if errors.As(err, &none) && none.Code == freshet.CodeNoTable {
		return nil
	}
	if err != nil {
		return err
	}
	for e, err := range q.Entries(ctx, &lake.Filter{App: p.App, Table: o.Table, Closed: true}) {
		if err != nil {
			return err
		}
		opened, err := p.Unsealed(e)
		if err != nil {
			continue // by a salt that the file does not have any more: nobody can say
		}
		var here []string // rows of a database are in quarantine with hashes
		for _, k := range t.Key {
			here = append(here, *k.Value)
		}
		if text := string(opened.Raw) + " " + string(opened.Key); namesAll(text, o.Key) || namesAll(text, here) {
			t.Quarantined = append(t.Quarantined, e)
		}
	}
	return nil
}

// namesAll reports whether the text has each of the values, as a word of its own.
func namesAll(text string, values []string) bool {
	for _, v := range values {
		if !hasWord(text, v) {
			return false
		}
	}
	return true
}

func hasWord(text, word string) bool {
	part := func(at int) bool {
		if at < 0 || at >= len(text) {
			return false
		}
		c := text[at]
		return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
	}
	for from := 0; word != ""; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		if at := from + i; !part(at-1) && !part(at+len(word)) {
			return true
		}
		from += i + 1
	}
	return false
}
