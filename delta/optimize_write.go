package delta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// meter counts what is done, and tells it.
type meter struct {
	mu     sync.Mutex
	now    OptimizeProgress
	report func(OptimizeProgress)
}

func (m *meter) count(add func(*OptimizeProgress)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(&m.now)
	if m.report != nil {
		m.report(m.now)
	}
}

// rewritten is a job that is done, but not committed.
type rewritten struct {
	job     *job
	adds    []Add
	origins [][]Origin
	rows    int64
}

// rewrite does a batch of jobs and commits them as one version. Files of a batch that is not committed are deleted,
// unless the commit may have landed.
func (r *optimizer) rewrite(ctx context.Context, jobs []*job) error {
	done := make([]*rewritten, len(jobs))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(r.opts.Concurrency)
	for i, j := range jobs {
		group.Go(func() (err error) {
			done[i], err = r.do(gctx, j)
			return err
		})
	}
	err := group.Wait()
	if err == nil {
		err = r.commit(ctx, done)
	}
	if err != nil && !errors.Is(err, store.ErrAmbiguous) {
		r.drop(ctx, done)
	}
	return err
}

// do reads the files of a job and writes their rows anew.
func (r *optimizer) do(ctx context.Context, j *job) (done *rewritten, err error) {
	w, err := r.snap.rewriter(r.opts.TargetFileBytes, r.writerBytes)
	if err != nil {
		return nil, err
	}
	if r.layout != nil {
		done, err = r.layout.write(ctx, r, j, w)
	} else {
		done, err = r.copyRows(ctx, j, w)
	}
	if err == nil {
		err = done.conserves()
	}
	if err != nil {
		return nil, errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	r.meter.count(func(p *OptimizeProgress) {
		p.FilesDone += int64(len(j.files))
		p.BytesDone += j.bytes
		p.FilesAdded += int64(len(done.adds))
		for i := range done.adds {
			p.BytesAdded += done.adds[i].Size
		}
	})
	return done, nil
}

// rewriter begins files for rows that come out of the table's own files. memoryBytes is 0 for the default.
func (s *Snapshot) rewriter(targetBytes, memoryBytes int64) (*Writer, error) {
	clustered, err := s.ClusteringColumns()
	if err != nil {
		return nil, err
	}
	return NewWriter(s.table.st, s.Metadata(), s.Protocol(), &WriterOptions{TargetFileBytes: targetBytes,
		MemoryBytes: memoryBytes, ClusteredBy: clustered, Trusted: true, RowIDs: tracksRows(s.Metadata())})
}

// rewriteScan are the options of a scan whose rows are written again: with their ids, where the table promises that
// rows keep them.
func (s *Snapshot) rewriteScan() *ScanOptions {
	return &ScanOptions{Concurrency: 2, RowIDs: tracksRows(s.Metadata())}
}

// copyRows writes the rows of the job's files one after another. All of them are of one partition, so that the rows of
// the new files, put one after another, are these rows in their order.
func (r *optimizer) copyRows(ctx context.Context, j *job, w *Writer) (*rewritten, error) {
	var from origins
	opts := r.snap.rewriteScan()
	opts.coded = true
	for rows, err := range r.snap.ScanFiles(ctx, j.files, opts) {
		if err != nil {
			return nil, err
		}
		err = w.Write(ctx, rows.Batch)
		rows.Batch.Release()
		if err != nil {
			return nil, err
		}
		from.add(rows.File, rows.Rows)
	}
	adds, err := w.Close(ctx)
	if err != nil {
		return nil, err
	}
	done := &rewritten{job: j, adds: adds, rows: w.Rows()}
	done.origins, err = from.split(adds)
	return done, err
}

// conserves makes sure that no row was lost or made: what the log promises of the old files, what was read and what
// the new files hold are the same number.
func (d *rewritten) conserves() error {
	var written int64
	for i := range d.adds {
		n, ok := recordCount(d.adds[i].Stats)
		if !ok {
			return fmt.Errorf("the new file %s does not tell its rows", d.adds[i].Path)
		}
		written += n
	}
	if written != d.rows {
		return fmt.Errorf("%d rows went into new files that hold %d", d.rows, written)
	}
	if d.job.rows >= 0 && d.rows != d.job.rows {
		return corrupt("%d files, the first %s, hold %d live rows; by the log they should hold %d: check the table",
			len(d.job.files), d.job.files[0].Path, d.rows, d.job.rows)
	}
	return nil
}

// origins are runs of rows in the order in which they are written.
type origins []Origin

// add appends rows of a file, by ascending positions.
func (o *origins) add(file int, rows []int64) {
	for len(rows) > 0 {
		n := 1
		if last := rows[len(rows)-1] - rows[0]; last == int64(len(rows)-1) {
			n = len(rows)
		}
		for n < len(rows) && rows[n] == rows[0]+int64(n) {
			n++
		}
		o.run(file, rows[0], int64(n))
		rows = rows[n:]
	}
}

func (o *origins) run(file int, first, rows int64) {
	if n := len(*o); n > 0 {
		if last := &(*o)[n-1]; last.File == file && last.First+last.Rows == first {
			last.Rows += rows
			return
		}
	}
	*o = append(*o, Origin{File: file, First: first, Rows: rows})
}

// split divides the runs among the new files, by how many rows each has.
func (o origins) split(adds []Add) ([][]Origin, error) {
	all := make([][]Origin, len(adds))
	for i := range adds {
		left, _ := recordCount(adds[i].Stats)
		for left > 0 {
			if len(o) == 0 {
				return nil, fmt.Errorf("the new file %s has %d rows too many", adds[i].Path, left)
			}
			run := o[0]
			run.Rows = min(run.Rows, left)
			all[i] = append(all[i], run)
			left -= run.Rows
			if o[0].Rows -= run.Rows; o[0].Rows == 0 {
				o = o[1:]
			} else {
				o[0].First += run.Rows
			}
		}
	}
	if len(o) > 0 {
		return nil, errors.New("the new files have rows too few")
	}
	return all, nil
}

// commit makes one version of the batch.
func (r *optimizer) commit(ctx context.Context, done []*rewritten) error {
	tx := r.table.Begin(r.snap, nil)
	var n OptimizeResult
	for _, d := range done {
		tx.Rewrite(Rewrite{Removed: d.job.files, Added: d.adds, Origins: d.origins})
		n.RemovedFiles += int64(len(d.job.files))
		n.RemovedBytes += d.job.bytes
		n.AddedFiles += int64(len(d.adds))
		n.Rows += d.rows
		n.DeletedRows += d.job.deleted()
		for i := range d.adds {
			n.AddedBytes += d.adds[i].Size
		}
	}
	tx.RowIDsKept(true)
	tx.Operation("OPTIMIZE", r.parameters(), n.metrics())
	tx.UserMetadata(r.opts.UserMetadata)
	result, err := r.put(ctx, tx)
	if err != nil {
		return err
	}
	all := &r.result
	all.Version = result.Version
	all.Commits++
	all.RemovedFiles += n.RemovedFiles
	all.RemovedBytes += n.RemovedBytes
	all.AddedFiles += n.AddedFiles
	all.AddedBytes += n.AddedBytes
	all.Rows += n.Rows
	all.DeletedRows += n.DeletedRows
	for _, d := range done {
		r.added = append(r.added, d.adds...)
	}
	r.meter.count(func(p *OptimizeProgress) { p.Commits++ })
	return nil
}

// put commits the transaction, within what the caller of Repack puts around it. What the commit says counts, if it was made:
// files of one that landed must stay.
func (r *optimizer) put(ctx context.Context, tx *Transaction) (result CommitResult, err error) {
	if r.around == nil {
		return tx.Commit(ctx)
	}
	made := false
	refused := r.around(ctx, func(ctx context.Context) (CommitResult, error) {
		made = true
		result, err = tx.Commit(ctx)
		return result, err
	})
	if !made {
		return result, errors.Join(errors.New("no commit was made"), refused)
	}
	return result, err
}

// parameters are those of Spark's OPTIMIZE.
func (r *optimizer) parameters() map[string]string {
	p := map[string]string{"predicate": "[]", "zOrderBy": "[]", "auto": "false", "clusterBy": "[]"}
	if r.opts.Where != nil {
		p["predicate"] = jsonList([]string{r.opts.Where.String()})
	}
	if r.layout != nil {
		r.layout.describe(p)
	}
	return p
}

// metrics are those of Spark's OPTIMIZE that add up.
func (n *OptimizeResult) metrics() map[string]string {
	text := func(v int64) string { return strconv.FormatInt(v, 10) }
	return map[string]string{"numRemovedFiles": text(n.RemovedFiles), "numRemovedBytes": text(n.RemovedBytes),
		"numAddedFiles": text(n.AddedFiles), "numAddedBytes": text(n.AddedBytes),
		"numOutputRows": text(n.Rows)}
}

// drop deletes files that no commit names. What cannot be deleted is left to a vacuum.
func (r *optimizer) drop(ctx context.Context, done []*rewritten) {
	ctx = context.WithoutCancel(ctx)
	for _, d := range done {
		if d == nil {
			continue
		}
		for i := range d.adds {
			if key, ok := r.snap.table.within(d.adds[i].Path); ok {
				_ = r.table.st.Delete(ctx, key)
			}
		}
	}
}
