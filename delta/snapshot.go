package delta

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Snapshot is the table at one version. It never changes and is safe for concurrent use.
type Snapshot struct {
	table   *Table
	version int64
	proto   Protocol
	meta    Metadata
	schema  *Schema
	txns    map[string]Txn
	domains map[string]DomainMetadata
}

// Table is the table that this is a version of.
func (s *Snapshot) Table() *Table { return s.table }

// Version is the number of the commit that made this state.
func (s *Snapshot) Version() int64 { return s.version }

// Timestamp is when the version was committed: its in-commit timestamp where the table has them, else the
// modification time of its log file.
func (s *Snapshot) Timestamp(ctx context.Context) (time.Time, error) {
	return time.Time{}, errors.ErrUnsupported
}

// Protocol is what readers and writers must understand. It must not be changed.
func (s *Snapshot) Protocol() *Protocol { return &s.proto }

// Metadata is the table's metadata. It must not be changed; Metadata.Clone gives a copy to change.
func (s *Snapshot) Metadata() *Metadata { return &s.meta }

// Schema is the table's columns.
func (s *Snapshot) Schema() *Schema { return s.schema }

// PartitionColumns are the columns that the table is partitioned by, in order; empty when it is not.
func (s *Snapshot) PartitionColumns() []string { return s.meta.PartitionColumns }

// Property is the value of a table property as it stands in the metadata, "" when it is not set.
func (s *Snapshot) Property(name string) string { return s.meta.Configuration[name] }

// Txn is the progress of an application; ok is false when the table records none.
func (s *Snapshot) Txn(appID string) (version int64, ok bool) {
	t, ok := s.txns[appID]
	return t.Version, ok
}

// Txns is the progress of all applications by appId. It must not be changed.
func (s *Snapshot) Txns() map[string]Txn { return s.txns }

// DomainMetadata is the live domain metadata by domain. It must not be changed.
func (s *Snapshot) DomainMetadata() map[string]DomainMetadata { return s.domains }

// FilesOptions tune Files. The zero value of each field means its default.
type FilesOptions struct {
	Stats bool // read statistics too; without it Add.Stats is ""
}

// Files yields the live files of the snapshot in no order, one Add per (path, deletion vector id).
func (s *Snapshot) Files(ctx context.Context, opts *FilesOptions) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) { yield(nil, errors.ErrUnsupported) }
}
