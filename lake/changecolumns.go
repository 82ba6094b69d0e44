package lake

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// The change columns tell, in each row, of the change that made it what it is. They are made of the batch's lane, seqs and
// stamps alone: they never begin anew, and are equal on every replay.
const (
	PositionColumn      = "_position"            // string: where in the source, for people: "orders[3]@1042"
	SourceTxColumn      = "_source_tx"           // string: the source's transaction; null where it does not say
	CommitVersionColumn = "_commit_version"      // long: the seq, which orders the changes of one lane
	OrdinalColumn       = "_ordinal"             // long: the place within the transaction, or else within the record, from 0 on
	CommittedAtColumn   = "_committed_at"        // timestamp: of the source's commit, or of the record; null where neither says
	ChangeTypeColumn    = delta.ChangeTypeColumn // string: Delta's four words; in tables of changes only
	unsentColumn        = "_unsent"              // array<string>: columns that an update did not send; null: it sent all
)

// ChangeColumns are the change columns that every table can have.
func ChangeColumns() []string {
	return []string{PositionColumn, SourceTxColumn, CommitVersionColumn, OrdinalColumn, CommittedAtColumn}
}

// changeFill is the change column of this name.
func changeFill(name string) (fill, bool) {
	text, long := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	switch name {
	case PositionColumn:
		return fill{name, text, fillPosition}, true
	case SourceTxColumn:
		return fill{name, text, fillSourceTx}, true
	case CommitVersionColumn:
		return fill{name, long, fillCommitVersion}, true
	case OrdinalColumn:
		return fill{name, long, fillOrdinal}, true
	case CommittedAtColumn:
		return fill{name, arrow.FixedWidthTypes.Timestamp_us, fillCommittedAt}, true
	case ChangeTypeColumn:
		return fill{name, text, fillChangeType}, true
	case unsentColumn:
		return fill{name, arrow.ListOf(text), fillUnsent}, true
	}
	return fill{}, false
}

func fillPosition(b array.Builder, c cause) {
	lane, seq := c.of.place(c.row)
	b.(*array.StringBuilder).Append(lane.Position(seq))
}

func fillSourceTx(b array.Builder, c cause) {
	tx := c.stamp().Tx
	if tx == "" {
		b.AppendNull()
		return
	}
	b.(*array.StringBuilder).Append(tx)
}

func fillCommitVersion(b array.Builder, c cause) {
	_, seq := c.of.place(c.row)
	b.(*array.Int64Builder).Append(seq)
}

func fillOrdinal(b array.Builder, c cause) {
	b.(*array.Int64Builder).Append(c.ordinal())
}

func fillCommittedAt(b array.Builder, c cause) {
	at := c.committed()
	if at == 0 {
		b.AppendNull()
		return
	}
	b.(*array.TimestampBuilder).Append(arrow.Timestamp(at))
}

func fillChangeType(b array.Builder, c cause) {
	b.(*array.StringBuilder).Append(c.kind.String())
}

// fillUnsent names the columns of an update that the source did not send. Of other changes it says nothing: a delete and an
// old image need no more than the key.
func fillUnsent(b array.Builder, c cause) {
	update := c.kind == freshet.UpdatePostimage || c.kind == freshet.Insert
	if !update || !c.of.Unsent.Any(c.row) {
		b.AppendNull()
		return
	}
	list := b.(*array.ListBuilder)
	list.Append(true)
	for i, name := range c.of.names {
		if c.of.Unsent.Has(c.row, i) {
			list.ValueBuilder().(*array.StringBuilder).Append(name)
		}
	}
}

// checkChangeColumns finds change columns that there are not, or not in this mode.
func (o *TargetOptions) checkChangeColumns(fault func(format string, args ...any)) {
	seen := map[string]bool{}
	for _, name := range o.ChangeColumns {
		known := slices.Contains(ChangeColumns(), name)
		switch {
		case seen[name]:
			fault("change_columns: found %q twice, wanted it once", name)
		case name == ChangeTypeColumn && o.Mode.keyed():
			fault("change_columns: %q is for tables of changes (mode append): here a row is what it is now", name)
		case !known && name != ChangeTypeColumn && name != unsentColumn:
			fault("change_columns: found %q, wanted some of %s", name, strings.Join(ChangeColumns(), ", "))
		}
		seen[name] = true
	}
	if name := o.feedColumn(); name != "" && o.recordsFeed() {
		fault("change_columns: found %q, which the table's change data feed has of its own", name)
	}
}
