package delta

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// rowTrackingDomain is the domain whose configuration holds the greatest row id that was given out. Spec:
// "Row Tracking".
const rowTrackingDomain = "delta.rowTracking"

// noRowIDs is the high-water mark of a table in which no row has an id yet.
const noRowIDs = -1

// rowIDHighWater reads the mark of the domain. Errors: ErrCorrupt.
func (s *tableState) rowIDHighWater() (int64, error) {
	d, ok := s.domains[rowTrackingDomain]
	if !ok {
		return noRowIDs, nil
	}
	var c struct {
		Mark *int64 `json:"rowIdHighWaterMark"`
	}
	if err := json.Unmarshal([]byte(d.Configuration), &c); err != nil || c.Mark == nil {
		return 0, corrupt("the domain %s holds %q, wanted a rowIdHighWaterMark", rowTrackingDomain, d.Configuration)
	}
	return *c.Mark, nil
}

// givesRowIDs reports whether writers give each new row an id: where the table has the feature, whether
// readers may rely on it yet or not.
func givesRowIDs(p *Protocol, m *Metadata) bool {
	return p.Supports("rowTracking") && !m.boolean(propRowTrackingSuspended, false)
}

// tracksRows reports whether readers may rely on row ids.
func tracksRows(m *Metadata) bool { return m.boolean(propRowTracking, false) }

// rowIDs gives files that have none their first row id and the version in which their rows were committed.
// Since the mark is taken from the version that is built upon, winners never give out the same ids. Spec:
// "Writer Requirements for Row Tracking".
type rowIDs struct {
	base *Snapshot
	mark int64 // the greatest id that was given out
}

func (r *rowIDs) give(ctx context.Context, a *Add) error {
	rows, err := r.base.physicalRows(ctx, a)
	if err != nil {
		return err
	}
	if a.BaseRowID == nil {
		first := r.mark + 1
		a.BaseRowID = &first
	}
	r.mark = max(r.mark, *a.BaseRowID+rows-1)
	if a.DefaultRowCommitVersion == nil {
		version := r.base.version + 1
		a.DefaultRowCommitVersion = &version
	}
	return nil
}

