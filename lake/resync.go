package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// ResyncPlan is a table that is being loaded again: a copy of it grows in a folder of the table's own, until one commit
// of the table takes its old files out and those of the copy in, with the copy's progress.
type ResyncPlan struct {
	By     string    `json:"by"`
	Since  time.Time `json:"since"`
	Why    string    `json:"why,omitempty"`
	Folder string    `json:"folder"` // of the copy, below the table
	Number int64     `json:"number"` // that the commit records; the one before has a smaller one
}

// ErrBehind says that the copy does not hold all yet that the table does: it has to catch up.
var ErrBehind = errors.New("the copy is behind the table")

// Resync loads one table of an app again. Its steps may be repeated from the first on, also by another process, as long as
// the plan stays.
type Resync struct {
	App  string
	Plan ResyncPlan
	Name string      // of the table, for people
	Main store.Store // the table
	Copy store.Store // Plan.Folder below it
	// Quarantine are the quarantine tables of the table and of the copy, and CopyName the copy's name in the latter.
	Quarantine, CopyQuarantine store.Store
	CopyName                   string
	// Log is the change log beside the table, which LogName names as the pipeline does; "": there is none. See
	// Group.SettleResync.
	Log     store.Store
	LogName string
	// Whole says that the copy has all rows that its source had when it began to read: then all that the table could not take is
	// settled by it, wherever it came from.
	Whole bool
	// Masks are those of the copy, which the table has with it. See TargetOptions.
	Masks      map[string]string
	EngineInfo string // names the writer in the tables' history; "": the default
}

// NewResyncPlan plans to load the table at the root of st again. Errors: *freshet.Error when other apps have progress in
// it, whose rows would be lost.
func NewResyncPlan(ctx context.Context, st store.Store, app string, p ResyncPlan) (*ResyncPlan, error) {
	snap, err := openTable(ctx, st, "")
	if err != nil {
		return nil, err
	}
	all, err := ReadProgress(ctx, st)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, a := range all {
		if a.App != app && !strings.Contains(a.App, "#") {
			others = append(others, a.App)
		}
	}
	if len(others) > 0 {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: st.URL(),
			Msg: fmt.Sprintf("the table has progress of others than %s: %s; their rows would be lost", app,
				strings.Join(others, ", ")),
			Fix: "load the table of a pipeline that is its only writer"}
	}
	last, _ := snap.Txn(resyncTxn(app))
	p.Number = last + 1
	p.Folder = fmt.Sprintf("resync-%d", p.Number)
	return &p, nil
}

// copied are the properties of a table that its copy has too: what data files depend on.
func copied(properties map[string]string) map[string]string {
	out := maps.Clone(properties)
	maps.DeleteFunc(out, func(name, _ string) bool {
		low := strings.ToLower(name)
		return low == strings.ToLower(changeFeed) || low == strings.ToLower(txnRetention) ||
			strings.Contains(low, "rowtracking") || strings.Contains(low, "incommittimestamp")
	})
	return out
}

// Prepare makes the copy, empty and like the table, unless it is there.
func (r *Resync) Prepare(ctx context.Context) error {
	main, err := openTable(ctx, r.Main, r.EngineInfo)
	if err != nil {
		return err
	}
	if r.swapped(main) {
		return nil
	}
	log, err := r.log(ctx)
	if err == nil && log != nil {
		err = r.logMasks(log)
	}
	if err != nil {
		return err
	}
	properties := withoutMasks(copied(main.Metadata().Configuration))
	maps.Copy(properties, maskProperties(r.Masks))
	_, err = delta.Create(ctx, r.Copy, &delta.CreateOptions{Schema: r.copySchema(main), PartitionBy: main.PartitionColumns(),
		Properties: properties, Name: r.Plan.Folder, EngineInfo: r.EngineInfo})
	if err != nil && !errors.Is(err, delta.ErrTableExists) {
		return explain(r.Name, err)
	}
	return nil
}

func (r *Resync) swapped(main *delta.Snapshot) bool {
	v, _ := main.Txn(resyncTxn(r.App))
	return v >= r.Plan.Number
}

// Swapped reports whether the table has the copy's files already.
func (r *Resync) Swapped(ctx context.Context) (bool, error) {
	main, err := openTable(ctx, r.Main, r.EngineInfo)
	return err == nil && r.swapped(main), err
}

// Swap makes the copy's files the table's, in one commit with the copy's progress; all that was in the table goes. A process
// that commits to the table meanwhile either comes first, and Swap looks again, or finds that its progress is not what it
// started from. Errors: ErrBehind.
func (r *Resync) Swap(ctx context.Context) (version int64, err error) {
	for range maxRaces {
		main, err := openTable(ctx, r.Main, r.EngineInfo)
		if err != nil {
			return 0, err
		}
		if r.swapped(main) {
			return main.Version(), nil
		}
		copied, err := openTable(ctx, r.Copy, "")
		if err != nil {
			return 0, err
		}
		log, err := r.log(ctx)
		if err != nil {
			return 0, err
		}
		tx, err := r.build(ctx, main, copied, log)
		if err != nil {
			return 0, err
		}
		done, err := tx.Commit(ctx)
		switch {
		case err == nil:
			return done.Version, nil
		case !errors.Is(err, delta.ErrConflict):
			return 0, explain(r.Name, err)
		}
	}
	return 0, explain(r.Name, delta.ErrConflict)
}

