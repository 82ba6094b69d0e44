package lake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// UpkeepOptions tune what is done beside the stream for those who read a table. The zero value of each field means its
// default.
type UpkeepOptions struct {
	// Share is the share of the time of all processors that upkeep may work, more than 0 and up to 1. Default 0.1.
	Share float64
	// MemoryBytes bounds what a file that is rewritten holds in memory until it is full. Default 64 MiB.
	MemoryBytes int64
	// Deleted is the share of deleted rows in a partition above which the files that have most of them are written
	// without. Default 0.05.
	Deleted float64
	// SmallFiles is from how many small files of about one size on a partition to which rows come has some of them packed:
	// all, or in a table with a key the older half. Default 64; 32 in a table with a key, as each commit may touch them all.
	SmallFiles int
	// ClosedAfter is how long after its last rows a partition counts as closed. One with a day before today among its values
	// does so after 5 minutes. Default 1 h.
	ClosedAfter time.Duration
	// Retention is for how long files stay that no version needs any more; at least 168 h. Default:
	// delta.deletedFileRetentionDuration of the table, and never less than 168 h. Negative: they stay for good.
	Retention time.Duration
	// Done is told of each piece of work, from one goroutine. May be nil.
	Done func(freshet.Upkeep)
}

// shortestRetention is what keeps slow readers and writers from losing files under their hands.
const shortestRetention = 168 * time.Hour

// leastMemory is what rewriting a file takes at least.
const leastMemory = 1 << 20

// Validate reports all faults.
func (o *UpkeepOptions) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !(o.Share >= 0 && o.Share <= 1) {
		fault("share of processors: found %v, wanted more than 0 and up to 1", o.Share)
	}
	if !(o.Deleted >= 0 && o.Deleted <= 1) {
		fault("share of deleted rows: found %v, wanted more than 0 and up to 1", o.Deleted)
	}
	if o.MemoryBytes != 0 && o.MemoryBytes < leastMemory {
		fault("memory: found %d bytes, wanted 1MiB or more", o.MemoryBytes)
	}
	if o.SmallFiles < 0 || o.SmallFiles == 1 {
		fault("small files: found %d, wanted 2 or more", o.SmallFiles)
	}
	if o.Retention > 0 && o.Retention < shortestRetention {
		fault("retention: found %v, wanted %v or more: whoever reads or writes for longer than that loses files", o.Retention,
			shortestRetention)
	}
	return errors.Join(faults...)
}

func (o *UpkeepOptions) withDefaults(keyed bool) UpkeepOptions {
	var r UpkeepOptions
	if o != nil {
		r = *o
	}
	few := 64
	if keyed {
		few = 32
	}
	r.Share = cmp.Or(r.Share, 0.1)
	r.MemoryBytes = cmp.Or(max(r.MemoryBytes, 0), 64<<20)
	r.Deleted = cmp.Or(r.Deleted, 0.05)
	r.SmallFiles = cmp.Or(r.SmallFiles, few)
	r.ClosedAfter = cmp.Or(max(r.ClosedAfter, 0), time.Hour)
	if r.Done == nil {
		r.Done = func(freshet.Upkeep) {}
	}
	return r
}

// Condition is how a table stands, as readers feel it.
type Condition struct {
	Files, SmallFiles int64 // small: below half of the size that files are made for
	Bytes             int64
	Rows, DeletedRows int64 // of files that tell; deleted ones are among the rows
	TargetFileBytes   int64 // the size that files are made for
	// Needs are what upkeep would do now, the most urgent first.
	Needs []Need
	// Clustered says that rows are laid out by columns, so that upkeep leaves the files to `freshet table optimize`.
	Clustered bool

	again  time.Time // when there may be other needs though nothing came; zero: never
	enough int       // commits before which there are none for their small files
}

// targetFileBytes is the size that files are made for where nobody says otherwise.
const targetFileBytes = 128 << 20

// surveyed is how many files that may be worth rewriting are remembered; further ones wait for the next look.
const surveyed = 50_000

// Survey finds out how a table stands and what upkeep would do. Memory: that of the files that are small or have deleted
// rows, up to 50,000. now is the time by which partitions count as closed. A nil opts means defaults; those of a table
// with a key differ, which keyed tells. Errors: as delta.Snapshot.Files; of the store.
func Survey(ctx context.Context, snap *delta.Snapshot, now time.Time, keyed bool, opts *UpkeepOptions) (*Condition,
	error) {
	s := &surveyor{snap: snap, planner: planner{opts: opts.withDefaults(keyed), keyed: keyed, now: now}}
	c, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if commits := snap.Version() - snap.CheckpointVersion(); (*delta.CheckpointPolicy)(nil).Due(snap) {
		c.Needs = append(c.Needs, Need{Kind: Checkpoint, Why: fmt.Sprintf("the last one is %d commits back", commits)})
	}
	l, err := readLease(ctx, snap.Table().Store())
	if err != nil {
		return nil, err
	}
	if at := nextVacuum(snap, l, s.opts.Retention); !at.IsZero() && !at.After(now) {
		c.Needs = append(c.Needs, Need{Kind: Vacuum, Why: vacuumWhy(l)})
	}
	return c, nil
}

