package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// AlterOptions tune the changes of a table. The zero value of each field means its default.
type AlterOptions struct {
	// Deadline bounds how long the change is tried against other writers and an unavailable store. Default 5 minutes.
	Deadline time.Duration
	// Upgrade allows that the table gets the features that the change needs: readers and writers that do not know
	// them can then no longer use it. Without it such a change is ErrUpgrade, which names the features.
	Upgrade bool
	// UserMetadata goes into commitInfo.userMetadata.
	UserMetadata string
	// NoCheckpoint leaves out the checkpoint that DropFeature writes where readers must know the feature. Whoever sets it
	// has to write one.
	NoCheckpoint bool
}

// alteration is a change of a table's metadata while it is made: on one version, and on a newer one if that lost the
// race.
type alteration struct {
	ctx    context.Context
	snap   *Snapshot
	meta   *Metadata // to be changed
	proto  *Protocol // to be changed
	schema *Schema   // to be changed
	asked  []string  // features that were asked for by name
	tx     *Transaction

	operation string
	params    map[string]string
	written   *Writer // of files that the change has written; nil: none
}

// alter makes a change again and again until it lands on the version that it was made on. When change leaves the table
// as it is, nothing is committed. Errors: as Transaction.Commit.
func (t *Table) alter(ctx context.Context, what string, opts *AlterOptions, change func(*alteration) error,
) (CommitResult, error) {
	o := AlterOptions{}
	if opts != nil {
		o = *opts
	}
	if o.Deadline <= 0 {
		o.Deadline = 5 * time.Minute
	}
	deadline := time.Now().Add(o.Deadline)
	for {
		result, err := t.alterOnce(ctx, &o, deadline, change)
		switch {
		case err == nil:
			return result, nil
		case !errors.Is(err, ErrConflict) || time.Now().After(deadline):
			return CommitResult{}, fmt.Errorf("%s: %w", what, err)
		}
	}
}

func (t *Table) alterOnce(ctx context.Context, o *AlterOptions, deadline time.Time, change func(*alteration) error,
) (CommitResult, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	if err := checkWrite(snap.state.proto); err != nil {
		return CommitResult{}, err
	}
	a := &alteration{ctx: ctx, snap: snap, meta: snap.state.meta.Clone(), proto: snap.state.proto.with(),
		schema: &Schema{Fields: cloneFields(snap.schema.Fields)},
		tx:     t.Begin(snap, &TransactionOptions{Deadline: time.Until(deadline)})}
	if err := change(a); err != nil {
		return CommitResult{}, dropped(ctx, err, a.written)
	}
	if err := a.settle(o.Upgrade); err != nil {
		return CommitResult{}, dropped(ctx, err, a.written)
	}
	if a.tx.meta == nil && a.tx.proto == nil && len(a.tx.domains) == 0 {
		return CommitResult{Version: snap.version, Snapshot: snap}, nil
	}
	a.tx.ReadTable()
	a.tx.Operation(a.operation, a.params, nil)
	a.tx.UserMetadata(o.UserMetadata)
	result, err := a.tx.Commit(ctx)
	return result, dropped(ctx, err, a.written)
}

// settle puts what was changed into the transaction.
func (a *alteration) settle(upgrade bool) error {
	if text := a.schema.String(); text != a.meta.SchemaString && text != a.snap.schema.String() {
		m, err := a.meta.WithSchema(a.schema)
		if err != nil {
			return err
		}
		a.meta = m
	}
	if !sameMetadata(a.meta, a.snap.state.meta) {
		schema, err := a.meta.Schema()
		if err != nil {
			return err
		}
		if err := schema.validate(mappingOf(a.meta.Configuration)); err != nil {
			return err
		}
		had := needs(a.snap.schema, a.snap.state.meta.Configuration)
		needed := slices.DeleteFunc(needs(schema, a.meta.Configuration), func(f string) bool {
			return slices.Contains(had, f) || slices.Contains(a.asked, f)
		})
		if missing := a.proto.missing(needed); len(missing) > 0 && !upgrade {
			return needsUpgrade(missing)
		}
		a.proto = a.proto.with(needed...)
		if err := a.meta.checkRules(a.proto, schema); err != nil {
			return err
		}
		a.tx.SetMetadata(a.meta)
	}
	if err := checkWrite(a.proto); err != nil {
		return err
	}
	if !sameProtocol(a.proto, a.snap.state.proto) {
		a.tx.SetProtocol(a.proto)
	}
	return nil
}

func needsUpgrade(missing []feature) error {
	names := make([]string, len(missing))
	for i, f := range missing {
		names[i] = f.name
	}
	return fmt.Errorf("the table needs the feature %s, which its protocol does not have: %w", strings.Join(names, " and "),
		ErrUpgrade)
}

// ask gives the table features by name.
func (a *alteration) ask(names ...string) {
	a.asked = append(a.asked, names...)
	a.proto = a.proto.with(names...)
}

