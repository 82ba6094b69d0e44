package delta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
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
	"inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking", "timestampNtz", "typeWidening",
	"typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantShredding", "variantShredding-preview",
	"variantType", "variantType-preview",
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

// Features are the names of all features of the protocol, by name or implied by its versions, in no order. Spec: "Table
// Features".
func (p *Protocol) Features() []string { return slices.Clone(p.features()) }

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
func (s *Snapshot) CheckWrite() error {
	if _, err := newFileLayout(s.state.meta, s.state.proto, &WriterOptions{}); err != nil {
		return err
	}
	return s.state.meta.checkRules(s.state.proto, s.schema)
}

// checkRules refuses a table of which this package cannot keep what it asks of writers.
func (m *Metadata) checkRules(p *Protocol, schema *Schema) error {
	if err := checkWrite(p); err != nil {
		return err
	}
	_, err := newRowRules(m, p, schema)
	return err
}

// checkWrite refuses tables of which a feature is not known to writers. What the table asks of the values of rows,
// NewWriter settles.
func checkWrite(p *Protocol) error {
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