// log is the newest snapshot of the change log; nil: there is none.
func (r *Resync) log(ctx context.Context) (*delta.Snapshot, error) {
	if r.LogName == "" {
		return nil, nil
	}
	snap, err := openTable(ctx, r.Log, "")
	if errors.Is(err, delta.ErrNoTable) {
		return nil, nil
	}
	return snap, err
}

// build is the commit that Swap makes of these; log may be nil.
func (r *Resync) build(ctx context.Context, main, copied, log *delta.Snapshot) (*delta.Transaction, error) {
	set, err := r.progress(main, copied)
	if err == nil && log != nil {
		_, err = r.progress(log, copied)
	}
	if err != nil {
		return nil, err
	}
	r.owe(set, main, log)
	set[resyncTxn(r.App)] = r.Plan.Number
	tx := main.Table().Begin(main, nil)
	set.addTo(tx, main)
	tx.ReadTable()
	rows := map[string]int64{}
	for add, err := range main.Files(ctx, nil) {
		if err != nil {
			return nil, explain(r.Name, err)
		}
		rows["numRemovedFiles"]++
		tx.Remove(add.Remove())
	}
	for add, err := range copied.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, explain(r.Name, err)
		}
		rows["numAddedFiles"]++
		rows["numOutputBytes"] += add.Size
		tx.Add(r.taken(*add))
	}
	if err := r.fit(tx, main, copied); err != nil {
		return nil, err
	}
	metrics := map[string]string{}
	for name, n := range rows {
		metrics[name] = fmt.Sprint(n)
	}
	tx.Operation("WRITE", map[string]string{"mode": "Overwrite", resyncParam: r.App}, metrics)
	tx.BlindAppend(false)
	tx.UserMetadata(r.Plan.Why)
	return tx, nil
}

// taken is a file of the copy as the table names it.
func (r *Resync) taken(add delta.Add) delta.Add {
	add.Path = r.Plan.Folder + "/" + add.Path
	add.DataChange, add.BaseRowID, add.DefaultRowCommitVersion = true, nil, nil
	if v := add.DeletionVector; v != nil && v.StorageType == "u" {
		here := *v
		prefix := v.PathOrInlineDv[:len(v.PathOrInlineDv)-20] // behind it stands the encoded id, always as long
		here.PathOrInlineDv = strings.TrimRight(r.Plan.Folder+"/"+prefix, "/") + v.PathOrInlineDv[len(prefix):]
		add.DeletionVector = &here
	}
	return add
}

// fit has the table get columns that the copy has and it has not.
func (r *Resync) fit(tx *delta.Transaction, main, copied *delta.Snapshot) error {
	if !slices.Equal(main.PartitionColumns(), copied.PartitionColumns()) {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: r.Name,
			Msg: "its partition columns have changed while it was loaded again", Fix: "cancel the resync, and begin anew"}
	}
	meta, other, err := r.masked(main, copied)
	if err != nil {
		return explain(r.Name, err)
	}
	mine, err := meta.Schema()
	if err != nil {
		return explain(r.Name, err)
	}
	merged, wider, err := mine.Merge(copied.Schema())
	if err != nil {
		return explain(r.Name, err)
	}
	if wider {
		if meta, err = meta.WithSchema(merged); err != nil {
			return explain(r.Name, err)
		}
	}
	marks := copied.Metadata().HighWater()
	if len(marks) > 0 {
		if meta, err = meta.WithHighWater(marks); err != nil {
			return explain(r.Name, err)
		}
	}
	if other || wider || len(marks) > 0 {
		tx.SetMetadata(meta)
	}
	if err := main.Metadata().Takes(copied.Metadata()); err != nil {
		return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: r.Name, Err: err,
			Msg: "the table has changed while it was loaded again", Fix: "cancel the resync, and begin anew"}
	}
	return nil
}

// progress are the txns that the copy has of the app, which hold all that those of the table do, or of its change log. Errors:
// ErrBehind.
func (r *Resync) progress(main, copied *delta.Snapshot) (txns, error) {
	f := form{app: r.App}
	ours := func(id string) bool { return strings.HasPrefix(id, r.App+"-") || id == f.marker() }
	set := txns{}
	for id, txn := range copied.Txns() {
		if ours(id) {
			set[id] = txn.Version
		}
	}
	for id, txn := range main.Txns() {
		if !ours(id) || strings.Contains(id, "#") {
			continue
		}
		if have, ok := set[id]; ok && have < txn.Version {
			return nil, fmt.Errorf("%w: %s is at %d, and the table's at %d", ErrBehind, id, have, txn.Version)
		}
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%w: it has no progress", ErrBehind)
	}
	return set, nil
}

