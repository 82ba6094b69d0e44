package delta

import (
	"context"

	"github.com/freshet-io/freshet/store"
)

// maxChecksumEntries is how many applications and how many domains a .crc tells of at most. With more it
// tells of none, as Spark's: it is written with every commit.
const maxChecksumEntries = 100

// counted is the snapshot with its totals, when they are not known and a .crc tells them: a writer that has
// opened the table goes on from what the one before has left.
func (s *Snapshot) counted(ctx context.Context) *Snapshot {
	if s.files != nil || !s.summed {
		return s
	}
	sum, err := s.table.getChecksum(ctx, s.version)
	if err != nil || sum.files == nil {
		return s
	}
	counted := *s
	counted.files = sum.files
	if sum.txnID == s.txnID && len(sum.commits.sums) > 0 {
		counted.commits = sum.commits // they were written sooner than these were read
	}
	return &counted
}

// writeChecksum writes the .crc of the version that the transaction made, unless its totals are not known. It
// only saves others time, so that a failure is no error. Spec: "Version Checksum File".
func (s *Snapshot) writeChecksum(ctx context.Context, txnID string) {
	if s.files != nil {
		_ = store.PutHint(ctx, s.table.st, checksumKey(s.version), s.checksum(txnID))
	}
}

func (s *Snapshot) checksum(txnID string) []byte {
	o := &objectWriter{}
	o.str("txnId", txnID)
	o.int("tableSizeBytes", s.files.bytes)
	o.int("numFiles", s.files.files)
	if s.files.vectors >= 0 && s.state.proto.Supports("deletionVectors") {
		o.int("numDeletedRecordsOpt", s.files.deleted)
		o.int("numDeletionVectorsOpt", s.files.vectors)
	}
	o.int("numMetadata", 1)
	o.int("numProtocol", 1)
	o.optional("inCommitTimestampOpt", s.inCommit)
	if apps := sortedNames(s.state.txns); len(apps) <= maxChecksumEntries {
		o.objects("setTransactions", len(apps), func(i int, o *objectWriter) {
			t := s.state.txns[apps[i]]
			t.write(o)
		})
	}
	if names := sortedNames(s.state.domains); len(names) <= maxChecksumEntries {
		o.objects("domainMetadata", len(names), func(i int, o *objectWriter) {
			d := s.state.domains[names[i]]
			d.write(o)
		})
	}
	o.object("metadata", s.state.meta.write)
	o.object("protocol", s.state.proto.write)
	if commits := s.commits.after(s.CheckpointVersion()); len(commits.sums) > 0 {
		o.object(commitSumsField, commits.write)
	}
	return withOwnSum(o.end())
}
