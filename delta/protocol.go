package delta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The versions from which a protocol lists its features by name. Spec: "Table Features".
const (
	featureReaderVersion = 3
	featureWriterVersion = 7
)

// readable are the features that a reader of the log must know and that this package does. What they mean for
// data files, the reader of rows decides file by file.
var readable = []string{
	"columnMapping", "deletionVectors", "materializePartitionColumns", "timestampNtz",
	"typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding",
	"variantShredding-preview", "variantType", "variantType-preview",
}

// writable are the features of tables that this package can append to. Those that ask something of a writer
// only where they are in use are checked by use, in checkUse.
var writable = []string{
	"allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection", "clustering",
	"columnMapping", "deletionVectors", "domainMetadata", "generatedColumns", "identityColumns",
	"inCommitTimestamp", "invariants", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
	"vacuumProtocolCheck",
}

// legacy are the features that a writer version below 7 implies, by the version that brought them.
var legacy = []struct {
	version  int
	features []string
}{
	{2, []string{"appendOnly", "invariants"}},
	{3, []string{"checkConstraints"}},
	{4, []string{"changeDataFeed", "generatedColumns"}},
	{5, []string{"columnMapping"}},
	{6, []string{"identityColumns"}},
}

// Supports reports whether the protocol has the feature, by name or implied by its versions.
func (p *Protocol) Supports(feature string) bool {
	return slices.Contains(p.features(), feature)
}

// features are all features of the protocol, also those that its versions imply.
func (p *Protocol) features() []string {
	if p.MinWriterVersion >= featureWriterVersion {
		return p.WriterFeatures
	}
	var all []string
	for _, l := range legacy {
		if p.MinWriterVersion >= l.version {
			all = append(all, l.features...)
		}
	}
	return all
}

// checkRead refuses tables whose log or files may mean something that we do not know.
func (p *Protocol) checkRead() error {
	if p.MinReaderVersion > featureReaderVersion {
		return &UnsupportedError{Feature: fmt.Sprintf("reader version %d", p.MinReaderVersion)}
	}
	if p.MinReaderVersion < featureReaderVersion {
		return nil
	}
	for _, f := range p.ReaderFeatures {
		if f == "timestampWithoutTimezone" { // what previews called timestampNtz
			continue
		}
		if !slices.Contains(readable, f) {
			return &UnsupportedError{Feature: "the table feature " + f}
		}
	}
	return nil
}

// CheckWrite reports why files cannot be added to the table by this package; nil when they can. Errors:
// *UnsupportedError.
func (s *Snapshot) CheckWrite() error { return checkWrite(s.state.proto, s.state.meta, s.schema) }

func checkWrite(p *Protocol, m *Metadata, schema *Schema) error {
	if err := p.checkRead(); err != nil {
		return err
	}
	if p.MinWriterVersion > featureWriterVersion {
		return &UnsupportedError{Feature: fmt.Sprintf("writer version %d", p.MinWriterVersion), Write: true}
	}
	for _, f := range p.features() {
		if !slices.Contains(writable, f) {
			return &UnsupportedError{Feature: "the table feature " + f, Write: true}
		}
	}
	return checkUse(p, m, schema)
}

// checkUse refuses tables that use what their protocol allows and we cannot keep.
func checkUse(p *Protocol, m *Metadata, schema *Schema) error {
	use := func(format string, args ...any) error {
		return &UnsupportedError{Feature: fmt.Sprintf(format, args...), Write: true}
	}
	mode := m.Configuration["delta.columnMapping.mode"]
	if p.Supports("columnMapping") && mode != "" && mode != "none" {
		return use("column mapping by %s", mode)
	}
	for key := range m.Configuration {
		if name, ok := strings.CutPrefix(key, "delta.constraints."); ok && p.Supports("checkConstraints") {
			return use("the CHECK constraint %q", name)
		}
	}
	for _, r := range []struct{ feature, key, words string }{
		{"invariants", "delta.invariants", "an invariant"},
		{"generatedColumns", "delta.generationExpression", "a generation expression"},
		{"identityColumns", "delta.identity.start", "identity values"},
		{"allowColumnDefaults", "CURRENT_DEFAULT", "a default value"},
	} {
		if !p.Supports(r.feature) {
			continue
		}
		if column := columnWith(schema.Fields, "", r.key); column != "" {
			return use("%s on column %q", r.words, column)
		}
	}
	return nil
}

// columnWith returns the path of the first column, at any depth, whose metadata has the key; "" when none
// has.
func columnWith(fields []Field, path, key string) string {
	for _, f := range fields {
		name := columnPath(path, f.Name)
		if hasKey(f.Metadata, key) {
			return name
		}
		if found := columnWith(below(f.Type), name, key); found != "" {
			return found
		}
	}
	return ""
}

