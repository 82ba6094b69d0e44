package delta

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"time"
)

// keySet is a set of keys, as fingerprints: two keys that have one fingerprint make has say yes once too often, which
// keeps a file too many.
type keySet struct {
	seed maphash.Seed
	keys map[uint64]struct{}
}

func (s *keySet) add(key string) {
	if s.keys == nil {
		s.seed, s.keys = maphash.MakeSeed(), map[uint64]struct{}{}
	}
	s.keys[maphash.String(s.seed, key)] = struct{}{}
}

func (s *keySet) has(key string) bool {
	if s.keys == nil {
		return false
	}
	_, ok := s.keys[maphash.String(s.seed, key)]
	return ok
}

// mark gathers the files that must stay: those of the newest version, of kept versions, and those whose removal is
// younger than the retention.
func (v *vacuum) mark(ctx context.Context) error {
	audited, err := v.snap.audit(ctx)
	if err != nil {
		return err
	}
	for a, err := range v.snap.reconcile(ctx, kindAdd|kindRemove, nil, audited) {
		switch {
		case err != nil:
			return err
		case a.Add != nil:
			audited.take(a.Add)
			v.keep(v.snap, a.Add.Path, a.Add.DeletionVector)
		case !expiredBy(a.Remove, v.cutoff):
			v.keep(v.snap, a.Remove.Path, a.Remove.DeletionVector)
		}
	}
	if err := errors.Join(audited.end(), v.markCommits(ctx)); err != nil {
		return err
	}
	for _, version := range v.opts.KeepVersions {
		snap, err := v.table.SnapshotAt(ctx, version)
		if err != nil {
			return fmt.Errorf("version %d is to be kept: %w", version, err)
		}
		for key, err := range snap.Keys(ctx) {
			if err != nil {
				return fmt.Errorf("version %d is to be kept: %w", version, err)
			}
			v.used.add(key)
		}
	}
	return nil
}

// Keys yields the keys of all that is needed to read the snapshot's rows, as far as it lies below the table's folder: data
// files, and the files of deletion vectors, these once for each data file that has one. In no order. Errors: as Files.
func (s *Snapshot) Keys(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for a, err := range s.Files(ctx, nil) {
			if err != nil {
				yield("", err)
				return
			}
			if key, ok := s.table.within(a.Path); ok && !yield(key, nil) {
				return
			}
			if key, ok := s.ownVectorKey(a.DeletionVector); ok && !yield(key, nil) {
				return
			}
		}
	}
}

// markCommits finds removals that checkpoints have dropped already, because the vacuum's retention is longer than the
// table's own: in the commits themselves, as far back as the log goes.
func (v *vacuum) markCommits(ctx context.Context) error {
	own, err := v.snap.state.meta.duration(propFileRetention, defaultFileRetention)
	if err != nil || v.result.Retention <= own || v.snap.checkpoint == nil {
		return err
	}
	first := int64(-1)
	for c, err := range v.table.commitFiles(ctx, 0) {
		if err != nil {
			return err
		}
		if !c.at.Before(v.cutoff) {
			first = c.version
			break
		}
	}
	if first < 0 {
		return nil
	}
	return v.eachRemove(ctx, first, v.snap.version, func(r *Remove) error {
		if !expiredBy(r, v.cutoff) {
			v.keep(v.snap, r.Path, r.DeletionVector)
		}
		return nil
	})
}

// eachRemove yields the removals of the commits from one version to another.
func (v *vacuum) eachRemove(ctx context.Context, from, to int64, take func(*Remove) error) error {
	if from > to {
		return nil
	}
	for c, err := range v.table.fetchCommits(ctx, from, to) {
		if err != nil {
			return err
		}
		for a, err := range parseLog(commitKey(c.version), c.data, kindRemove) {
			if err != nil {
				return err
			}
			if a.Remove == nil {
				continue
			}
			if err := take(a.Remove); err != nil {
				return err
			}
		}
	}
	return nil
}

// expiredBy reports whether the removal is older than the cut-off. One without a time counts as old, as it does for
// Spark.
func expiredBy(r *Remove, cutoff time.Time) bool {
	return time.UnixMilli(deref(r.DeletionTimestamp)).Before(cutoff)
}

// keep notes a data file and its deletion vector's file, as far as they lie below the table's folder.
func (v *vacuum) keep(s *Snapshot, path string, vector *DeletionVector) {
	if key, ok := s.table.within(path); ok {
		v.used.add(key)
	}
	if key, ok := s.ownVectorKey(vector); ok {
		v.used.add(key)
	}
}

// ownVectorKey is the key of the file that holds a vector; ok is false when none below the table's folder does.
func (s *Snapshot) ownVectorKey(v *DeletionVector) (key string, ok bool) {
	if v == nil || v.StorageType == "i" {
		return "", false
	}
	name, err := vectorName(v)
	if err != nil {
		return "", false
	}
	return s.table.within(name)
}

// hidden reports whether a vacuum must leave the file alone because of its name: what begins with "_" or "." is
// somebody's own, but for the folder of the change feed and for folders of partition columns. A Hadoop checksum
// ".NAME.crc" goes with the file NAME. Iceberg's metadata lies in a folder of that name.
func (v *vacuum) hidden(key string) bool {
	parts := strings.Split(key, "/")
	last := len(parts) - 1
	if inner, ok := strings.CutPrefix(parts[last], "."); ok && strings.HasSuffix(inner, ".crc") {
		parts[last] = strings.TrimSuffix(inner, ".crc")
		if v.used.has(strings.Join(parts, "/")) {
			return true
		}
	}
	if parts[0] == "metadata" && len(parts) > 1 &&
		strings.Contains(v.snap.Property("delta.universalFormat.enabledFormats"), "iceberg") {
		return true
	}
	return slices.ContainsFunc(parts, v.hiddenPart)
}

func (v *vacuum) hiddenPart(part string) bool {
	if !strings.HasPrefix(part, "_") && !strings.HasPrefix(part, ".") {
		return false
	}
	if part == changeDataFolder {
		return false
	}
	column, _, _ := strings.Cut(part, "=")
	return column == part || !slices.ContainsFunc(v.snap.PartitionColumns(), func(c string) bool {
		return escapeHive(c) == column
	})
}
