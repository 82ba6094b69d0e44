package delta

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// checkChecksum compares the version's .crc, if there is one, with the log.
func (c *check) checkChecksum(ctx context.Context) error {
	sum, err := c.table.getChecksum(ctx, c.snap.version)
	detail := ""
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case errors.Is(err, ErrCorrupt):
		detail = err.Error()
	case err != nil:
		return err
	default:
		detail = strings.Join(sum.differences(c.snap, fileTotals{c.report.Files, c.report.Bytes}), "; ")
	}
	if c.wrong = detail != ""; c.wrong {
		c.found(Finding{Severity: SeverityWarning, Kind: FindingChecksum, Path: checksumKey(c.snap.version),
			Version: c.snap.version, Detail: detail, Remedy: "delete it: readers do without"})
	}
	return nil
}

// differences are what the checksum says otherwise than the log; what it does not say is none.
func (s *versionChecksum) differences(snap *Snapshot, files fileTotals) (found []string) {
	differ := func(what string, a ...any) { found = append(found, fmt.Sprintf(what, a...)) }
	if s.files != nil && *s.files != files {
		differ("it counts %d files of %d bytes, by the log there are %d of %d", s.files.files, s.files.bytes,
			files.files, files.bytes)
	}
	if s.proto != nil && !sameProtocol(s.proto, snap.state.proto) {
		differ("it has another protocol than the log")
	}
	if s.meta != nil && !sameMetadata(s.meta, snap.state.meta) {
		differ("it has other metadata than the log")
	}
	if s.inCommit != nil && snap.inCommit != nil && *s.inCommit != *snap.inCommit {
		differ("it has the in-commit timestamp %d, the log %d", *s.inCommit, *snap.inCommit)
	}
	if s.txns != nil && len(s.txns) != len(snap.state.txns) {
		differ("it tells of %d applications, the log of %d", len(s.txns), len(snap.state.txns))
	}
	for app, t := range s.txns {
		if now, ok := snap.state.txns[app]; ok && now.Version != t.Version {
			differ("by it the progress of %q is %d, by the log %d", app, t.Version, now.Version)
		}
	}
	if s.domains != nil && len(s.domains) != len(snap.state.domains) {
		differ("it tells of %d domains, the log of %d", len(s.domains), len(snap.state.domains))
	}
	for name, d := range s.domains {
		if now, ok := snap.state.domains[name]; ok && now.Configuration != d.Configuration {
			differ("it has another configuration of the domain %q", name)
		}
	}
	return found
}
