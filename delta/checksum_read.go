package delta

import (
	"context"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/store"
)

// checksumSaves is how many commits must lie after the checkpoint for a checksum to be worth its two requests.
const checksumSaves = 8

// versionChecksum is what a .crc file says of the table at its version. Spec: "Version Checksum File Schema".
type versionChecksum struct {
	txnID    string
	proto    *Protocol
	meta     *Metadata
	txns     map[string]Txn            // nil: not said
	domains  map[string]DomainMetadata // nil: not said
	inCommit *int64
	files    *fileTotals // nil: not said
	list     *fileList   // of all files; nil: not said
	commits  commitSums  // of the newest commits, the last of which is that of its version
	ours     bool        // it has the sum of itself, so that it is as it was written
}

func checksumKey(version int64) string { return versionPrefix(version) + ".crc" }

// fromChecksum takes all versions up to the newest by its checksum, if there is one, it says all that is needed and the
// commit of its version bears it out: the same transaction, and nothing in it that the checksum has otherwise. A checksum
// that is broken or contradicts is passed over.
func (b *builder) fromChecksum(ctx context.Context, seg *segment) (ok bool, err error) {
	n := seg.last - b.version
	if seg.checksum == nil || seg.summed != seg.last || n < checksumSaves || seg.after(b.version) != n {
		return false, nil
	}
	sum, err := b.table.readChecksum(ctx, seg.last)
	if sum == nil || err != nil {
		return false, err
	}
	data, err := b.table.getCommit(ctx, seg.last)
	if err != nil {
		return false, err
	}
	commit := &builder{table: b.table}
	if commit.commit(seg.last, commitKey(seg.last), data) != nil || !sum.agrees(&commit.state, seg.last, data) {
		return false, nil // what is wrong is found, or does not matter, when the commits are read
	}
	b.state = tableState{proto: sum.proto, meta: sum.meta, txns: sum.txns, domains: sum.domains, owned: true}
	for _, o := range seg.commits {
		if parseLogKey(o.Key).version > b.version {
			b.logBytes += o.Size
		}
	}
	b.version, b.inCommit, b.files, b.txnID = seg.last, commit.inCommit, sum.files, sum.txnID
	b.commits = sum.commits
	return true, nil
}

// after is how many commits the listing has after a version.
func (s *segment) after(version int64) (n int64) {
	for _, o := range s.commits {
		if parseLogKey(o.Key).version > version {
			n++
		}
	}
	return n
}

// readChecksum reads the .crc of a version; nil when it cannot be used for the table's state.
func (t *Table) readChecksum(ctx context.Context, version int64) (*versionChecksum, error) {
	sum, err := t.getChecksum(ctx, version)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if sum.proto == nil || sum.meta == nil || sum.txns == nil || sum.domains == nil || sum.txnID == "" {
		return nil, nil
	}
	return sum, nil
}

// getChecksum reads the .crc of a version. Errors: store.ErrNotFound, ErrCorrupt.
func (t *Table) getChecksum(ctx context.Context, version int64) (*versionChecksum, error) {
	data, err := t.st.Get(ctx, checksumKey(version))
	if err != nil {
		return nil, fmt.Errorf("read the checksum of version %d: %w", version, err)
	}
	sum, err := parseChecksum(data)
	if err != nil {
		return nil, corrupt("%s: %v", checksumKey(version), err)
	}
	return sum, nil
}

func parseChecksum(data []byte) (*versionChecksum, error) {
	has, right := hasOwnSum(data)
	if has && !right {
		return nil, errors.New("it is not as it was written")
	}
	s := &versionChecksum{ours: has}
	counts := map[string]*int64{}
	r := newLogReader(data, 0, nil)
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "txnId":
			s.txnID, err = r.str()
		case "numFiles", "tableSizeBytes", "numDeletionVectorsOpt", "numDeletedRecordsOpt":
			name := string(key)
			counts[name], err = r.optional()
		case "inCommitTimestampOpt":
			s.inCommit, err = r.optional()
		case "protocol":
			if !r.null() {
				s.proto = &Protocol{}
				err = s.proto.parse(&r.jsonReader)
			}
		case "metadata":
			if !r.null() {
				s.meta = &Metadata{}
				err = s.meta.parse(&r.jsonReader)
			}
		case "setTransactions":
			err = s.parseTxns(&r.jsonReader)
		case "domainMetadata":
			err = s.parseDomains(&r.jsonReader)
		case "allFiles":
			err = s.parseFiles(r)
		case commitSumsField:
			err = s.commits.parse(&r.jsonReader)
		default:
			err = r.skip()
		}
		return err
	})
	if err == nil && !r.end() {
		err = r.fail("the end")
	}
	if !s.ours {
		s.commits = commitSums{}
	}
	s.count(counts)
	return s, err
}

// count takes the totals that are told. A table whose protocol has no deletion vectors has none.
func (s *versionChecksum) count(told map[string]*int64) {
	files, bytes := told["numFiles"], told["tableSizeBytes"]
	if files == nil || bytes == nil {
		return
	}
	s.files = &fileTotals{files: *files, bytes: *bytes, vectors: -1}
	vectors, deleted := told["numDeletionVectorsOpt"], told["numDeletedRecordsOpt"]
	switch {
	case vectors != nil && deleted != nil:
		s.files.vectors, s.files.deleted = *vectors, *deleted
	case s.proto != nil && !s.proto.Supports("deletionVectors"):
		s.files.vectors = 0
	}
}

// parseFiles takes the list of all files, which writers add while there are few.
func (s *versionChecksum) parseFiles(r *logReader) error {
	if r.null() {
		return nil
	}
	s.list = newFileList()
	return r.array(func() error {
		var a Add
		if err := a.parseFile(r, nil); err != nil {
			return err
		}
		s.list.add(&a)
		return nil
	})
}

func (s *versionChecksum) parseTxns(r *jsonReader) error {
	if r.null() {
		return nil
	}
	s.txns = map[string]Txn{}
	return r.array(func() error {
		var t Txn
		err := t.parse(r)
		s.txns[t.AppID] = t
		return err
	})
}

func (s *versionChecksum) parseDomains(r *jsonReader) error {
	if r.null() {
		return nil
	}
	s.domains = map[string]DomainMetadata{}
	return r.array(func() error {
		var d DomainMetadata
		err := d.parse(r)
		if !d.Removed {
			s.domains[d.Domain] = d
		}
		return err
	})
}

// agrees reports whether the commit is the checksum's and says nothing else than it: state is what the commit alone says.
func (s *versionChecksum) agrees(state *tableState, version int64, data []byte) bool {
	same := false // the transaction
	for a, err := range parseLog(commitKey(version), data, kindCommitInfo|kindDomain) {
		switch {
		case err != nil:
			return false
		case a.CommitInfo != nil:
			ours, theirs := s.inCommit, a.CommitInfo.InCommitTimestamp
			same = a.CommitInfo.TxnID == s.txnID && (ours == nil || theirs == nil || *ours == *theirs)
		case a.DomainMetadata != nil && a.DomainMetadata.Removed:
			if _, there := s.domains[a.DomainMetadata.Domain]; there {
				return false
			}
		}
	}
	if p := state.proto; p != nil && !sameProtocol(p, s.proto) {
		return false
	}
	if m := state.meta; m != nil && !sameMetadata(m, s.meta) {
		return false
	}
	for app, t := range state.txns {
		if mine, ok := s.txns[app]; !ok || mine.Version != t.Version {
			return false
		}
	}
	for name, d := range state.domains {
		if mine, ok := s.domains[name]; !ok || mine.Configuration != d.Configuration {
			return false
		}
	}
	return same
}