// surveyor makes one survey.
type surveyor struct {
	planner
	snap *delta.Snapshot
	jobs map[string]int // of files that this process has rewritten: which job did

	commits int64                // since the last look
	rents   map[string]int64     // as candidate has them, by path, up to the last look
	paid    map[string]int64     // up to this one
	came    map[string]time.Time // when rows came last to the partitions that were open at the last look

	partitions map[string]*partition
	kept       int
}

func (s *surveyor) look(ctx context.Context) (*Condition, error) {
	if s.target <= 0 {
		s.target = targetFileBytes
		if s.snap.Property("delta.targetFileSize") != "" {
			var err error
			if s.target, err = s.snap.TargetFileBytes(); err != nil {
				return nil, err
			}
		}
	}
	s.partitions, s.paid = map[string]*partition{}, map[string]int64{}
	c := &Condition{TargetFileBytes: s.target}
	clustered, err := s.snap.ClusteringColumns()
	if err != nil {
		return nil, err
	}
	c.Clustered = len(clustered) > 0
	for add, err := range s.snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		s.take(add, c)
	}
	if !c.Clustered {
		s.judge(c)
	}
	return c, nil
}

// judge gathers the needs of all partitions.
func (s *surveyor) judge(c *Condition) {
	most := 0
	for _, name := range slices.Sorted(maps.Keys(s.partitions)) {
		d, p := s.partitions[name], s.of(s.partitions[name])
		c.Needs = append(c.Needs, p.needs(d)...)
		if s.closed(d) {
			continue
		}
		most = max(most, len(p.crowded(d)))
		if at := s.closes(d); len(d.candidates) > 1 && (c.again.IsZero() || at.Before(c.again)) {
			c.again = at
		}
	}
	c.enough = max(s.opts.SmallFiles-most, s.opts.SmallFiles/4)
	slices.SortStableFunc(c.Needs, func(a, b Need) int { return cmp.Compare(b.Files, a.Files) })
}

// open tells when rows came last to the partitions that are open. The next look must be told: it finds that in no file once
// all that came have been rewritten.
func (s *surveyor) open() map[string]time.Time {
	came := map[string]time.Time{}
	for name, d := range s.partitions {
		if !s.closed(d) {
			came[name] = d.newest
		}
	}
	return came
}

// take notes a live file.
func (s *surveyor) take(add *delta.Add, c *Condition) {
	name := partitionText(add.PartitionValues)
	d := s.partitions[name]
	if d == nil {
		d = &partition{name: name, over: overBy(add.PartitionValues, s.now.UTC().Format(time.DateOnly)), newest: s.came[name]}
		s.partitions[name] = d
	}
	job := s.jobs[add.Path]
	if at := time.UnixMilli(add.ModificationTime); job == 0 && at.After(d.newest) {
		d.newest = at
	}
	var gone int64
	if add.DeletionVector != nil {
		gone = add.DeletionVector.Cardinality
		s.paid[add.Path] = s.rents[add.Path] + s.commits*int64(add.DeletionVector.SizeInBytes)
	}
	f := candidate{live: add.Size, job: job, rent: s.paid[add.Path]}
	rows, known := add.PhysicalRows()
	if known && rows > 0 {
		f.deleted = float64(gone) / float64(rows)
		f.live, f.rows = f.live-int64(f.deleted*float64(add.Size)), rows-gone
		d.rows, d.deleted = d.rows+rows, d.deleted+gone
		c.Rows, c.DeletedRows = c.Rows+rows, c.DeletedRows+gone
	}
	d.files, d.bytes = d.files+1, d.bytes+add.Size
	c.Files, c.Bytes = c.Files+1, c.Bytes+add.Size
	if add.Size < s.target/2 {
		c.SmallFiles++
	}
	if (add.Size < s.full() || gone > 0) && s.kept < surveyed {
		f.add = *add
		if f.add.Stats = ""; known {
			f.add.Stats = fmt.Sprintf(`{"numRecords":%d}`, rows)
		}
		d.candidates = append(d.candidates, f)
		s.kept++
	}
}