// Settle brings the table's quarantine to what the copy found: what it could take that the table could not is closed, and
// what it could not take is there. What the copy's source has noted with it holds for the table. Done twice it changes nothing, and once Drop has begun, neither.
func (r *Resync) Settle(ctx context.Context) error {
	if _, err := openTable(ctx, r.Copy, ""); errors.Is(err, delta.ErrNoTable) || errors.Is(err, delta.ErrCorrupt) {
		return nil
	}
	if err := carryBookmarks(ctx, r.Copy, r.Main, r.App); err != nil {
		return explain(r.Name, err)
	}
	q := newQuarantine(r.Quarantine.URL(), r.Quarantine, r.EngineInfo)
	for range maxRaces {
		err := r.settle(ctx, q)
		if !errors.Is(err, delta.ErrConflict) {
			return explain(q.name, err)
		}
	}
	return explain(q.name, delta.ErrConflict)
}

func (r *Resync) settle(ctx context.Context, q *quarantine) error {
	found, err := openEntries(ctx, newQuarantine(r.CopyQuarantine.URL(), r.CopyQuarantine, ""), &Filter{App: r.App, Table: r.CopyName})
	if err != nil {
		return err
	}
	snap, err := q.look(ctx)
	if err != nil || snap == nil && len(found) == 0 {
		return err
	}
	if snap, err = q.need(ctx); err != nil {
		return err
	}
	starts, err := r.starts(ctx)
	if err != nil {
		return err
	}
	s := newSettlement(snap, r.App, r.Name)
	defer s.release()
	err = scanEntries(ctx, snap, &Filter{App: r.App, Table: r.Name}, func(e *Entry, _ error) bool {
		at := entryPlace{r.App, "", e.Lane, place{e.Seq, e.Row}}
		if first, ok := starts[e.Lane]; (r.Whole || ok && e.Seq > first) && found[at] == nil {
			s.add(eventLanded, e)
		}
		delete(found, at)
		return true
	})
	if err != nil {
		return err
	}
	for _, e := range found {
		s.rows.app, s.rows.table = r.App, r.Name
		s.rows.addChange(eventRejected, e.Lane, &e.Reject, e.change)
	}
	if s.rows.n == 0 {
		return nil
	}
	return s.commit(ctx, q.st, nil)
}

// starts are where the lanes of the copy began, which is behind what its source no longer had: its first version after that
// which made it tells. Of entries before that, the copy says nothing.
func (r *Resync) starts(ctx context.Context) (freshet.Progress, error) {
	d, err := delta.Open(ctx, r.Copy, nil)
	if err != nil {
		return nil, err
	}
	snap, err := d.SnapshotAt(ctx, 1)
	if errors.Is(err, delta.ErrVersionNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := form{app: r.App}
	number, _ := f.found(snap)
	f.many = number == formMany
	starts := freshet.Progress{}
	for _, origin := range f.origins(snap) {
		prefix := f.lane(freshet.Lane{Origin: origin})
		for id, txn := range snap.Txns() {
			if name, ok := strings.CutPrefix(id, prefix); ok && isNumber(name) {
				starts[freshet.Lane{Origin: origin, OriginID: f.identityIn(snap, origin), Name: name}] = txn.Version
			}
		}
	}
	return starts, nil
}

// openEntries are the open entries that the filter chooses, by where they are, the table's name left out.
func openEntries(ctx context.Context, q *quarantine, f *Filter) (map[entryPlace]*Entry, error) {
	all := map[entryPlace]*Entry{}
	snap, err := q.look(ctx)
	if err != nil || snap == nil {
		return all, err
	}
	err = scanEntries(ctx, snap, f, func(e *Entry, _ error) bool {
		all[entryPlace{e.App, "", e.Lane, place{e.Seq, e.Row}}] = e
		return true
	})
	return all, err
}

// Drop deletes what is left of the copy: all of it, or, once it was swapped in, all but the files that are the table's now. Its
// key index goes too, which lies below indexDir.
func (r *Resync) Drop(ctx context.Context, indexDir string) error {
	swapped, err := r.Swapped(ctx)
	if err != nil {
		return err
	}
	r.dropIndex(ctx, indexDir)
	for o, err := range r.Main.List(ctx, r.Plan.Folder, "") {
		if err != nil {
			return explain(r.Name, err)
		}
		inside, below := strings.CutPrefix(o.Key, r.Plan.Folder+"/")
		if swapped && below && !strings.HasPrefix(inside, "_") {
			continue
		}
		if !below && !strings.HasPrefix(o.Key, r.Plan.Folder+"_") {
			continue // of another resync
		}
		if err := r.Main.Delete(ctx, o.Key); err != nil {
			return explain(r.Name, err)
		}
	}
	return nil
}

func (r *Resync) dropIndex(ctx context.Context, indexDir string) {
	snap, err := openTable(ctx, r.Copy, "")
	if err != nil {
		return
	}
	a := NewTarget(nil, r.App, &TargetOptions{Key: KeyOptions{IndexDir: indexDir}})
	if dir, err := a.indexesOf(snap.Metadata().ID); err == nil {
		_ = os.RemoveAll(dir) // it is nothing but a cache
	}
}
