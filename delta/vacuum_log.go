package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/freshet-io/freshet/store"
)

// changeDataFolder holds the files of the change feed. Spec: "Change Data Files".
const changeDataFolder = "_change_data"

// lastVacuumKey is the file in which Spark keeps how far a vacuum has gone: one that only looks at the log goes on
// from there.
const lastVacuumKey = logDir + "_last_vacuum_info"

// lastVacuum is the content of lastVacuumKey.
type lastVacuum struct {
	// Version is the last one that was older than the retention of the vacuum; nil when there was none.
	Version *int64 `json:"latestCommitVersionOutsideOfRetentionWindow,omitempty"`
}

// lastExpired is the newest version that was committed not after the cut-off, -1 when there is none.
func (v *vacuum) lastExpired(ctx context.Context) (int64, error) {
	last := int64(-1)
	for c, err := range v.table.commitFiles(ctx, 0) {
		if err != nil {
			return -1, err
		}
		if c.version > v.snap.version || c.at.After(v.cutoff) {
			break
		}
		last = c.version
	}
	return last, nil
}

// logged are the files that commits up to the version end removed, since the vacuum before, and that are still there.
// It fails when log cleanup was quicker than the vacuums, so that nobody can tell any more which files those are.
func (v *vacuum) logged(ctx context.Context, end int64, take func(store.Object) error) error {
	if end < 0 {
		return nil
	}
	from, err := v.firstUnseen(ctx)
	if err != nil {
		return err
	}
	var seen keySet
	once := func(key string, inside bool) error {
		if !inside || seen.has(key) {
			return nil
		}
		seen.add(key)
		o, err := v.table.st.Stat(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return take(o)
	}
	return v.eachRemove(ctx, from, end, func(r *Remove) error {
		if err := once(v.snap.table.within(r.Path)); err != nil {
			return err
		}
		return once(v.snap.ownVectorKey(r.DeletionVector))
	})
}

// firstUnseen is the version from which on no vacuum has looked at the commits.
func (v *vacuum) firstUnseen(ctx context.Context) (int64, error) {
	from := int64(0)
	data, err := v.table.st.Get(ctx, lastVacuumKey)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return 0, err
	}
	var last lastVacuum
	if err == nil && json.Unmarshal(data, &last) == nil && last.Version != nil && *last.Version >= 0 {
		from = *last.Version + 1
	}
	first := int64(-1)
	for c, err := range v.table.commitFiles(ctx, 0) {
		if err != nil {
			return 0, err
		}
		first = c.version
		break
	}
	if first > from {
		return 0, fmt.Errorf("the log begins with version %d, the commits from %d on were cleaned away before a vacuum "+
			"saw what they removed: do a full vacuum, not a lite one", first, from)
	}
	return from, nil
}

// remember notes how far the vacuum has gone.
func (v *vacuum) remember(ctx context.Context, end int64) error {
	var last lastVacuum
	if end >= 0 {
		last.Version = &end
	}
	data, err := json.Marshal(last)
	if err != nil {
		return err
	}
	return v.table.st.Put(ctx, lastVacuumKey, append(data, '\n'))
}

// logStart counts what there is to delete and says so in the table's log.
func (v *vacuum) logStart(ctx context.Context, find found, end int64) error {
	var files, bytes int64
	err := find(ctx, end, func(o store.Object) error {
		reason, err := v.judge(ctx, o)
		if reason == VacuumUnreferenced && err == nil {
			files++
			bytes += o.Size
		}
		return err
	})
	if err != nil {
		return err
	}
	standard, err := v.snap.state.meta.duration(propFileRetention, defaultFileRetention)
	if err != nil {
		return err
	}
	params := map[string]string{"retentionCheckEnabled": strconv.FormatBool(!v.opts.Force),
		"defaultRetentionMillis": strconv.FormatInt(standard.Milliseconds(), 10)}
	if v.opts.Retention != 0 {
		params["specifiedRetentionMillis"] = strconv.FormatInt(v.result.Retention.Milliseconds(), 10)
	}
	return v.log(ctx, "VACUUM START", params, map[string]string{
		"numFilesToDelete": strconv.FormatInt(files, 10), "sizeOfDataToDelete": strconv.FormatInt(bytes, 10)})
}

// logEnd says in the table's log what was deleted.
func (v *vacuum) logEnd(ctx context.Context) error {
	return v.log(ctx, "VACUUM END", map[string]string{"status": "COMPLETED"}, map[string]string{
		"numDeletedFiles": strconv.FormatInt(v.result.Deleted, 10), "numVacuumedDirectories": "0"})
}

// log commits a note that changes nothing.
func (v *vacuum) log(ctx context.Context, operation string, params, metrics map[string]string) error {
	snap, err := v.table.Snapshot(ctx)
	if err != nil {
		return err
	}
	tx := v.table.Begin(snap, nil)
	tx.Operation(operation, params, metrics)
	_, err = tx.Commit(ctx)
	return err
}
