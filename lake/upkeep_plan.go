package lake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freshet-io/freshet/delta"
)

// UpkeepKind is a kind of work that upkeep does.
type UpkeepKind string

// The kinds of upkeep.
const (
	Compact    UpkeepKind = "compact"    // small files become large ones
	Fold       UpkeepKind = "fold"       // files with many deleted rows are written without these
	Checkpoint UpkeepKind = "checkpoint" // the log is summed up, and cleaned; it follows commits, also without upkeep
	Vacuum     UpkeepKind = "vacuum"     // files that no version needs are deleted
)

// Need is a piece of work that a table wants to be done.
type Need struct {
	Kind      UpkeepKind
	Partition string // "day=2026-01-31/shop=3"; "" in a table without partitions
	Files     int
	Bytes     int64
	Why       string // for people: "70 small files"

	rows   int64         // that are live, as far as it is known
	groups [][]delta.Add // to be rewritten, each into as few files as its size asks for
}

const (
	// batchBytes is how much is rewritten in one commit, unless one file is more. It bounds what is lost when the commit
	// gives way, and for how long a stop is told late.
	batchBytes = 1 << 30
	// keyedRows is how many rows of a keyed table move in one commit.
	keyedRows = 1 << 20
	// fullShare is the share of the target size from which a file counts as full.
	fullShare = 0.9
	// settled is how long no rows have come to a partition that is over by its values before it counts as closed.
	settled = 5 * time.Minute
)

// partition is what upkeep knows of one partition.
type partition struct {
	name   string
	over   bool      // by its values no rows come any more
	newest time.Time // when rows came last

	files         int
	bytes         int64
	rows, deleted int64 // of files that tell
	candidates    []candidate
}

// candidate is a file that may be worth rewriting: it is not full, or has deleted rows.
type candidate struct {
	add     delta.Add // with no statistics but the number of rows
	live    int64     // about the bytes of its live rows
	rows    int64     // that are live; 0: not known
	deleted float64   // share of its rows
	job     int       // that wrote it in this process; 0: none
	rent    int64     // about the bytes of all deletion vectors that commits have written for it
}

// planner decides what is worth doing. It looks at nothing but what it is given.
type planner struct {
	opts   UpkeepOptions
	target int64 // bytes of a full file
	keyed  bool
	now    time.Time
}

// of is the planner of one partition. A file of a keyed table is full with keyedRows, too: its rows move in the key index
// while commits wait.
func (p *planner) of(d *partition) *planner {
	own := *p
	if p.keyed && d.rows > 0 {
		own.target = max(min(p.target, d.bytes*keyedRows/d.rows), 1)
	}
	return &own
}

// closed reports whether no more rows are expected.
func (p *planner) closed(d *partition) bool {
	return !p.now.Before(p.closes(d))
}

// closes is when the partition counts as closed if no rows come.
func (p *planner) closes(d *partition) time.Time {
	after := p.opts.ClosedAfter
	if d.over {
		after = min(after, settled)
	}
	return d.newest.Add(after)
}

// needs is what the partition wants, the most urgent first.
func (p *planner) needs(d *partition) []Need {
	slices.SortFunc(d.candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.add.ModificationTime, b.add.ModificationTime), cmp.Compare(a.add.Path, b.add.Path))
	})
	var out []Need
	add := func(n *Need) {
		if n != nil {
			n.Partition = d.name
			out = append(out, *n)
		}
	}
	if p.closed(d) {
		add(p.closing(d))
	} else {
		add(p.crowd(d))
	}
	if len(out) == 0 {
		add(p.fold(d))
	}
	return out
}

// closing packs all files of a closed partition that are not full, if that makes fewer.
func (p *planner) closing(d *partition) *Need {
	var rest []candidate
	var live int64
	for _, c := range d.candidates {
		if c.add.Size < p.full() {
			rest = append(rest, c)
			live += c.live
		}
	}
	if int64(len(rest)) <= max((live+p.target-1)/p.target, 1) || oneJob(rest) {
		return nil
	}
	quiet := p.now.Sub(d.newest).Truncate(time.Minute)
	return newNeed(Compact, rest[:p.batch(rest)], fmt.Sprintf("%d files are not full, and no rows came for %v", len(rest),
		quiet))
}

// oneJob reports whether one rewrite has made all of these, so that the next would make them again.
func oneJob(files []candidate) bool {
	return len(files) > 0 && files[0].job != 0 &&
		!slices.ContainsFunc(files, func(c candidate) bool { return c.job != files[0].job })
}

