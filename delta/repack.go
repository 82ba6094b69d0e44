package delta

import (
	"context"
	"fmt"
)

// RepackOptions tune Repack. The zero value of each field means its default.
type RepackOptions struct {
	// TargetFileBytes is the size that files are made for. Default: delta.targetFileSize, else 256 MiB.
	TargetFileBytes int64
	// MemoryBytes bounds what a file that is written holds in memory. Default 64 MiB.
	MemoryBytes int64
	// UserMetadata is commitInfo.userMetadata of the commit.
	UserMetadata string
	// Around is called once all files are written, and calls commit once: what must be so while the commit is made is seen
	// to there. Default: commit is called.
	Around func(ctx context.Context, commit func(context.Context) (CommitResult, error)) error
}

// RepackResult is what Repack did.
type RepackResult struct {
	OptimizeResult
	Added []Add // as they were written: without what winners of the race have deleted of them
}

// Repack rewrites groups of live files of the snapshot, as Snapshot.Files gave them with statistics, in one commit: the
// rows of a group, which are all of one partition, become as few files as their size asks for, without deleted rows and
// in the order in which the group has them. It is Optimize for those who choose files themselves: the rows stay the same,
// with their ids, and commits say so (dataChange false). Groups are written one after another, so that memory is that of
// one file. Of a clustered table rows keep their order, too, and the new files count as not laid out.
//
// Rows that others delete meanwhile by deletion vector are deleted in the new files, too; where that cannot be, it gives
// way, and what was written is deleted again. Errors: ErrConflict; *UnsupportedError; ErrCorrupt when files do not hold
// as many rows as they should.
func (s *Snapshot) Repack(ctx context.Context, groups [][]Add, opts *RepackOptions) (*RepackResult, error) {
	var o RepackOptions
	if opts != nil {
		o = *opts
	}
	r := &optimizer{table: s.table, snap: s, around: o.Around, writerBytes: o.MemoryBytes,
		result: OptimizeResult{Version: s.version}}
	err := s.CheckWrite()
	if err == nil {
		r.opts, err = (&OptimizeOptions{TargetFileBytes: o.TargetFileBytes, UserMetadata: o.UserMetadata,
			Concurrency: 1}).withDefaults(s)
	}
	if err == nil {
		err = r.rewrite(ctx, jobsOf(groups))
	}
	if err != nil {
		return nil, fmt.Errorf("repack files of %s: %w", s.table.st.URL(), err)
	}
	return &RepackResult{OptimizeResult: r.result, Added: r.added}, nil
}

// jobsOf makes a job of each group.
func jobsOf(groups [][]Add) []*job {
	jobs := make([]*job, len(groups))
	for i, files := range groups {
		jobs[i] = &job{}
		for f := range files {
			c := newCandidate(&files[f])
			jobs[i].take(&c)
		}
	}
	return jobs
}

// PhysicalRows is how many rows the file has, deleted ones included, where its statistics tell.
func (a *Add) PhysicalRows() (rows int64, known bool) { return recordCount(a.Stats) }

// TargetFileBytes is the size that files of the table are made for: delta.targetFileSize, else 256 MiB. Errors: a property
// that is no size.
func (s *Snapshot) TargetFileBytes() (int64, error) {
	return targetFileSize(s.Property("delta.targetFileSize"))
}
