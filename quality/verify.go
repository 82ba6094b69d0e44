package quality

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Origin is a table where its rows come from. One goroutine uses it.
type Origin interface {
	// Key are the columns of the key, which no two rows share. None: rows are told apart by all columns, and several may be alike; then
	// a key of Look stands for rows that are alike, and nobody but Verify can tell which.
	Key() []string
	// Columns are the columns that are compared, those of the key among them.
	Columns() []string
	// Scan hands over the rows, in parts that may be of different moments, in the types and values that the table would have. share
	// is how many of them are wanted: of stretches of the key's order that it chooses, by the seed, where it can.
	Scan(ctx context.Context, share float64, seed uint64, each func(Rows) error) (Coverage, error)
	// Look hands over the rows of these keys as they are at one moment, or all rows, with marks: two rows of a key with one mark are the
	// same, and were so all the time between. high is a seq that everything ends at or before that the moment shows. settled
	// tells that it shows all that the log told of before Look was called.
	Look(ctx context.Context, keys [][]string, each func(Rows) error) (high int64, settled bool, err error)
}

// Coverage is what of a table was handed over.
type Coverage struct {
	Ranges int64                   // stretches of the key's order
	Has    func(key []string) bool // whether a key lies in one; nil: all rows were handed over
}

// Table is the table that is compared. One goroutine uses it.
type Table interface {
	// Read hands over the rows whose keys are wanted, of the newest version that holds everything up to least, for which it waits as
	// long as ctx lasts. Rows have marks: two rows of a key with one mark are the same, and no change of the source's was
	// applied to it between. wanted is asked with the columns of the key; nil: all rows are.
	Read(ctx context.Context, least int64, wanted func(keys arrow.RecordBatch) ([]bool, error), each func(Rows) error) (View, error)
}

// View is a version of a table.
type View struct {
	Version  int64
	Position int64 // it holds everything up to this seq of the log
}

// Rows are rows of either side, lent for the call.
type Rows struct {
	Batch arrow.RecordBatch
	Marks []uint64 // one a row; nil where nobody asked
	// Times say when the row became what it is, in microseconds since 1970, one a row; 0: unknown. nil: all are.
	Times []int64
	// Rejected are rows that the source has and the table cannot take, one a row: they are in quarantine, and only their keys count.
	// nil: none is.
	Rejected []bool
}

// Class is what is wrong with a row.
type Class string

// The classes of differences.
const (
	Missing   Class = "missing"   // the source has the row, the table has not: an insert did not arrive
	Extra     Class = "extra"     // the table has the row, the source has not: a delete did not arrive
	Stale     Class = "stale"     // the source has changed the row since the table's was written: an update did not arrive
	Different Class = "different" // the values are others
	Duplicate Class = "duplicate" // the table has several rows of the key
)

// Classes are all classes of differences.
func Classes() []Class { return []Class{Missing, Extra, Stale, Different, Duplicate} }

// Difference is a row that is wrong in the table, or, where there is no key, rows that are alike.
type Difference struct {
	Class   Class
	Rows    int64    // how many there are too many, or are missing; 1 where there is a key
	Key     []string // as the source writes the values; all values of the row where there is no key
	Columns []string // that differ, for Stale and Different
	Mark    uint64   // of the source's row when it was last looked at; 0: there was none, or none was looked at
}

// Options tune Verify. The zero value of each field means its default.
type Options struct {
	// Share is how many of the keys are compared: 0.05 is 5 %. Default: all.
	Share float64
	// Seed chooses which. Default: at random.
	Seed uint64
	// Wait is for how long the table may not come to where the source was read, and for how long keys are looked at that change
	// all the time. Default 1 min.
	Wait time.Duration
	// List is how many differences are listed; the others are counted until there are as many of them again. Default 1000.
	List int
	// Dir is the folder for temporary files. Default: the system's.
	Dir string
	// Mend has the source send the rows of wrong keys to the table again, so that they become what they are in the source; it may
	// return before that is done. Which it has become is found by looking at them again, for Wait. Default: nothing is mended.
	Mend func(ctx context.Context, wrong []Difference) error
	// Progress is told how many rows were read, of both sides. Default: nobody is.
	Progress func(rows int64)
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Share <= 0 || d.Share > 1 {
		d.Share = 1
	}
	if d.Seed == 0 {
		d.Seed = rand.Uint64()
	}
	if d.Wait <= 0 {
		d.Wait = time.Minute
	}
	if d.List <= 0 {
		d.List = 1000
	}
	if d.Progress == nil {
		d.Progress = func(int64) {}
	}
	return d
}

