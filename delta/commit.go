package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"
)

// validate finds what is wrong with the transaction whatever it is built upon. Spec: "Actions" and "Action
// Reconciliation": at most one add and one remove of a path, one txn of an application, one change of a
// domain.
func (tx *Transaction) validate() error {
	seen := map[string]bool{}
	once := func(what, name string) error {
		if key := what + "\x00" + name; !seen[key] {
			seen[key] = true
			return nil
		}
		return fmt.Errorf("the transaction holds %s %q twice", what, name)
	}
	for i := range tx.adds {
		if tx.adds[i].Path == "" {
			return fmt.Errorf("add %d: %w", i, errNoPath)
		}
		if err := once("the file", canonicalPath(tx.adds[i].Path)); err != nil {
			return err
		}
	}
	for i := range tx.removes {
		if err := once("the removal of", canonicalPath(tx.removes[i].Path)); err != nil {
			return err
		}
	}
	for _, m := range tx.marks {
		if err := errors.Join(once("the file", m.key), once("the removal of", m.key)); err != nil {
			return err
		}
	}
	for _, r := range tx.rewrites {
		if err := r.check(); err != nil {
			return err
		}
		for i := range r.Added {
			if err := once("the file", canonicalPath(r.Added[i].Path)); err != nil {
				return err
			}
		}
		for i := range r.Removed {
			if err := once("the removal of", canonicalPath(r.Removed[i].Path)); err != nil {
				return err
			}
		}
	}
	for _, t := range tx.txns {
		if err := once("the progress of", t.AppID); err != nil {
			return err
		}
	}
	for _, d := range tx.domains {
		if err := once("the domain", d.Domain); err != nil {
			return err
		}
	}
	return nil
}

// build makes the commit that follows base: the snapshot that it will make, and its bytes.
func (tx *Transaction) build(ctx context.Context, base *Snapshot) (*Snapshot, []byte, error) {
	verified := time.Now()
	b := base.extend()
	b.inCommit = nil
	actions, ids, err := tx.actions(ctx, base, verified)
	if err != nil {
		return nil, nil, fmt.Errorf("commit version %d: %w", base.version+1, err)
	}
	for i := range actions {
		b.take(&actions[i])
	}
	b.tally.without(tx.again)
	next := base.version + 1
	if err := errors.Join(tx.checkNext(b.state, base), tx.checkRowTracking(ctx, base)); err != nil {
		return nil, nil, fmt.Errorf("commit version %d: %w", next, err)
	}
	info := tx.info
	if err := tx.setTimes(ctx, &info, base, b, verified); err != nil {
		return nil, nil, fmt.Errorf("commit version %d: %w", next, err)
	}
	body := appendLog(nil, slices.Concat([]Action{{CommitInfo: &info}}, actions))
	if body, err = tx.appendStream(ctx, body, b, ids); err != nil {
		return nil, nil, fmt.Errorf("commit version %d: %w", next, err)
	}
	b.close(next, body)
	snap, err := b.finish(base, verified)
	return snap, body, err
}

// streamed are the files of stream.
func (tx *Transaction) streamed() iter.Seq2[*Add, error] {
	if tx.stream == nil {
		return func(func(*Add, error) bool) {}
	}
	return tx.stream
}

// appendStream appends the lines of streamed files to the commit.
func (tx *Transaction) appendStream(ctx context.Context, body []byte, b *builder, ids *rowIDs) ([]byte, error) {
	for a, err := range tx.streamed() {
		if err == nil && ids != nil {
			err = ids.give(ctx, a)
		}
		if err != nil {
			return nil, err
		}
		action := Action{Add: a}
		b.take(&action)
		body = append(appendAction(body, &action), '\n')
	}
	return body, nil
}

