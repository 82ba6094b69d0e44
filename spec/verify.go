package spec

import (
	"context"
	"errors"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/quality"
	"github.com/freshet-io/freshet/store"
)

// Verified is what comparing a table of a pipeline with its source has found.
type Verified struct {
	Table  string
	Source string // schema.table
	At     string // the position that the table was at
	*quality.Result
}

// VerifyOptions tune Verify.
type VerifyOptions struct {
	quality.Options
	Tables []string // those of the target that are compared; none: all
}

// Verify compares the pipeline's tables with their source, one after the other, while both change; each is told of each. Errors:
// *freshet.Error; CodeUnavailable where that is no mirror of a database, CodeBehind when the pipeline does not go on.
func (p *Pipeline) Verify(ctx context.Context, o *VerifyOptions, each func(*Verified) error) (err error) {
	if err := p.verifiable(); err != nil {
		return err
	}
	originals, err := postgres.OpenOriginals(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, originals.Close(ctx)) }()
	left := slices.Clone(o.Tables)
	for _, of := range originals.Tables() {
		table := p.tableOf(of[0], of[1])
		if len(o.Tables) > 0 && !slices.Contains(o.Tables, table) {
			continue
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == table })
		v, err := p.verify(ctx, originals, of, table, &o.Options)
		if err != nil {
			return err
		}
		if err := each(v); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: left[0],
			Msg: "no table of the pipeline is called so", Fix: "name tables as they are in the lake, such as bronze.public_orders"}
	}
	return nil
}

// verifiable is an error when the tables of the pipeline are not to equal their source.
func (p *Pipeline) verifiable() error {
	why := ""
	switch t := p.Target.Delta; {
	case p.Source.Postgres == nil:
		why = "the pipeline does not read a database"
	case t.Mode != string(lake.Mirror):
		why = "its tables are not in mode mirror"
	case len(p.Steps) > 0:
		why = "its steps make other rows of those of the source"
	case len(t.Key) > 0:
		why = "its tables have a key of their own"
	case p.Source.Postgres.History.Load == "none":
		why = "rows from before are not loaded (history: {load: none})"
	default:
		return nil
	}
	return &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput, Place: p.File,
		Msg: "the tables cannot be compared with their source: " + why,
		Fix: "this version compares mirrors of PostgreSQL that have the keys of their source, and no steps"}
}

// verify compares one table.
func (p *Pipeline) verify(ctx context.Context, originals *postgres.Originals, of [2]string, table string, o *quality.Options) (
	*Verified, error) {
	open := func(name string) (store.Store, error) { return p.Project.OpenTable(ctx, name) }
	st, err := open(table)
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
	compared, err := lake.OpenCompared(ctx, table, open, &lake.ComparedOptions{App: p.App, Lane: originals.Lane(), Cuts: p.CutsTable(),
		History: original.History(), Whole: postgres.WholeHistory, Key: original.Key(), Columns: original.Columns()})
	if err != nil {
		return nil, err
	}
	result, err := quality.Verify(ctx, verifiedOrigin{original}, verifiedCopy{compared}, o)
	var behind *quality.BehindError
	if errors.As(err, &behind) {
		return nil, &freshet.Error{Code: freshet.CodeBehind, Class: freshet.ClassEnvironment, Place: table, Msg: behind.Error(),
			Fix: "see that the pipeline runs and keeps up: what differs may only be under way"}
	}
	if err != nil {
		return nil, err
	}
	return &Verified{Table: table, Source: of[0] + "." + of[1], At: originals.Lane().Position(result.View.Position), Result: result}, nil
}

// verifiedOrigin is a table of the database as quality wants it.
type verifiedOrigin struct{ *postgres.Original }

func (o verifiedOrigin) Scan(ctx context.Context, share float64, seed uint64, each func(quality.Rows) error) (func([]string) bool, error) {
	return o.Original.Scan(ctx, share, seed, func(r postgres.OriginalRows) error { return each(quality.Rows(r)) })
}

func (o verifiedOrigin) Look(ctx context.Context, keys [][]string, each func(quality.Rows) error) (int64, bool, error) {
	return o.Original.Look(ctx, keys, func(r postgres.OriginalRows) error { return each(quality.Rows(r)) })
}

// verifiedCopy is a table of the lake as quality wants it.
type verifiedCopy struct{ *lake.Compared }

func (c verifiedCopy) Read(ctx context.Context, least int64, wanted func(arrow.RecordBatch) ([]bool, error), each func(quality.Rows) error) (
	quality.View, error) {
	version, at, err := c.Compared.Read(ctx, least, wanted, func(rows arrow.RecordBatch, marks []uint64, times []int64) error {
		return each(quality.Rows{Batch: rows, Marks: marks, Times: times})
	})
	return quality.View{Version: version, Position: at}, err
}
