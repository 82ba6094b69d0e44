package lake

import (
	"context"
	"fmt"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// changeFeed is the property by which a table records its own changes.
const changeFeed = "delta.enableChangeDataFeed"

// recordsFeed reports whether a table that is made records its own changes.
func (o *TargetOptions) recordsFeed() bool {
	return o.ChangeFeed || strings.EqualFold(o.Properties[changeFeed], "true")
}

// feedColumn is a column that the target is to fill and that a change data feed has itself; "" when there is none. Spec:
// "Change Data Files".
func (o *TargetOptions) feedColumn() string {
	for _, f := range o.fills() {
		if f.name == ChangeTypeColumn || f.name == CommitVersionColumn {
			return f.name
		}
	}
	return ""
}

// checkFeed refuses to fill columns that the table's change data feed has itself.
func (t *table) checkFeed(snap *delta.Snapshot) error {
	name := t.opts.feedColumn()
	if name == "" || !strings.EqualFold(snap.Property(changeFeed), "true") {
		return nil
	}
	return &freshet.Error{Code: freshet.CodeFilledColumn, Class: freshet.ClassInput, Place: t.name,
		Msg: fmt.Sprintf("column %q: the table's change data feed has one of this name (%s is true), and the target is to "+
			"fill it", name, changeFeed),
		Fix: "leave the column out of change_columns, or set the property to false"}
}

// bringFeed has a table that exists record its own changes from here on, if it is to and does not.
func (t *table) bringFeed(ctx context.Context, snap *delta.Snapshot) (*delta.Snapshot, error) {
	if !t.opts.ChangeFeed || strings.EqualFold(snap.Property(changeFeed), "true") {
		return snap, nil
	}
	_, err := snap.Table().SetProperties(ctx, map[string]string{changeFeed: "true"}, &delta.AlterOptions{Upgrade: true})
	if err != nil {
		return nil, explain(t.name, err)
	}
	return t.look(ctx)
}