// SetProperties sets table properties. "delta.feature.X" = "supported" gives the table the feature X;
// "delta.columnMapping.mode" = "name" begins to map columns, which keep their names in files;
// "delta.enableRowTracking" = "true" gives ids to all rows first, in commits of its own. Properties that this package keeps
// itself cannot be set. Errors: as AlterOptions and Transaction.Commit.
func (t *Table) SetProperties(ctx context.Context, properties map[string]string, opts *AlterOptions) (CommitResult, error) {
	for _, key := range sortedNames(properties) { // before the commits that give ids, which would stay
		if err := CheckProperty(key, properties[key]); err != nil {
			return CommitResult{}, fmt.Errorf("set table properties: %w", err)
		}
	}
	if strings.EqualFold(properties[propRowTracking], "true") {
		done, err := t.trackRows(ctx, opts)
		properties = maps.Clone(properties)
		if delete(properties, propRowTracking); err != nil || len(properties) == 0 {
			return done, err
		}
	}
	return t.alter(ctx, "set table properties", opts, func(a *alteration) error {
		a.operation = "SET TBLPROPERTIES"
		a.params = map[string]string{"properties": jsonObject(properties)}
		for _, key := range sortedNames(properties) {
			if err := a.setProperty(key, properties[key]); err != nil {
				return err
			}
		}
		return nil
	})
}

// keptProperties are those that commits write, and nobody else.
var keptProperties = []string{propMaxColumnID, propICTVersion, propICTTimestamp, materializedRowID,
	materializedRowCommitVersion}

func (a *alteration) setProperty(key, value string) error {
	if err := CheckProperty(key, value); err != nil {
		return err
	}
	name, isFeature := strings.CutPrefix(key, propFeature)
	switch {
	case isFeature && !slices.Contains([]string{"supported", "enabled"}, value):
		return fmt.Errorf("property %s: found %q, wanted supported; DropFeature takes a feature away", key, value)
	case isFeature:
		a.ask(name)
		return nil
	case strings.HasPrefix(key, propConstraint):
		return fmt.Errorf("property %s: a constraint is added by AddConstraint, which checks the rows that are there", key)
	case slices.Contains(keptProperties, key):
		return fmt.Errorf("property %s is kept by writers and cannot be set", key)
	case key == propStatsColumns:
		if err := checkStatsColumns(a.schema, value); err != nil {
			return err
		}
	case key == propColumnMapping:
		return a.setMapping(strings.ToLower(value))
	}
	a.meta.Configuration[key] = value
	return nil
}

// setMapping changes how columns are mapped: only a table without mapping can begin one, by name. Spec: "Column
// Mapping".
func (a *alteration) setMapping(mode string) error {
	now := mappingOf(a.meta.Configuration)
	switch {
	case mode == "none" && now == byName, mode == "name" && now == byPhysical, mode == "id" && now == byID:
		return nil
	case now == byName && mode == "name":
		if err := a.meta.mapColumns(mode, true); err != nil {
			return err
		}
		schema, err := a.meta.Schema()
		a.schema = schema
		return err
	}
	return fmt.Errorf("property %s: a table whose mode is %q cannot become %q; only none can become name; dropping the "+
		"feature columnMapping makes it none", propColumnMapping, a.meta.Configuration[propColumnMapping], mode)
}

// UnsetProperties takes table properties away; those that are not set are an error unless ifExists. Errors: as
// Transaction.Commit.
func (t *Table) UnsetProperties(ctx context.Context, names []string, ifExists bool, opts *AlterOptions,
) (CommitResult, error) {
	return t.alter(ctx, "unset table properties", opts, func(a *alteration) error {
		a.operation = "UNSET TBLPROPERTIES"
		a.params = map[string]string{"properties": jsonList(names), "ifExists": fmt.Sprint(ifExists)}
		for _, key := range names {
			_, set := a.meta.Configuration[key]
			switch {
			case !set && !ifExists:
				return fmt.Errorf("property %s is not set", key)
			case strings.HasPrefix(key, propConstraint):
				return fmt.Errorf("property %s: a constraint is taken away by DropConstraint", key)
			case set && slices.Contains(keptProperties, key):
				return fmt.Errorf("property %s is kept by writers and cannot be taken away", key)
			case set && (key == propColumnMapping || key == propRowTracking):
				return fmt.Errorf("property %s cannot be taken away: the table's files depend on it", key)
			}
			delete(a.meta.Configuration, key)
		}
		return nil
	})
}

// UpgradeProtocol gives the table features, and those that they need. Errors: *UnsupportedError for one that this
// package does not know; as Transaction.Commit. Spec: "Table Features".
func (t *Table) UpgradeProtocol(ctx context.Context, names []string, opts *AlterOptions) (CommitResult, error) {
	return t.alter(ctx, "upgrade the protocol", opts, func(a *alteration) error {
		a.ask(names...)
		a.operation = "UPGRADE PROTOCOL"
		a.params = map[string]string{"newProtocol": protocolJSON(a.proto)}
		return nil
	})
}

// protocolJSON is the protocol as Spark writes it into commitInfo.
func protocolJSON(p *Protocol) string {
	text := fmt.Sprintf(`{"minReaderVersion":%d,"minWriterVersion":%d`, p.MinReaderVersion, p.MinWriterVersion)
	if p.MinReaderVersion >= featureReaderVersion {
		text += `,"readerFeatures":` + jsonList(p.ReaderFeatures)
	}
	if p.MinWriterVersion >= featureWriterVersion {
		text += `,"writerFeatures":` + jsonList(p.WriterFeatures)
	}
	return text + "}"
}
