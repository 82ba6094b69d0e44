package delta

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// metadata is that of the older version, but for what must never go back: since when commits carry timestamps, the
// greatest id of a column and the last value of an identity column.
func (r *restore) metadata() (*Metadata, error) {
	m := r.then.state.meta.Clone()
	now := r.now.state.meta
	m.ID, m.CreatedTime = now.ID, now.CreatedTime
	carry := func(key string) {
		if v, ok := now.Configuration[key]; ok {
			m.Configuration[key] = v
		} else {
			delete(m.Configuration, key)
		}
	}
	if inCommitTimestamps(r.now.state.proto, now) && inCommitTimestamps(r.now.state.proto, m) {
		carry(propICTVersion)
		carry(propICTTimestamp)
	} else {
		delete(m.Configuration, propICTVersion)
		delete(m.Configuration, propICTTimestamp)
	}
	if then, ok := m.int(propMaxColumnID); ok {
		if id, ok := now.int(propMaxColumnID); ok {
			m.Configuration[propMaxColumnID] = strconv.FormatInt(max(id, then), 10)
		}
	}
	fields, changed, err := keepIdentity(r.then.Schema().Fields, r.now.Schema().Fields)
	if err != nil || !changed {
		return m, err
	}
	m.SchemaString = (&Schema{Fields: fields}).String()
	return m, nil
}

// identityMark is the last value that an identity column has given out, in the metadata of the column.
const identityMark = "delta.identity.highWaterMark"

// keepIdentity gives identity columns the marks of now where these have gone further than then.
func keepIdentity(then, now []Field) (fields []Field, changed bool, err error) {
	fields = slices.Clone(then)
	for i := range fields {
		f := &fields[i]
		same, _ := lookupField(now, f.Name)
		if same == nil || !hasKey(f.Metadata, "delta.identity.step") || !hasKey(same.Metadata, identityMark) {
			continue
		}
		var old, young map[string]json.RawMessage
		if err := json.Unmarshal(f.Metadata, &old); err != nil {
			return nil, false, corrupt("metadata of column %q: %v", f.Name, err)
		}
		if err := json.Unmarshal(same.Metadata, &young); err != nil {
			return nil, false, corrupt("metadata of column %q: %v", f.Name, err)
		}
		if bytes.Equal(old[identityMark], young[identityMark]) || !further(young, old) {
			continue
		}
		old[identityMark] = young[identityMark]
		if f.Metadata, err = json.Marshal(old); err != nil {
			return nil, false, err
		}
		changed = true
	}
	return fields, changed, nil
}

// further reports whether the mark of young lies behind that of old, in the direction of the column's step.
func further(young, old map[string]json.RawMessage) bool {
	number := func(m map[string]json.RawMessage, key string) (int64, bool) {
		n, err := strconv.ParseInt(string(m[key]), 10, 64)
		return n, err == nil
	}
	a, ok := number(young, identityMark)
	if !ok {
		return false
	}
	b, ok := number(old, identityMark)
	step, _ := number(old, "delta.identity.step")
	return !ok || step >= 0 && a > b || step < 0 && a < b
}

// domains are the changes of domains: those of the older version come back, later ones are dropped. Row ids go on from
// where they are.
func (r *restore) domains() (changes []DomainMetadata) {
	for _, name := range sortedNames(r.then.state.domains) {
		then := r.then.state.domains[name]
		if now, ok := r.now.state.domains[name]; name != rowTrackingDomain &&
			(!ok || now.Configuration != then.Configuration) {
			changes = append(changes, then)
		}
	}
	for _, name := range sortedNames(r.now.state.domains) {
		if _, ok := r.then.state.domains[name]; !ok && name != rowTrackingDomain {
			changes = append(changes, DomainMetadata{Domain: name, Removed: true,
				Configuration: r.now.state.domains[name].Configuration})
		}
	}
	return changes
}

// mergeProtocols is the least protocol that has all features of both.
func mergeProtocols(a, b *Protocol) *Protocol {
	p := &Protocol{MinReaderVersion: max(a.MinReaderVersion, b.MinReaderVersion),
		MinWriterVersion: max(a.MinWriterVersion, b.MinWriterVersion)}
	union := func(x, y []string) []string {
		all := slices.Clone(x)
		for _, f := range y {
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
		return all
	}
	if p.MinWriterVersion >= featureWriterVersion {
		p.WriterFeatures = union(a.features(), b.features())
	}
	if p.MinReaderVersion >= featureReaderVersion {
		p.ReaderFeatures = union(a.ReaderFeatures, b.ReaderFeatures)
		if a.MinReaderVersion == 2 || b.MinReaderVersion == 2 {
			p.ReaderFeatures = union(p.ReaderFeatures, []string{"columnMapping"})
		}
	}
	return p
}
