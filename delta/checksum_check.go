package delta

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// ChecksumError says that a version and its .crc tell different things, so that a file of the log is broken. It is
// ErrCorrupt.
type ChecksumError struct {
	Version int64
	Path    string // of the .crc, below the table
	Detail  string // what is different
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%v: version %d and its checksum %s disagree: %s", ErrCorrupt, e.Version, e.Path, e.Detail)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true.
func (e *ChecksumError) Unwrap() error { return ErrCorrupt }

// audit compares a version with its .crc, while its files are listed: the commits that are read, then the files. A nil audit
// compares nothing.
type audit struct {
	snap    *Snapshot
	sum     *versionChecksum // nil: there is none
	commits commitSums
	files   fileTotals
	list    *fileList
}

// audit begins the comparison of a version with its .crc, and ends that of its state. Without a .crc, or with one that is not
// of this version, commits are held against what the snapshot knows of them. That it is wrong in one thing says that a file is
// broken, and so does everything in one that is sure to be as it was written; when another has several things otherwise, it
// tells of something else, whoever has put it there. Errors: *ChecksumError, errors of the store.
func (s *Snapshot) audit(ctx context.Context) (*audit, error) {
	alone := &audit{snap: s, commits: s.commits}
	if !s.summed {
		return alone, nil
	}
	sum, err := s.table.getChecksum(ctx, s.version)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return alone, nil
	}
	if err != nil {
		return nil, err
	}
	if its, err := s.commitOf(ctx, sum); err != nil {
		return nil, err
	} else if !its {
		return alone, nil
	}
	a := &audit{snap: s, sum: sum, commits: sum.commits, list: sum.list.empty()}
	if len(a.commits.sums) == 0 {
		a.commits = s.commits
	}
	wrong := sum.otherState(s)
	switch {
	case len(wrong) == 0:
		return a, nil
	case len(wrong) == 1 || sum.ours:
		return nil, a.fail(strings.Join(wrong, "; "))
	}
	return alone, nil
}

// commit compares a commit that is read with what is known of it.
func (a *audit) commit(c *logPiece) error {
	switch {
	case a == nil || c.compacted || !a.commits.differs(c.first, c.data):
		return nil
	case a.sum != nil && len(a.sum.commits.sums) > 0:
		return a.fail(c.key + " is not as it was written")
	}
	return corrupt("%s is not as it was when it was first read", c.key)
}

// commitOf reports whether the checksum names the transaction of the version's commit. Errors: *ChecksumError for a commit
// that says nothing of itself beside a checksum of ours, which we write for none but our own: it was lost, but for its name.
func (s *Snapshot) commitOf(ctx context.Context, sum *versionChecksum) (bool, error) {
	if s.txnID != "" {
		return s.txnID == sum.txnID, nil
	}
	info, told, err := s.table.commitInfo(ctx, s.version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case !told && sum.ours:
		return false, &ChecksumError{Version: s.version, Path: checksumKey(s.version),
			Detail: "it is of the transaction " + sum.txnID + ", and the commit tells of none"}
	}
	return info.TxnID != "" && info.TxnID == sum.txnID, nil
}

func (a *audit) fail(detail string) error {
	return &ChecksumError{Version: a.snap.version, Path: checksumKey(a.snap.version), Detail: detail}
}

// take counts a file.
func (a *audit) take(add *Add) {
	if a != nil && a.sum != nil {
		a.files.add(add.Size, add.DeletionVector, 1)
		a.list.add(add)
	}
}

// end compares, once all files were taken.
func (a *audit) end() error {
	if a == nil || a.sum == nil {
		return nil
	}
	if detail := a.sum.otherFiles(a.files); detail != "" {
		return a.fail(detail)
	}
	if !a.list.same(a.sum.list) {
		return a.fail("a file is not the same in its list of all files as in the log")
	}
	return nil
}

// fileList is a set of files of which only a sum is held: of what decides which rows they are. nil is none.
type fileList struct {
	seed maphash.Seed
	sum  uint64
}

func newFileList() *fileList { return &fileList{seed: maphash.MakeSeed()} }

// empty is a list that can be compared with this one.
func (l *fileList) empty() *fileList {
	if l == nil {
		return nil
	}
	return &fileList{seed: l.seed}
}

func (l *fileList) same(as *fileList) bool { return l == nil || l.sum == as.sum }

func (l *fileList) add(a *Add) {
	if l == nil {
		return
	}
	var values strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.PartitionValues)) {
		values.WriteString(strconv.Quote(name))
		if v := a.PartitionValues[name]; v != nil && *v != "" { // the empty text is null
			values.WriteString(strconv.Quote(*v))
		}
		values.WriteByte(',')
	}
	file := struct {
		fileKey
		size, deleted int64
		values        string
	}{a.key(), a.Size, 0, values.String()}
	if a.DeletionVector != nil {
		file.deleted = a.DeletionVector.Cardinality
	}
	l.sum += maphash.Comparable(l.seed, file)
}

// otherFiles says what the checksum counts otherwise than the log; "": nothing, as far as it tells.
func (s *versionChecksum) otherFiles(log fileTotals) string {
	switch {
	case s.files == nil || s.files.agree(log):
		return ""
	case s.files.files != log.files || s.files.bytes != log.bytes:
		return fmt.Sprintf("it counts %d files of %d bytes, by the log there are %d of %d", s.files.files, s.files.bytes,
			log.files, log.bytes)
	}
	return fmt.Sprintf("it counts %d deletion vectors of %d rows, by the log there are %d of %d", s.files.vectors,
		s.files.deleted, log.vectors, log.deleted)
}

// otherState says what the checksum has otherwise than the log but for files, one text for each of protocol, metadata,
// time, progress and domains. What it does not say is not different.
func (s *versionChecksum) otherState(snap *Snapshot) (found []string) {
	differ := func(what string, a ...any) { found = append(found, fmt.Sprintf(what, a...)) }
	if s.proto != nil && !sameProtocol(s.proto, snap.state.proto) {
		differ("it has another protocol than the log")
	}
	if s.meta != nil && !sameMetadata(s.meta, snap.state.meta) {
		differ("it has other metadata than the log")
	}
	if s.inCommit != nil && snap.inCommit != nil && *s.inCommit != *snap.inCommit {
		differ("it has the in-commit timestamp %d, the log %d", *s.inCommit, *snap.inCommit)
	}
	if other := s.otherProgress(snap); other != "" {
		differ("%s", other)
	}
	if other := s.otherDomain(snap); other != "" {
		differ("%s", other)
	}
	return found
}

func (s *versionChecksum) otherProgress(snap *Snapshot) string {
	_, forgets := snap.state.meta.Configuration[propTxnRetention]
	if s.txns != nil && len(s.txns) != len(snap.state.txns) && !forgets {
		return fmt.Sprintf("it tells of %d applications, the log of %d", len(s.txns), len(snap.state.txns))
	}
	for app, t := range s.txns {
		if now, ok := snap.state.txns[app]; ok && now.Version != t.Version {
			return fmt.Sprintf("by it the progress of %q is %d, by the log %d", app, t.Version, now.Version)
		}
	}
	return ""
}

func (s *versionChecksum) otherDomain(snap *Snapshot) string {
	if s.domains != nil && len(s.domains) != len(snap.state.domains) {
		return fmt.Sprintf("it tells of %d domains, the log of %d", len(s.domains), len(snap.state.domains))
	}
	for name, d := range s.domains {
		if now, ok := snap.state.domains[name]; ok && now.Configuration != d.Configuration {
			return fmt.Sprintf("it has another configuration of the domain %q", name)
		}
	}
	return ""
}