// giveRowIDs gives ids to adds, and returns what is to give them to the streamed files of the transaction,
// and the domain's state once all have theirs; nil when it has not changed.
func (tx *Transaction) giveRowIDs(ctx context.Context, base *Snapshot, adds []Add) (*rowIDs, *DomainMetadata, error) {
	mark, err := base.state.rowIDHighWater()
	if err != nil {
		return nil, nil, err
	}
	before := mark
	for _, d := range tx.domains {
		if d.Domain == rowTrackingDomain && !d.Removed {
			given := tableState{domains: map[string]DomainMetadata{rowTrackingDomain: d}}
			least, err := given.rowIDHighWater()
			if err != nil {
				return nil, nil, err
			}
			mark = max(mark, least)
		}
	}
	ids := &rowIDs{base: base, mark: mark}
	for i := range adds {
		if err := ids.give(ctx, &adds[i]); err != nil {
			return nil, nil, err
		}
	}
	last := *ids
	for a, err := range tx.streamed() {
		if err == nil {
			err = last.give(ctx, a)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if last.mark == before {
		return ids, nil, nil
	}
	return ids, &DomainMetadata{Domain: rowTrackingDomain,
		Configuration: `{"rowIdHighWaterMark":` + strconv.FormatInt(last.mark, 10) + `}`}, nil
}

// RowIDsKept says whether all rows that the transaction moved to other files kept their ids and commit
// versions, in the materialised columns of these. Without it that is taken to be so only of a transaction
// that moved none: one that does not both add and remove files. It is recorded where the table tracks rows.
func (tx *Transaction) RowIDsKept(kept bool) { tx.rowIDsKept = &kept }

// rowIDsPreserved is what commitInfo says of row ids. Spec: "Row Tracking", delta.rowTracking.preserved.
func (tx *Transaction) rowIDsPreserved() bool {
	if tx.rowIDsKept != nil {
		return *tx.rowIDsKept && tracksRows(tx.base.state.meta)
	}
	moved := len(tx.rewrites) > 0 || len(tx.adds) > 0 && len(tx.removes)+len(tx.marks) > 0
	return !moved
}

// nameRowIDColumns gives the materialised columns names when the metadata begins to track rows.
func nameRowIDColumns(m *Metadata) {
	if !tracksRows(m) {
		return
	}
	for key, prefix := range map[string]string{
		materializedRowID: "_row-id-col-", materializedRowCommitVersion: "_row-commit-version-col-",
	} {
		if m.Configuration[key] == "" {
			m.Configuration[key] = prefix + uuid.NewString()
		}
	}
}

// checkRowTracking makes sure that readers may rely on row ids from this commit on: that row tracking is not
// switched on over files that have none. Files of the base are looked at only when it is being switched on.
func (tx *Transaction) checkRowTracking(ctx context.Context, base *Snapshot) error {
	if tx.meta == nil || !tracksRows(tx.meta) || base.version < 0 || tracksRows(base.state.meta) {
		return nil
	}
	removed := map[string]bool{}
	for _, r := range tx.allRemoves() {
		removed[canonicalPath(r.Path)] = true
	}
	for _, a := range tx.adds {
		removed[canonicalPath(a.Path)] = true
	}
	for a, err := range base.Files(ctx, nil) {
		if err != nil {
			return err
		}
		if a.BaseRowID == nil && !removed[canonicalPath(a.Path)] {
			return fmt.Errorf("row tracking cannot be switched on: the file %s has no row ids yet; "+
				"EnableRowTracking gives them", a.Path)
		}
	}
	return nil
}

// EnableRowTracking makes the table track rows: it adds the feature, gives ids to the rows of all files, and
// sets delta.enableRowTracking, in three commits or more. Where a part has been done before, it goes on from
// there. Readers and writers then have to know the writer feature rowTracking. Errors: as Transaction.Commit.
// Spec: "Row Tracking".
func (t *Table) EnableRowTracking(ctx context.Context, opts *TransactionOptions) (CommitResult, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return CommitResult{}, err
	}
	done := CommitResult{Version: snap.version, Snapshot: snap}
	if tracksRows(snap.state.meta) && snap.state.proto.Supports("rowTracking") {
		return done, nil
	}
	if !snap.state.proto.Supports("rowTracking") || !snap.state.proto.Supports("domainMetadata") {
		tx := t.Begin(snap, opts)
		tx.SetProtocol(snap.state.proto.with("rowTracking"))
		tx.Operation("UPGRADE PROTOCOL", nil, nil)
		if done, err = tx.Commit(ctx); err != nil {
			return done, fmt.Errorf("enable row tracking: %w", err)
		}
	}
	for {
		more, err := t.backfillRowIDs(ctx, done.Snapshot, opts)
		if err != nil {
			return done, fmt.Errorf("enable row tracking: %w", err)
		}
		if more == nil {
			break
		}
		done = *more
	}
	tx := t.Begin(done.Snapshot, opts)
	m := done.Snapshot.state.meta.Clone()
	m.Configuration[propRowTracking] = "true"
	tx.SetMetadata(m)
	tx.Operation("SET TBLPROPERTIES", map[string]string{
		"properties": jsonObject(map[string]string{propRowTracking: "true"})}, nil)
	if done, err = tx.Commit(ctx); err != nil {
		return done, fmt.Errorf("enable row tracking: %w", err)
	}
	return done, nil
}

// backfillFiles is how many files get their row ids in one commit.
const backfillFiles = 100_000

// backfillRowIDs commits files that have no row ids anew, with some; it returns nil when there are none.
func (t *Table) backfillRowIDs(ctx context.Context, snap *Snapshot, opts *TransactionOptions) (*CommitResult, error) {
	tx := t.Begin(snap, opts)
	for a, err := range snap.Files(ctx, &FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		if a.BaseRowID != nil {
			continue
		}
		a.DataChange = false
		tx.again = append(tx.again, *a)
		if len(tx.again) == backfillFiles {
			break
		}
	}
	if len(tx.again) == 0 {
		return nil, nil
	}
	tx.RowIDsKept(false)
	tx.Operation("ROW TRACKING BACKFILL", map[string]string{"batchId": "0"}, nil)
	result, err := tx.Commit(ctx)
	return &result, err
}

// backfillRule leaves out files that a winner has removed or committed anew itself.
func backfillRule(_ context.Context, c *committer, w *winner) error {
	if len(c.tx.again) == 0 {
		return nil
	}
	changes := w.changes()
	c.tx.again = slices.DeleteFunc(c.tx.again, func(a Add) bool { return changes[canonicalPath(a.Path)] != nil })
	return nil
}
