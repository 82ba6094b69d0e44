package delta

import (
	"context"
	"fmt"
	"time"
)

// Snapshot is the table at one version. It never changes and is safe for concurrent use.
type Snapshot struct {
	table    *Table
	version  int64
	state    tableState
	schema   *Schema
	inCommit *int64    // the in-commit timestamp of the version, in ms
	modified time.Time // of the version's log file; zero when it is not known
	verified time.Time // when the version was last known to be the newest

	checkpoint *checkpointFile // the commits after it are the rest of the log; nil when there is none
	logBytes   int64           // of the commits that were read, up to version
	compacted  []compactedFile // in place of commits after the checkpoint
	files      *fileTotals     // nil: not known
	summed     bool            // the version had a .crc when it was read
	txnID      string          // of the version's commit; "" when it was not read, or has none
	commits    commitSums      // of the newest commits, as they were when they were written or first read
}

// Table is the table that this is a version of.
func (s *Snapshot) Table() *Table { return s.table }

// Version is the number of the commit that made this state.
func (s *Snapshot) Version() int64 { return s.version }

// Timestamp is when the version was committed, in whole ms: its in-commit timestamp where the table has them, else
// the modification time of its log file, for which the store is asked when it is not known.
func (s *Snapshot) Timestamp(ctx context.Context) (time.Time, error) {
	if inCommitTimestamps(s.state.proto, s.state.meta) {
		ms, err := s.inCommitTimestamp(ctx)
		if err != nil || ms != nil {
			return time.UnixMilli(deref(ms)).UTC(), err
		}
	}
	if !s.modified.IsZero() {
		return s.modified.UTC().Truncate(time.Millisecond), nil
	}
	o, err := s.table.st.Stat(ctx, commitKey(s.version))
	if err != nil {
		return time.Time{}, fmt.Errorf("time of version %d: %w", s.version, err)
	}
	return o.Modified.UTC().Truncate(time.Millisecond), nil
}

// inCommitTimestamp is the version's in-commit timestamp; nil when it has none. A snapshot that a checkpoint or a
// compacted file ends has to look into the commit.
func (s *Snapshot) inCommitTimestamp(ctx context.Context) (*int64, error) {
	if s.inCommit != nil {
		return s.inCommit, nil
	}
	info, _, err := s.table.commitInfo(ctx, s.version)
	return info.InCommitTimestamp, err
}

func deref(v *int64) int64 {
	if v == nil {
		return 0
	}
	return *v
}

// Protocol is what readers and writers must understand. It must not be changed.
func (s *Snapshot) Protocol() *Protocol { return s.state.proto }

// Metadata is the table's metadata. It must not be changed; Metadata.Clone gives a copy to change.
func (s *Snapshot) Metadata() *Metadata { return s.state.meta }

// Schema is the table's columns. It must not be changed.
func (s *Snapshot) Schema() *Schema { return s.schema }

// PartitionColumns are the columns that the table is partitioned by, in order; empty when it is not.
func (s *Snapshot) PartitionColumns() []string { return s.state.meta.PartitionColumns }

// Property is the value of a table property as it stands in the metadata, "" when it is not set.
func (s *Snapshot) Property(name string) string { return s.state.meta.Configuration[name] }

// Txn is the progress of an application; ok is false when the table records none.
func (s *Snapshot) Txn(appID string) (version int64, ok bool) {
	t, ok := s.state.txns[appID]
	return t.Version, ok
}

// Txns is the progress of all applications by appId. It must not be changed.
func (s *Snapshot) Txns() map[string]Txn { return s.state.txns }

// DomainMetadata is the live domain metadata by domain. It must not be changed.
func (s *Snapshot) DomainMetadata() map[string]DomainMetadata { return s.state.domains }

// CheckpointVersion is the version of the checkpoint that the snapshot was read from, -1 when there is none.
func (s *Snapshot) CheckpointVersion() int64 {
	if s.checkpoint == nil {
		return -1
	}
	return s.checkpoint.version
}
