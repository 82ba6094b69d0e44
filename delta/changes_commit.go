package delta

import (
	"context"
	"fmt"
	"time"
)

const propChangeDataFeed = "delta.enableChangeDataFeed"

// changeState is the table's metadata at a version of the range.
type changeState struct {
	version int64 // that was taken last
	proto   *Protocol
	meta    *Metadata
	where   bool // statistics are wanted
}

// changeCommit is a commit as its changes are found from.
type changeCommit struct {
	version int64
	at      time.Time
	info    CommitInfo
	proto   *Protocol // in force once it is committed, as meta
	meta    *Metadata
	altered bool // the commit has metadata
	cdc     []CDC
	adds    []*Add // with dataChange, as removes
	removes []*Remove
}

// begin returns the metadata that is in force at the beginning of the range, once its first version is committed. That
// version is taken again by next.
func (r *changeReader) begin(ctx context.Context) (*changeState, error) {
	first := r.last
	if r.from < r.to {
		var err error
		if first, err = r.table.SnapshotAt(ctx, r.from); err != nil {
			return nil, r.gap(ctx, err)
		}
	}
	state := &changeState{version: r.from - 1, proto: first.state.proto, meta: first.state.meta,
		where: r.shape.where != nil}
	found, err := schemaChanges(state.meta, r.last.state.meta)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", r.from, err)
	}
	if len(found) > 0 {
		return nil, r.schemaChange(ctx, state.meta)
	}
	return state, nil
}

// schemaChange finds the commit after which rows of the given metadata cannot be read together with later ones.
func (r *changeReader) schemaChange(ctx context.Context, first *Metadata) error {
	for c, err := range r.table.fetchCommits(ctx, r.from, r.to) {
		if err != nil {
			return r.gone(ctx, r.from, err)
		}
		for a, err := range parseLog(commitKey(c.version), c.data, kindMetadata) {
			if err != nil {
				return err
			}
			found, err := schemaChanges(first, a.Metadata)
			if err != nil {
				return fmt.Errorf("version %d: %w", c.version, err)
			}
			if len(found) > 0 {
				return &SchemaChangeError{Version: c.version, Changes: found}
			}
		}
	}
	return corrupt("the schemas of versions %d and %d differ, and no commit between tells of it", r.from, r.to)
}

// next takes the next commit.
func (s *changeState) next(data commitData) (*changeCommit, error) {
	c := &changeCommit{version: data.version}
	want := kindCommitInfo | kindProtocol | kindMetadata | kindFiles | kindCDC
	if s.where {
		want |= kindStats
	}
	for a, err := range parseLog(commitKey(data.version), data.data, want) {
		if err != nil {
			return nil, err
		}
		s.take(c, &a)
	}
	if err := s.proto.checkRead(); err != nil {
		return nil, fmt.Errorf("version %d: %w", data.version, err)
	}
	s.version, c.proto, c.meta = data.version, s.proto, s.meta
	return c, nil
}

func (s *changeState) take(c *changeCommit, a *Action) {
	switch {
	case a.CommitInfo != nil:
		c.info = *a.CommitInfo
	case a.Protocol != nil:
		s.proto = a.Protocol
	case a.Metadata != nil:
		c.altered, s.meta = true, a.Metadata
	case a.CDC != nil:
		c.cdc = append(c.cdc, *a.CDC)
	case a.Add != nil && a.Add.DataChange:
		c.adds = append(c.adds, a.Add)
	case a.Remove != nil && a.Remove.DataChange:
		c.removes = append(c.removes, a.Remove)
	}
}

// check refuses a commit that the method cannot read, or whose rows do not fit the schema of the range.
func (r *changeReader) check(ctx context.Context, c *changeCommit) error {
	if r.opts.Method == MethodFeed && !c.meta.boolean(propChangeDataFeed, false) {
		return &FeedError{Version: c.version}
	}
	if !c.altered {
		return nil
	}
	found, err := schemaChanges(c.meta, r.last.state.meta)
	if err != nil {
		return fmt.Errorf("version %d: %w", c.version, err)
	}
	if len(found) > 0 {
		return r.schemaChange(ctx, c.meta)
	}
	return nil
}

// method chooses how the changes of a commit are found. pieces are what it did to files, when it has no cdc actions
// that count.
func (r *changeReader) method(c *changeCommit) ChangeMethod {
	if r.opts.Method != MethodAuto {
		return r.opts.Method
	}
	rewritten := false // whole files were removed and others added
	paths := map[string]bool{}
	for _, a := range c.adds {
		paths[canonicalPath(a.Path)] = true
	}
	for _, f := range c.removes {
		rewritten = rewritten || !paths[canonicalPath(f.Path)]
	}
	switch {
	case len(c.cdc) > 0 || c.meta.boolean(propChangeDataFeed, false):
		return MethodFeed
	case len(c.adds) == 0 || len(c.removes) == 0:
		return MethodVectors
	case c.tracksRows():
		return MethodRowTracking
	case rewritten:
		return MethodDiff
	}
	return MethodVectors
}

// tracksRows reports whether the writer kept row ids. One that did not says so, since the others trust it. Spec:
// "Writer Requirements for Row Tracking".
func (c *changeCommit) tracksRows() bool {
	return tracksRows(c.meta) && c.info.Tags["delta.rowTracking.preserved"] == "true"
}

// nothing reports whether the commit is a MERGE that found no row, although it may have rewritten files. Spark reads
// the feed so, too.
func (c *changeCommit) nothing() bool {
	if c.info.Operation != "MERGE" {
		return false
	}
	for _, metric := range []string{"numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"} {
		if c.info.OperationMetrics[metric] != "0" {
			return false
		}
	}
	return true
}