// crowd packs small files of an open partition that are of one class of size, once they are too many.
func (p *planner) crowd(d *partition) *Need {
	most := p.crowded(d)
	if len(most) < p.opts.SmallFiles {
		return nil
	}
	n := p.batch(most[:len(most)-p.opts.SmallFiles+p.packed()])
	return newNeed(Compact, most[:n], fmt.Sprintf("%d small files of about one size, and %d are too many", len(most),
		p.opts.SmallFiles))
}

// packed is how many small files are packed when there are just too many. Of a keyed table the younger half stays: rows
// that change often are in these, and would die in the new file, whose deletion vector is written by each commit.
func (p *planner) packed() int {
	if !p.keyed {
		return p.opts.SmallFiles
	}
	return max(p.opts.SmallFiles-p.opts.SmallFiles/2, 2)
}

// crowded are the small files of the class that has most of them, in their order.
func (p *planner) crowded(d *partition) (most []candidate) {
	classes := map[int][]candidate{}
	for _, c := range d.candidates {
		if c.live < p.target/2 {
			of := p.class(c.live)
			classes[of] = append(classes[of], c)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(classes)) {
		if len(classes[of]) > len(most) {
			most = classes[of]
		}
	}
	return most
}

// class is 0 for files of about the target size, and one more for each time that they are smaller by as many as are packed
// together, so that a row is rewritten once a class.
func (p *planner) class(live int64) int {
	n := 0
	for size := p.target / int64(p.packed()); live < size; size /= int64(p.packed()) {
		n++
	}
	return n
}

// fold writes files without their deleted rows: the most worn ones of a partition that has too many of these, and any for
// which deletion vectors have cost as much as to write it anew, since each commit that deletes a row of it writes the whole
// vector again. With that go those which have cost half as much, into one file, so that they need not be packed besides.
func (p *planner) fold(d *partition) *Need {
	worn, why := p.worn(d)
	if len(worn) == 0 {
		return nil
	}
	slices.SortStableFunc(worn, func(a, b candidate) int { return cmp.Compare(b.deleted, a.deleted) })
	worn = worn[:p.fill(worn)]
	slices.SortStableFunc(worn, func(a, b candidate) int {
		return cmp.Compare(a.add.ModificationTime, b.add.ModificationTime)
	})
	return newNeed(Fold, worn, why)
}

func (p *planner) worn(d *partition) (worn []candidate, why string) {
	if float64(d.deleted) > p.opts.Deleted*float64(d.rows) {
		for _, c := range d.candidates {
			if c.deleted > p.opts.Deleted/2 {
				worn = append(worn, c)
			}
		}
		return worn, fmt.Sprintf("%.0f %% of its rows are deleted", 100*float64(d.deleted)/float64(d.rows))
	}
	due := false
	for _, c := range d.candidates {
		if c.live >= p.target/int64(p.packed()) && c.rent > c.add.Size/2 {
			worn, due = append(worn, c), due || c.rent > c.add.Size
		}
	}
	if !due {
		return nil, ""
	}
	return worn, "to write deletion vectors again and again costs more"
}

func (p *planner) full() int64 { return int64(fullShare * float64(p.target)) }

// batch is how many of the files, from the first on, are rewritten in one commit.
func (p *planner) batch(files []candidate) int {
	var live int64
	for n, c := range files {
		if live += c.live; n > 1 && (live > max(batchBytes, p.target) || p.keyed && live > p.target) {
			return n
		}
	}
	return len(files)
}

// fill is how many of the files, from the first on, make one full file.
func (p *planner) fill(files []candidate) int {
	var live int64
	for n, c := range files {
		if live += c.live; n > 0 && live > p.target {
			return n
		}
	}
	return len(files)
}

func newNeed(kind UpkeepKind, files []candidate, why string) *Need {
	n := &Need{Kind: kind, Files: len(files), Why: why}
	group := make([]delta.Add, len(files))
	for i, c := range files {
		group[i] = c.add
		n.Bytes += c.add.Size
		n.rows += c.rows
	}
	n.groups = [][]delta.Add{group}
	return n
}

// partitionText names a partition as folders do.
func partitionText(values map[string]*string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text := name + "="
		if v := values[name]; v != nil {
			text += *v
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "/")
}

// overBy reports whether one of the partition's values is a day before today.
func overBy(values map[string]*string, today string) bool {
	for _, v := range values {
		if v == nil || len(*v) < len(time.DateOnly) {
			continue
		}
		day := (*v)[:len(time.DateOnly)]
		if _, err := time.Parse(time.DateOnly, day); err == nil && day < today {
			return true
		}
	}
	return false
}
