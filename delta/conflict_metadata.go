package delta

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// harmlessFeatures are table features that a transaction may wake up to find: they ask nothing of files that were
// written before, and what they ask of the commit itself, build does. Others that metadata switches on are caught
// by the rule of metadata; those that work by being there alone (materializePartitionColumns) are not harmless.
var harmlessFeatures = []string{
	"allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection",
	"columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "identityColumns",
	"inCommitTimestamp", "invariants", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview",
	"v2Checkpoint", "vacuumProtocolCheck",
}

// harmlessProperties are properties that a transaction may wake up to find set.
var harmlessProperties = []string{
	propRowTracking, materializedRowID, materializedRowCommitVersion, propColumnMapping, propMaxColumnID, propDeletionVectors,
	propCheckpointPolicy, propInCommitTimestamps, propICTVersion, propICTTimestamp,
}

// protocolRule: an upgrade is adopted if it only adds features that are harmless, whether we may write the table
// then is asked when the commit is built.
func protocolRule(_ context.Context, c *committer, w *winner) error {
	for _, a := range w.actions {
		switch {
		case a.Protocol == nil || sameProtocol(w.before.proto, a.Protocol):
		case c.tx.proto != nil:
			return w.conflict(ConflictProtocol, "both change the protocol; open the table again")
		case !adoptable(w.before.proto, a.Protocol):
			return w.conflict(ConflictProtocol, "it changed the protocol; open the table again")
		}
	}
	return nil
}

func adoptable(before, after *Protocol) bool {
	for _, f := range before.features() {
		if !after.Supports(f) {
			return false
		}
	}
	return !slices.ContainsFunc(after.features(), func(f string) bool {
		return !before.Supports(f) && !slices.Contains(harmlessFeatures, f)
	})
}

// metadataRule: new metadata is adopted if nothing that was prepared on the old one is wrong under it: when it only
// moves the high-water marks of identity columns, or switches on what concerns later writers.
func metadataRule(_ context.Context, c *committer, w *winner) error {
	const remedy = "it changed schema, partitioning or properties; build the commit on the new ones"
	for _, a := range w.actions {
		if a.Metadata != nil && (c.tx.meta != nil || !harmless(w.before.meta, a.Metadata)) {
			return w.conflict(ConflictMetadata, remedy)
		}
	}
	return nil
}

func harmless(before, after *Metadata) bool {
	if before.ID != after.ID || before.Provider != after.Provider ||
		!slices.Equal(before.PartitionColumns, after.PartitionColumns) {
		return false
	}
	for key, was := range before.Configuration {
		if is, set := after.Configuration[key]; !set || is != was && !slices.Contains(harmlessProperties, key) {
			return false
		}
	}
	for key := range after.Configuration {
		if _, set := before.Configuration[key]; !set && !slices.Contains(harmlessProperties, key) {
			return false
		}
	}
	for _, key := range []string{propRowTracking, propDeletionVectors, propInCommitTimestamps} {
		if before.boolean(key, false) && !after.boolean(key, false) {
			return false
		}
	}
	return harmlessMapping(before, after) && harmlessSchema(before, after)
}

// harmlessMapping: column mapping by name may be switched on, since columns keep their names in files.
func harmlessMapping(before, after *Metadata) bool {
	was, is := before.Configuration[propColumnMapping], after.Configuration[propColumnMapping]
	if was == is {
		return before.Configuration[propMaxColumnID] == after.Configuration[propMaxColumnID]
	}
	if was != "" && was != "none" || is != "name" {
		return false
	}
	schema, err := ParseSchema(after.SchemaString)
	return err == nil && physicalAsNamed(schema.Fields)
}

func physicalAsNamed(fields []Field) bool {
	return !slices.ContainsFunc(fields, func(f Field) bool {
		var m struct {
			Name string `json:"delta.columnMapping.physicalName"`
		}
		if len(f.Metadata) > 0 && json.Unmarshal(f.Metadata, &m) != nil {
			return true
		}
		return m.Name != "" && m.Name != f.Name || !physicalAsNamed(below(f.Type))
	})
}

// harmlessSchema: the schemas are the same but for marks of identity columns, and ids where mapping was switched on.
func harmlessSchema(before, after *Metadata) bool {
	if before.SchemaString == after.SchemaString {
		return true
	}
	mapped := before.Configuration[propColumnMapping] != after.Configuration[propColumnMapping]
	drop := func(key string) bool {
		return key == metaIdentityMark || mapped && strings.HasPrefix(key, "delta.columnMapping.")
	}
	was, err1 := schemaWithout(before.SchemaString, drop)
	is, err2 := schemaWithout(after.SchemaString, drop)
	return err1 == nil && err2 == nil && reflect.DeepEqual(was, is)
}

// schemaWithout decodes a schema and leaves out the metadata of fields that drop names.
func schemaWithout(text string, drop func(key string) bool) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	var clean func(any)
	clean = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				clean(e)
			}
		case map[string]any:
			for key, e := range v {
				if drop(key) {
					delete(v, key)
				} else {
					clean(e)
				}
			}
		}
	}
	clean(v)
	return v, err
}