// actions are the lines of the commit after the first and before those of streamed files, and what gives
// these their row ids; nil when they get none.
func (tx *Transaction) actions(ctx context.Context, base *Snapshot, now time.Time) (actions []Action, ids *rowIDs,
	err error,
) {
	ms := now.UnixMilli()
	adds := tx.allAdds()
	domains := tx.domains
	if proto, meta := tx.next(base); givesRowIDs(proto, meta) {
		var marked *DomainMetadata
		if ids, marked, err = tx.giveRowIDs(ctx, base, adds); err != nil {
			return nil, nil, err
		}
		if marked != nil {
			domains = append(slices.DeleteFunc(slices.Clone(domains), func(d DomainMetadata) bool {
				return d.Domain == rowTrackingDomain
			}), *marked)
		}
	}
	if tx.proto != nil {
		actions = append(actions, Action{Protocol: tx.proto})
	}
	if tx.meta != nil {
		m := tx.meta.Clone()
		tx.enableTimestamps(m, base)
		nameRowIDColumns(m)
		if err := tx.dateTypeChanges(m, base); err != nil {
			return nil, nil, err
		}
		actions = append(actions, Action{Metadata: m})
	}
	for _, t := range tx.txns {
		t.LastUpdated = &ms
		actions = append(actions, Action{Txn: &t})
	}
	for i := range domains {
		actions = append(actions, Action{DomainMetadata: &domains[i]})
	}
	for _, r := range tx.allRemoves() {
		if r.DeletionTimestamp == nil {
			r.DeletionTimestamp = &ms
		}
		actions = append(actions, Action{Remove: &r})
	}
	for i := range adds {
		actions = append(actions, Action{Add: &adds[i]})
	}
	for i := range tx.changes {
		actions = append(actions, Action{CDC: &tx.changes[i]})
	}
	return actions, ids, nil
}

// next is the protocol and the metadata that the transaction makes of the base's.
func (tx *Transaction) next(base *Snapshot) (*Protocol, *Metadata) {
	return cmp.Or(tx.proto, base.state.proto), cmp.Or(tx.meta, base.state.meta)
}

// checkNext makes sure that the table may be written as it is and as it will be.
func (tx *Transaction) checkNext(next tableState, base *Snapshot) error {
	if tx.meta != nil {
		schema, err := ParseSchema(tx.meta.SchemaString)
		if err != nil {
			return err
		}
		if err := checkNeeds(next.proto, base.state.meta, tx.meta, base.schema, schema); err != nil {
			return err
		}
		if err := checkPartitionColumns(schema, tx.meta.PartitionColumns); err != nil {
			return err
		}
	}
	if err := checkWrite(next.proto); err != nil {
		return err
	}
	if next.meta.boolean(propAppendOnly, false) && next.proto.Supports("appendOnly") {
		for _, r := range tx.allRemoves() {
			if r.DataChange {
				return fmt.Errorf("the table is append-only (delta.appendOnly): rows of %s cannot be removed", r.Path)
			}
		}
	}
	return nil
}

// tags are those of the commit's provenance.
func (tx *Transaction) tags(base *Snapshot) map[string]string {
	tags := maps.Clone(tx.info.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	if tracksRows(base.state.meta) && base.version >= 0 {
		tags["delta.rowTracking.preserved"] = strconv.FormatBool(tx.rowIDsPreserved())
	}
	if notes := tx.rewriteNotes(base); notes != "" {
		tags[rewriteTag] = notes
	}
	return tags
}

// setTimes completes the provenance. Spec: "In-Commit Timestamps": they increase with every version.
func (tx *Transaction) setTimes(ctx context.Context, info *CommitInfo, base *Snapshot, b *builder,
	now time.Time,
) error {
	if read := tx.base.version; read >= 0 {
		info.ReadVersion = &read
	}
	info.Timestamp, info.TxnID, info.EngineInfo = now.UnixMilli(), tx.id, tx.table.engine
	info.IsolationLevel = tx.isolation(b.state.meta)
	blind := info.IsBlindAppend != nil && *info.IsBlindAppend && tx.blindToFiles() // when unsure false: others trust it
	info.IsBlindAppend = &blind
	info.Tags = tx.tags(base)
	if !inCommitTimestamps(b.state.proto, b.state.meta) {
		return nil
	}
	ts := info.Timestamp
	if base.version >= 0 {
		at, err := base.Timestamp(ctx)
		if err != nil {
			return err
		}
		ts = max(ts, at.UnixMilli()+1)
	}
	info.InCommitTimestamp, info.Timestamp, b.inCommit = &ts, ts, &ts
	next := strconv.FormatInt(base.version+1, 10)
	if m := b.state.meta; tx.meta != nil && m.Configuration[propICTVersion] == next {
		m.Configuration[propICTTimestamp] = strconv.FormatInt(ts, 10)
	}
	return nil
}

// enableTimestamps records in the metadata from which version on commits carry timestamps, when this commit
// begins it.
func (tx *Transaction) enableTimestamps(m *Metadata, base *Snapshot) {
	proto, _ := tx.next(base)
	if base.version < 0 { // a table that has them from its beginning on needs no such record
		return
	}
	if inCommitTimestamps(proto, m) && !inCommitTimestamps(base.state.proto, base.state.meta) {
		m.Configuration[propICTVersion] = strconv.FormatInt(base.version+1, 10)
	}
}
