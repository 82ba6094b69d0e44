package expr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// node is a bound subexpression. Nodes do not change once bound and hold nothing of a run.
type node interface {
	typ() arrow.DataType
	nullable() bool
	// eval computes the value for every row of the batch. Rows that are not active may hold anything and must
	// not fault: they belong to a branch that is not taken.
	eval(r *run, active bitset) *vector
}

// run is one evaluation of an expression over one batch.
type run struct {
	columns []arrow.Array // by column of the schema, dense; nil where the expression reads none
	rows    int
	micros  int64     // current_timestamp
	shared  []*vector // by slot of sharedNode

	faulty bitset // rows that failed; nil when none did
	faults []RowError
	err    error // the evaluation as a whole failed
}

// errTooLarge says that a column of strings would exceed what Arrow's 32-bit offsets reach.
var errTooLarge = errors.New("the strings of one batch exceed 2 GiB; use smaller batches")

// fault marks the row as failed. The first fault of a row counts.
func (r *run) fault(row int, at place, format string, args ...any) {
	if r.faulty == nil {
		r.faulty = newBits(r.rows)
	}
	if r.faulty.has(row) {
		return
	}
	r.faulty.set(row)
	err := at.fault(RowFault, fmt.Sprintf(format, args...))
	r.faults = append(r.faults, RowError{Row: row, Err: err})
}

// rowErrors returns the faults by row, nil when there are none.
func (r *run) rowErrors() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortFunc(r.faults, func(a, b RowError) int { return cmp.Compare(a.Row, b.Row) })
	return &RowErrors{Rows: r.faults}
}

// columnNode is a top-level column.
type columnNode struct {
	index int
	field arrow.Field
}

func (n *columnNode) typ() arrow.DataType { return n.field.Type }
func (n *columnNode) nullable() bool      { return n.field.Nullable }

func (n *columnNode) eval(r *run, _ bitset) *vector { return load(r.columns[n.index]) }

// constNode is a literal, or what literals alone amount to.
type constNode struct {
	at     place
	value  *vector // of one row
	text   bool    // a string literal as written, which takes the type that its place asks for
	number bool    // a number as written, which takes the type of what it stands beside, if it fits
	strict bool    // but this one does not
}

func (n *constNode) typ() arrow.DataType { return n.value.t }
func (n *constNode) nullable() bool      { return n.isNull() }
func (n *constNode) isNull() bool        { return !n.value.valid.has(0) }

func (n *constNode) eval(r *run, _ bitset) *vector {
	if n.isNull() {
		return nullVector(n.value.t, r.rows)
	}
	v := *n.value
	v.rows, v.valid = r.rows, nil
	switch kindOf(v.t) {
	case kindBool:
		v.bools = newBits(r.rows)
		if n.value.bools.has(0) {
			v.bools = onesBits(r.rows)
		}
	default:
		v.mask = 0
	}
	return &v
}

// clockNode is current_timestamp or current_date.
type clockNode struct {
	t arrow.DataType
}

func (n *clockNode) typ() arrow.DataType { return n.t }
func (n *clockNode) nullable() bool      { return false }

func (n *clockNode) eval(r *run, _ bitset) *vector {
	v := &vector{t: n.t, rows: r.rows, ints: []int64{r.micros}}
	if kindOf(n.t) == kindDate {
		v.ints[0] = floorDiv(r.micros, microsPerDay)
	}
	return v
}

// sharedNode is a subexpression that several others use: it runs once. The first to use it has all the rows
// active that any later one has.
type sharedNode struct {
	node
	slot int
}

func (n *sharedNode) eval(r *run, active bitset) *vector {
	if r.shared[n.slot] == nil {
		r.shared[n.slot] = n.node.eval(r, active)
	}
	return r.shared[n.slot]
}

// mapNode applies a function of rows whose result is null where any argument is null.
type mapNode struct {
	t     arrow.DataType
	at    place
	args  []node
	maybe bool // may be null where no argument is
	// rising says that the result never falls while the only argument that is no constant rises, so that
	// bounds of the argument give bounds of the result.
	rising bool
	run    func(k *kernel) // fills k.out
}

func (n *mapNode) typ() arrow.DataType { return n.t }
func (n *mapNode) nullable() bool      { return n.maybe || anyNullable(n.args) }

func (n *mapNode) eval(r *run, active bitset) *vector {
	k := &kernel{r: r, at: n.at, args: make([]*vector, len(n.args))}
	var valid bitset
	for i, a := range n.args {
		v := a.eval(r, active)
		k.args[i] = v
		valid = andBits(valid, v.valid)
	}
	k.live = andBits(valid, active)
	if k.live.none(r.rows) {
		return nullVector(n.t, r.rows)
	}
	k.out = &vector{t: n.t, rows: r.rows, mask: -1, valid: valid, owned: true}
	n.run(k)
	return k.out
}

