package spec

import (
	"context"
	"errors"
	"fmt"
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
	// Filling are columns that were not compared: rows are still being read again for them, since they were added.
	Filling []string
	Alike   bool // it has no key, and rows that differ are not mended one by one: it has to be loaded again
	Veiled  bool // its key is masked, and neither are they: nobody can ask the source for a key that the table has
	*quality.Result
}

// VerifyOptions tune Verify.
type VerifyOptions struct {
	quality.Options
	Tables []string // those of the target that are compared; none: all
	// Repair has the pipeline read rows that differ again, and take the place of those that its tables have. It must run.
	Repair bool
	// RowsPerSecond is how many rows of the source are read in a second at most. Default: what the pipeline's history says.
	RowsPerSecond int64
	// Failed is told of a table that could not be compared; what it returns ends the comparison. Default: what it is told does.
	Failed func(table, source string, err error) error
}

// Verify compares the pipeline's tables with their source, one after the other, while both change; each is told of each. Errors:
// *freshet.Error; CodeUnavailable where that is no mirror of a database, CodeBehind when the pipeline does not go on.
func (p *Pipeline) Verify(ctx context.Context, o *VerifyOptions, each func(*Verified) error) (err error) {
	if err := p.verifiable(); err != nil {
		return err
	}
	from := p.postgresOptions()
	if o.RowsPerSecond > 0 && (from.History.RowsPerSecond == 0 || o.RowsPerSecond < from.History.RowsPerSecond) {
		from.History.RowsPerSecond = o.RowsPerSecond
	}
	originals, err := postgres.OpenOriginals(ctx, p.Source.Postgres.URL.Reveal(), from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, originals.Close(ctx)) }()
	hole, whole := (*lake.Hole)(nil), o.Repair && len(o.Tables) == 0 && (o.Share == 0 || o.Share >= 1)
	if whole {
		if hole, err = p.unrepaired(ctx); err != nil {
			return err
		}
	}
	left := slices.Clone(o.Tables)
	for _, of := range originals.Tables() {
		table := p.tableOf(of[0], of[1])
		if len(o.Tables) > 0 && !slices.Contains(o.Tables, table) {
			continue
		}
		left = slices.DeleteFunc(left, func(name string) bool { return name == table })
		v, err := p.verify(ctx, originals, of, table, o)
		switch {
		case err == nil:
			whole = whole && v.Mended == v.Found() && v.Undecided == 0
			err = each(v)
		case o.Failed != nil:
			whole = false
			err = o.Failed(table, of[0]+"."+of[1], err)
		}
		if err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: left[0],
			Msg: "no table of the pipeline is called so", Fix: "name tables as they are in the lake, such as bronze.public_orders"}
	}
	if whole {
		return p.mended(ctx, hole)
	}
	return nil
}

// Remedy is the command that makes the table equal its source.
func (p *Pipeline) Remedy(v *Verified) string {
	if v.Alike || v.Veiled {
		return fmt.Sprintf("freshet pipeline resync %s --table %s", p.FullName(), v.Table)
	}
	return fmt.Sprintf("freshet verify %s --table %s --repair", p.FullName(), v.Table)
}

// verifiable is an error when the tables of the pipeline are not to equal their source.
func (p *Pipeline) verifiable() error {
	why := ""
	switch t := p.Target.Delta; {
	case p.Source.Postgres == nil:
		why = "the pipeline does not read a database"
	case t.Mode != string(lake.Mirror):
		why = "its tables are not in mode mirror"
	case t.Deletes == "ignore":
		why = "deletes: ignore keeps rows that the source has no longer"
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
func (p *Pipeline) verify(ctx context.Context, originals *postgres.Originals, of [2]string, table string, o *VerifyOptions) (
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
		History: original.History(), Whole: postgres.WholeHistory, Key: original.Key(), Columns: original.Columns(),
		Others: original.Fills(), LeftOut: original.Filling})
	if err != nil {
		return nil, err
	}
	original.LeaveOut(compared.LeftOut())
	how := o.Options
	if o.Repair && len(original.Key()) > 0 && !original.Veiled() {
		how.Mend = func(ctx context.Context, wrong []quality.Difference) error {
			keys, several := mendKeys(wrong)
			if err := compared.TakeOut(ctx, several); err != nil {
				return err
			}
			return original.Mend(ctx, keys)
		}
	}
	result, err := quality.Verify(ctx, verifiedOrigin{original}, verifiedCopy{compared}, &how)
	var behind *quality.BehindError
	if errors.As(err, &behind) {
		return nil, &freshet.Error{Code: freshet.CodeBehind, Class: freshet.ClassEnvironment, Place: table, Msg: behind.Error(),
			Fix: "see that the pipeline runs and keeps up: what differs may only be under way"}
	}
	if err != nil {
		return nil, err
	}
	return &Verified{Table: table, Source: of[0] + "." + of[1], At: originals.Lane().Position(result.View.Position),
		Filling: compared.LeftOut(), Alike: len(original.Key()) == 0, Veiled: original.Veiled(), Result: result}, nil
}

// mendKeys are the keys of differences as the source takes them, and those of which the table has several rows.
func mendKeys(wrong []quality.Difference) (keys []postgres.MendKey, several [][]string) {
	for _, d := range wrong {
		keys = append(keys, postgres.MendKey{Values: d.Key, Held: d.Class != quality.Missing, Mark: d.Mark})
		if d.Class == quality.Duplicate {
			several = append(several, d.Key)
		}
	}
	return keys, several
}

// verifiedOrigin is a table of the database as quality wants it.
type verifiedOrigin struct{ *postgres.Original }

func (o verifiedOrigin) Scan(ctx context.Context, share float64, seed uint64, each func(quality.Rows) error) (quality.Coverage, error) {
	read, err := o.Original.Scan(ctx, share, seed, func(r postgres.OriginalRows) error { return each(quality.Rows(r)) })
	return quality.Coverage(read), err
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