// Result is what a comparison has found.
type Result struct {
	View        View // of the table, when it was read
	SourceRows  int64
	TableRows   int64
	SourceBytes int64 // of the values that were compared, as they are in memory
	Ranges      int64 // stretches of the key's order that were read
	Counts      map[Class]int64
	Differences []Difference
	// Mended is how many of the differences are none any more, since they were mended.
	Mended int64
	// More says that the rest was not looked at, since there were too many differences.
	More bool
	// Rechecked is how many keys differed at first, since the sides were read at different moments.
	Rechecked int64
	// Undecided is how many of these changed all the time: nothing can be said of them.
	Undecided int64
	// Rejected is how many rows of the source the table cannot take: they are in quarantine.
	Rejected int64
	Took     time.Duration
}

// Equal reports whether no difference was found.
func (r *Result) Equal() bool { return len(r.Counts) == 0 }

// Found is how many differences were found, of all classes.
func (r *Result) Found() (n int64) {
	for _, of := range r.Counts {
		n += of
	}
	return n
}

// Verify compares a table with its source. A difference is not an error. Errors: those of both sides.
func Verify(ctx context.Context, origin Origin, table Table, opts *Options) (*Result, error) {
	v := &verifier{o: opts.withDefaults(), origin: origin, table: table, result: &Result{Counts: map[Class]int64{}}}
	began := time.Now()
	v.rows, v.ledger = newReader(origin), newLedger(v.o.Dir, v.o.Share)
	defer v.ledger.close()
	if err := v.run(ctx); err != nil {
		return nil, err
	}
	v.result.Took = time.Since(began)
	return v.result, nil
}

// verifier is one comparison.
type verifier struct {
	o      Options
	origin Origin
	table  Table
	rows   *reader
	ledger *ledger
	result *Result
	wrong  []Difference // that are to be mended
}

// run reads both sides, and looks again at the keys that differ.
func (v *verifier) run(ctx context.Context) error {
	read, err := v.origin.Scan(ctx, v.o.Share, v.o.Seed, func(rows Rows) error {
		v.result.SourceRows += rows.Batch.NumRows()
		return v.note(rows, &v.ledger.source)
	})
	if err != nil {
		return err
	}
	v.result.Ranges = read.Ranges
	var wanted func(arrow.RecordBatch) ([]bool, error)
	if read.Has != nil {
		wanted = func(keys arrow.RecordBatch) ([]bool, error) { return v.rows.choose(keys, read.Has) }
		v.ledger.share = 1
	}
	v.result.View, err = v.table.Read(ctx, 0, wanted, func(rows Rows) error {
		v.result.TableRows += rows.Batch.NumRows()
		return v.note(rows, &v.ledger.table)
	})
	if err != nil {
		return err
	}
	return v.compare(ctx)
}

// compare looks again at the keys whose rows differ in the ledger.
func (v *verifier) compare(ctx context.Context) error {
	block := map[string]*candidate{}
	for part := range ledgerParts {
		err := v.ledger.differing(part, func(key string) error {
			block[key] = &candidate{}
			if len(block) < blockKeys || v.result.More {
				return nil
			}
			return v.resolve(ctx, block)
		})
		if err != nil || v.result.More {
			return err
		}
	}
	return v.resolve(ctx, block)
}

// resolve finds out which of the keys are wrong, has them mended, and forgets them.
func (v *verifier) resolve(ctx context.Context, keys map[string]*candidate) error {
	if err := v.settle(ctx, keys); err != nil {
		return err
	}
	clear(keys)
	return v.mend(ctx)
}

// blockKeys is at how many keys one looks again at once.
const blockKeys = 20_000

// note takes rows of one side into the ledger.
func (v *verifier) note(rows Rows, into *ledgerSide) error {
	v.o.Progress(rows.Batch.NumRows())
	if err := v.rows.bind(rows.Batch); err != nil {
		return err
	}
	for row := range int(rows.Batch.NumRows()) {
		if rows.Rejected != nil && rows.Rejected[row] {
			continue
		}
		key, whole, err := v.rows.keyOf(row)
		if err != nil {
			return err
		}
		if !whole { // no row of the source is so
			v.found(Difference{Class: Extra, Rows: 1, Key: key})
			continue
		}
		hash, size, err := v.rows.hash(row)
		if err != nil {
			return err
		}
		if into == &v.ledger.source {
			v.result.SourceBytes += int64(size)
		}
		if err := v.ledger.add(into, joinKey(key), hash); err != nil {
			return err
		}
	}
	return nil
}

// found takes note of a difference.
func (v *verifier) found(d Difference) {
	r := v.result
	r.Counts[d.Class] += d.Rows
	if len(r.Differences) < v.o.List {
		r.Differences = append(r.Differences, d)
	}
	r.More = v.o.Mend == nil && r.Found() >= 2*int64(v.o.List)
}

// columnError says that a column that is to be compared is not there.
func columnError(name string) error {
	return fmt.Errorf("found no column %q among the rows, wanted it for the comparison", name)
}

// BehindError says that keys differ, and that the table did not come to where the source was read, so that nothing is proven.
type BehindError struct {
	Keys int
	Wait time.Duration
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("%d keys differ, and the table did not come to where the source was read within %s", e.Keys, e.Wait)
}