func hasKey(metadata json.RawMessage, key string) bool {
	return bytes.Contains(metadata, []byte(`"`+key+`"`))
}

// below are the fields of a type, through arrays and maps.
func below(t Type) []Field {
	switch t := t.(type) {
	case *Struct:
		return t.Fields
	case *Array:
		return []Field{{Name: "element", Type: t.Element}}
	case *Map:
		return []Field{{Name: "key", Type: t.Key}, {Name: "value", Type: t.Value}}
	}
	return nil
}

// neededFeature is a feature that properties or types of columns switch on.
type neededFeature struct {
	name   string
	reader bool // readers must know it too
	since  int  // the legacy writer version that implies it; 0 when there is none
}

// needs returns the features that a table of this schema and these properties has to have.
func needs(schema *Schema, properties map[string]string) (all []neededFeature) {
	on := func(name string) bool { return strings.EqualFold(properties[name], "true") }
	if usesType(schema.Fields, TimestampNTZ) {
		all = append(all, neededFeature{name: "timestampNtz", reader: true})
	}
	if on("delta.enableDeletionVectors") {
		all = append(all, neededFeature{name: "deletionVectors", reader: true})
	}
	if on("delta.enableInCommitTimestamps") {
		all = append(all, neededFeature{name: "inCommitTimestamp"})
	}
	if on(propRowTracking) {
		all = append(all, neededFeature{name: "domainMetadata"}, neededFeature{name: "rowTracking"})
	}
	if properties[propCheckpointPolicy] == "v2" {
		all = append(all, neededFeature{name: "v2Checkpoint", reader: true})
	}
	if on("delta.enableChangeDataFeed") {
		all = append(all, neededFeature{name: "changeDataFeed", since: 4})
	}
	for _, key := range sortedNames(properties) {
		name, ok := strings.CutPrefix(key, "delta.feature.")
		if ok && !slices.ContainsFunc(all, func(f neededFeature) bool { return f.name == name }) {
			all = append(all, featureNamed(name))
		}
	}
	return all
}

func featureNamed(name string) neededFeature {
	f := neededFeature{name: name}
	switch name {
	case "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint",
		"vacuumProtocolCheck":
		f.reader = true
	}
	for _, l := range legacy {
		if slices.Contains(l.features, name) {
			f.since = l.version
		}
	}
	return f
}

func usesType(fields []Field, t Type) bool {
	return slices.ContainsFunc(fields, func(f Field) bool { return f.Type == t || usesType(below(f.Type), t) })
}

// lowestProtocol is the oldest protocol that has the features: (1, 2) when there are none, the legacy version
// that brought them, or features by name as soon as one has no legacy version.
func lowestProtocol(needed []neededFeature) Protocol {
	p := Protocol{MinReaderVersion: 1, MinWriterVersion: 2}
	named := slices.ContainsFunc(needed, func(f neededFeature) bool { return f.since == 0 })
	for _, f := range needed {
		p.MinWriterVersion = max(p.MinWriterVersion, f.since)
	}
	if !named {
		return p
	}
	p.WriterFeatures = p.features()
	p.MinWriterVersion = featureWriterVersion
	for _, f := range needed {
		if !slices.Contains(p.WriterFeatures, f.name) {
			p.WriterFeatures = append(p.WriterFeatures, f.name)
		}
		if f.reader {
			p.MinReaderVersion = featureReaderVersion
			p.ReaderFeatures = append(p.ReaderFeatures, f.name)
		}
	}
	return p
}

// with is the protocol that has these features, too. What its versions imply is kept by name. Spec: "Table Features".
func (p *Protocol) with(features ...neededFeature) *Protocol {
	n := &Protocol{MinReaderVersion: p.MinReaderVersion, MinWriterVersion: featureWriterVersion,
		ReaderFeatures: slices.Clone(p.ReaderFeatures), WriterFeatures: slices.Clone(p.features())}
	for _, f := range features {
		if f.reader && n.MinReaderVersion < featureReaderVersion {
			if n.MinReaderVersion == 2 && n.Supports("columnMapping") {
				n.ReaderFeatures = append(n.ReaderFeatures, "columnMapping")
			}
			n.MinReaderVersion = featureReaderVersion
		}
		if f.reader && !slices.Contains(n.ReaderFeatures, f.name) {
			n.ReaderFeatures = append(n.ReaderFeatures, f.name)
		}
		if !slices.Contains(n.WriterFeatures, f.name) {
			n.WriterFeatures = append(n.WriterFeatures, f.name)
		}
	}
	return n
}
