package lake

import (
	"fmt"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
)

// contender is a row that is not taken since another one of its key and sequence says something else.
type contender struct {
	row   int32
	other int32 // that one; noRow: the one that the table has
}

// contenders are the last rows of several lanes, which do not all say the same, each with one that it differs from.
func (c *collapser) contenders(finals []int32) []contender {
	all := make([]contender, len(finals))
	for i, row := range finals {
		differs := slices.IndexFunc(finals, func(other int32) bool { return !c.same(row, other) })
		all[i] = contender{row, finals[differs]}
	}
	return all
}

// rejectTie makes a reject of a row that contends, which names its key and sequence and the row that it contends with.
func (u *upsert) rejectTie(c contender) {
	other := "which the table has"
	if c.other != noRow {
		other = "which came as " + u.rows.lane(c.other).Position(u.rows.seq(c.other))
	}
	names := slices.Concat(u.t.key(), u.t.opts.Key.SequenceBy)
	values := make([]string, len(names))
	for i, name := range names {
		column, row := u.rows.at(columnNamed(u.rows.schema, name), c.row)
		values[i] = fmt.Sprintf("%s %.100s", name, column.ValueStr(int(row)))
	}
	u.reject(c.row, freshet.CodeSequenceTie, fmt.Sprintf("%s: found another row of this key and sequence, %s, that says "+
		"something else; wanted one that orders them", strings.Join(values, ", "), other))
}
