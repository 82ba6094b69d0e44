package delta

import (
	"context"
	"fmt"
	"iter"
)

// LoggedCommit is one commit as the log has it.
type LoggedCommit struct {
	Version int64
	Actions []Action // in their order; texts of statistics are left out
}

// Commits yields the commits from one version to another, both inclusive, upwards. Errors: store.ErrNotFound for one
// that log cleanup has taken or that is not there yet; ErrCorrupt, with the line; of the store.
func (t *Table) Commits(ctx context.Context, from, to int64) iter.Seq2[LoggedCommit, error] {
	return func(yield func(LoggedCommit, error) bool) {
		for c, err := range t.fetchCommits(ctx, from, to) {
			if err != nil {
				yield(LoggedCommit{}, fmt.Errorf("read commits: %w", err))
				return
			}
			out := LoggedCommit{Version: c.version}
			for a, err := range parseLog(commitKey(c.version), c.data, kindState|kindFiles|kindCDC|kindCommitInfo) {
				if err != nil {
					yield(LoggedCommit{}, fmt.Errorf("read commits: %w", err))
					return
				}
				out.Actions = append(out.Actions, a)
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}