// kernel is one call of a mapNode: its arguments, the rows to compute, and the result.
type kernel struct {
	r    *run
	at   place
	args []*vector
	live bitset // rows that are active and have no null argument; nil: all
	out  *vector
	own  bool // out.valid is the kernel's to write
}

// fault marks a row as failed.
func (k *kernel) fault(row int, format string, args ...any) {
	k.r.fault(row, k.at, format, args...)
}

// borrow makes the result's values those of another vector.
func (k *kernel) borrow(v *vector) {
	k.out.ints, k.out.offsets, k.out.data = v.ints, v.offsets, v.data
	k.out.mask, k.out.owned = v.mask, v.owned
}

// null makes the row's result null.
func (k *kernel) null(row int) {
	if !k.own {
		valid := onesBits(k.r.rows)
		if k.out.valid != nil {
			copy(valid, k.out.valid)
		}
		k.out.valid, k.own = valid, true
	}
	k.out.valid.clear(row)
}

// result says what a row function came to.
type result uint8

const (
	isValue result = iota
	isNull
	isFault // the function has told the kernel
)

// mapInts makes the run of a mapNode out of a function of one row.
func mapInts(f func(k *kernel, i int) (int64, result)) func(*kernel) {
	return func(k *kernel) {
		k.out.ints = make([]int64, k.r.rows)
		k.live.each(k.r.rows, func(i int) {
			v, is := f(k, i)
			k.out.ints[i] = v
			if is == isNull {
				k.null(i)
			}
		})
	}
}

func mapFloats(f func(k *kernel, i int) (float64, result)) func(*kernel) {
	return func(k *kernel) {
		k.out.floats = make([]float64, k.r.rows)
		k.live.each(k.r.rows, func(i int) {
			v, is := f(k, i)
			k.out.floats[i] = v
			if is == isNull {
				k.null(i)
			}
		})
	}
}

func mapBools(f func(k *kernel, i int) (bool, result)) func(*kernel) {
	return func(k *kernel) {
		k.out.bools = newBits(k.r.rows)
		k.live.each(k.r.rows, func(i int) {
			v, is := f(k, i)
			if v {
				k.out.bools.set(i)
			}
			if is == isNull {
				k.null(i)
			}
		})
	}
}

// maxColumnBytes bounds the strings of one result column, maxValueBytes those of one row: an expression must
// not cost more memory than the batch it runs on by orders of magnitude.
const (
	maxColumnBytes = 512 << 20
	maxValueBytes  = 64 << 20
)

// mapBytes is for results that are strings or binary: f appends the row's bytes to dst.
func mapBytes(f func(k *kernel, i int, dst []byte) ([]byte, result)) func(*kernel) {
	return func(k *kernel) {
		rows := k.r.rows
		offsets := make([]int32, rows+1)
		data := make([]byte, 0, guessBytes(k))
		next := 0
		k.live.each(rows, func(i int) {
			for ; next < i; next++ {
				offsets[next+1] = int32(len(data))
			}
			before := len(data)
			grown, is := f(k, i, data)
			switch {
			case is == isNull:
				k.null(i)
			case is == isFault:
			case len(grown)-before > maxValueBytes:
				k.fault(i, "the result has %d bytes, more than %d", len(grown)-before, maxValueBytes)
			case len(grown) > maxColumnBytes:
				k.fault(i, "the results of one batch have more than %d bytes", maxColumnBytes)
			default:
				data = grown
			}
			if len(data) > before && is != isValue {
				data = data[:before]
			}
			offsets[i+1] = int32(len(data))
			next = i + 1
		})
		for ; next < rows; next++ {
			offsets[next+1] = int32(len(data))
		}
		k.out.offsets, k.out.data = offsets, data
	}
}

// guessBytes is room for the result of a function that changes its first argument's strings little.
func guessBytes(k *kernel) int {
	if v := k.args[0]; v.offsets != nil && v.mask == -1 {
		return int(v.offsets[k.r.rows] - v.offsets[0])
	}
	return k.r.rows * 8
}

func anyNullable(nodes []node) bool {
	return slices.ContainsFunc(nodes, func(n node) bool { return n.nullable() })
}

func allConst(nodes []node) bool {
	for _, n := range nodes {
		if _, ok := n.(*constNode); !ok {
			return false
		}
	}
	return true
}
