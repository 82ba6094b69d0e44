package delta

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// propProtection is the first version before which log cleanup may take commits only together with all others. Spec:
// "Checkpoint Protection".
const propProtection = "delta.requireCheckpointProtectionBeforeVersion"

// DropFeature takes a table feature away that the table no longer uses. What uses it must be gone before: a property
// unset, a column dropped, deletion vectors rewritten. Of columnMapping and typeWidening it is taken away here, in the same
// commit, with their properties: all files are written again under the names of columns, or those that have a column in an
// earlier type; rows stay as they are, and whoever commits meanwhile has it begun anew. Where readers must know the
// feature, older versions need it
// still: the drop is followed by a checkpoint, and the feature checkpointProtection, for which the options must allow an
// upgrade, keeps others from cleaning the log so that a reader would have to begin before it. Errors: a feature that
// the table has not, or uses; as AlterOptions and Transaction.Commit.
func (t *Table) DropFeature(ctx context.Context, name string, opts *AlterOptions) (CommitResult, error) {
	what := fmt.Sprintf("drop the feature %s", name)
	history := featureNamed(name).reader
	result, err := t.alter(ctx, what, opts, func(a *alteration) error {
		if !a.proto.Supports(name) {
			return fmt.Errorf("the table does not have it; it has %s", strings.Join(a.proto.features(), ", "))
		}
		if !slices.ContainsFunc(features, func(f feature) bool { return f.name == name }) {
			return &UnsupportedError{Feature: "the table feature " + name, Write: true}
		}
		if history {
			if err := a.protect(opts, a.snap.version+1); err != nil {
				return err
			}
		}
		if err := a.unused(name); err != nil {
			return err
		}
		a.proto = a.proto.without(name)
		a.operation = "DROP FEATURE"
		a.params = map[string]string{"featureName": name}
		return nil
	})
	if err != nil || !history {
		return result, err
	}
	if result.Snapshot.Property(propProtection) != strconv.FormatInt(result.Version, 10) {
		result, err = t.alter(ctx, what, opts, func(a *alteration) error {
			a.operation = "SET TBLPROPERTIES"
			return a.protect(opts, result.Version)
		})
		if err != nil {
			return result, err
		}
	}
	if opts != nil && opts.NoCheckpoint {
		return result, nil
	}
	if err := t.Checkpoint(ctx, result.Snapshot); err != nil {
		return result, fmt.Errorf("%s: it is dropped in version %d, but readers that do not know it need a checkpoint: %w",
			what, result.Version, err)
	}
	return result, nil
}

// protect keeps the log before a version from being cleaned in part.
func (a *alteration) protect(opts *AlterOptions, version int64) error {
	if !a.proto.Supports("checkpointProtection") {
		if err := a.settleFeature(opts, "checkpointProtection"); err != nil {
			return err
		}
		a.ask("checkpointProtection")
	}
	if old, ok := a.meta.int(propProtection); !ok || old < version {
		a.meta.Configuration[propProtection] = strconv.FormatInt(version, 10)
	}
	return nil
}

// unused makes sure that nothing of the table needs the feature.
func (a *alteration) unused(name string) error {
	for _, f := range a.proto.features() {
		if slices.Contains(featureNamed(f).needs, name) {
			return fmt.Errorf("the feature %s needs it; drop that first", f)
		}
	}
	switch {
	case name == "columnMapping":
		return a.unmap()
	case name == "typeWidening" || name == "typeWidening-preview":
		if p := a.proto.without(name); p.Supports("typeWidening") || p.Supports("typeWidening-preview") {
			return nil
		}
		return a.unwiden()
	}
	for _, n := range needsOf(a.schema, a.meta.Configuration) {
		if n.feature == name {
			return fmt.Errorf("the table uses it: %s", n.cause)
		}
	}
	return a.cleared(name)
}

// cleared takes away what the feature leaves in metadata and domains.
func (a *alteration) cleared(name string) error {
	switch name {
	case "clustering":
		switch columns, err := a.snap.ClusteringColumns(); {
		case err != nil:
			return err
		case len(columns) > 0:
			return fmt.Errorf("the table is clustered by %s; take that away first: cluster it by no columns",
				strings.Join(columns, ", "))
		}
		if _, set := a.snap.state.domains[clusteringDomain]; set {
			a.tx.SetDomainMetadata(DomainMetadata{Domain: clusteringDomain, Removed: true,
				Configuration: a.snap.state.domains[clusteringDomain].Configuration})
		}
	case "domainMetadata":
		if len(a.snap.state.domains) > 0 {
			return fmt.Errorf("the table has the domains %s", strings.Join(sortedNames(a.snap.state.domains), ", "))
		}
	case "checkpointProtection":
		return a.unprotected()
	case "inCommitTimestamp":
		delete(a.meta.Configuration, propICTVersion)
		delete(a.meta.Configuration, propICTTimestamp)
	case "rowTracking":
		return a.unusedRowIDs()
	case "deletionVectors":
		return a.unusedVectors()
	}
	return nil
}

// unprotected makes sure that the log no longer holds a version that the protection is for.
func (a *alteration) unprotected() error {
	protected, set := a.meta.int(propProtection)
	if !set {
		return nil
	}
	for c, err := range a.tx.table.commitFiles(a.ctx, 0) {
		switch {
		case err != nil:
			return err
		case c.version < protected:
			return fmt.Errorf("the versions from %d to %d have features that were dropped since, and need it; they go "+
				"from the log %s after their commit", c.version, protected-1, propLogRetention)
		}
		break
	}
	delete(a.meta.Configuration, propProtection)
	return nil
}

// unusedRowIDs takes away what row tracking leaves in metadata and domains.
func (a *alteration) unusedRowIDs() error {
	for _, key := range []string{propRowTracking, propRowTrackingSuspended, materializedRowID, materializedRowCommitVersion} {
		delete(a.meta.Configuration, key)
	}
	if d, set := a.snap.state.domains[rowTrackingDomain]; set {
		a.tx.SetDomainMetadata(DomainMetadata{Domain: rowTrackingDomain, Configuration: d.Configuration, Removed: true})
	}
	return nil
}

// unusedVectors makes sure that no file has a deletion vector.
func (a *alteration) unusedVectors() error {
	for add, err := range a.snap.Files(a.ctx, nil) {
		if err != nil {
			return err
		}
		if add.DeletionVector != nil {
			return fmt.Errorf("the file %s has a deletion vector; OPTIMIZE the table or rewrite it first", add.Path)
		}
	}
	return nil
}

// trackRows is EnableRowTracking as a change that must be allowed to give the table the feature.
func (t *Table) trackRows(ctx context.Context, opts *AlterOptions) (CommitResult, error) {
	var o AlterOptions
	if opts != nil {
		o = *opts
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	if missing := snap.state.proto.missing([]string{"rowTracking"}); len(missing) > 0 && !o.Upgrade {
		return CommitResult{}, fmt.Errorf("enable row tracking: %w", needsUpgrade(missing))
	}
	return t.EnableRowTracking(ctx, &TransactionOptions{Deadline: o.Deadline})
}
