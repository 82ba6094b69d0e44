package delta

import (
	"fmt"
	"slices"
	"strings"
)

// feature is what is known of a table feature. Spec: "Table Features", "Valid Feature Names in Table Features".
type feature struct {
	name   string
	reader bool     // readers must know it, too
	since  int      // the legacy writer version that implies it; 0 when there is none
	needs  []string // the features that it cannot be without
}

// features are those that this package can give to a table.
var features = []feature{
	{name: "appendOnly", since: 2},
	{name: "invariants", since: 2},
	{name: "checkConstraints", since: 3},
	{name: "changeDataFeed", since: 4},
	{name: "generatedColumns", since: 4},
	{name: "columnMapping", since: 5, reader: true},
	{name: "identityColumns", since: 6},
	{name: "allowColumnDefaults"},
	{name: "checkpointProtection"},
	{name: "clustering", needs: []string{"domainMetadata"}},
	{name: "deletionVectors", reader: true},
	{name: "domainMetadata"},
	{name: "inCommitTimestamp"},
	{name: "materializePartitionColumns"},
	{name: "rowTracking", needs: []string{"domainMetadata"}},
	{name: "timestampNtz", reader: true},
	{name: "typeWidening", reader: true},
	{name: "typeWidening-preview", reader: true},
	{name: "v2Checkpoint", reader: true},
	{name: "vacuumProtocolCheck", reader: true},
	{name: "variantType", reader: true},
	{name: "variantType-preview", reader: true},
	{name: "variantShredding", reader: true},
	{name: "variantShredding-preview", reader: true},
}

// featureNamed returns what is known of the feature. One that is not known is a feature of writers alone.
func featureNamed(name string) feature {
	if i := slices.IndexFunc(features, func(f feature) bool { return f.name == name }); i >= 0 {
		return features[i]
	}
	return feature{name: name}
}

// propFeature begins the properties by which features are asked for: "delta.feature.X" = "supported".
const propFeature = "delta.feature."

// need is a feature that a table has to have, and what of the table wants it.
type need struct{ feature, cause string }

// needs returns the features that a table of this schema and these properties has to have, each once.
func needs(schema *Schema, properties map[string]string) (all []string) {
	for _, n := range needsOf(schema, properties) {
		if !slices.Contains(all, n.feature) {
			all = append(all, n.feature)
		}
	}
	return all
}

func needsOf(schema *Schema, properties map[string]string) (all []need) {
	add := func(feature, cause string) { all = append(all, need{feature, cause}) }
	for _, t := range []struct {
		t       Primitive
		feature string
	}{{TimestampNTZ, "timestampNtz"}, {Variant, "variantType"}} {
		if usesType(schema.Fields, t.t) {
			add(t.feature, fmt.Sprintf("a column is %s", t.t))
		}
	}
	for _, m := range []struct{ key, feature string }{
		{metaInvariants, "invariants"}, {metaGeneration, "generatedColumns"}, {metaIdentityStart, "identityColumns"},
		{metaDefault, "allowColumnDefaults"}, {metaTypeChanges, "typeWidening"},
	} {
		if column := columnWith(schema.Fields, "", m.key); column != "" {
			add(m.feature, fmt.Sprintf("column %q has %s", column, m.key))
		}
	}
	if mappingOf(properties) != byName {
		add("columnMapping", "files have its columns under other names, or by their ids")
	}
	if properties[propCheckpointPolicy] == "v2" {
		add("v2Checkpoint", propCheckpointPolicy+" is v2")
	}
	for _, name := range sortedNames(properties) {
		switch value := properties[name]; {
		case strings.HasPrefix(name, propConstraint):
			add("checkConstraints", fmt.Sprintf("it has the constraint %q", strings.TrimPrefix(name, propConstraint)))
		case strings.HasPrefix(name, propFeature):
			add(strings.TrimPrefix(name, propFeature), name+" is set")
		case strings.EqualFold(value, "true") && switches[name] != "":
			add(switches[name], name+" is true")
		}
	}
	return all
}

// switches are properties that need a feature when they are true.
var switches = map[string]string{
	propAppendOnly:                 "appendOnly",
	propDeletionVectors:            "deletionVectors",
	propInCommitTimestamps:         "inCommitTimestamp",
	propRowTracking:                "rowTracking",
	propChangeDataFeed:             "changeDataFeed",
	propTypeWidening:               "typeWidening",
	"delta.enableIcebergCompatV1":  "icebergCompatV1",
	"delta.enableIcebergCompatV2":  "icebergCompatV2",
	"delta.enableIcebergCompatV3":  "icebergCompatV3",
	"delta.enableVariantShredding": "variantShredding",
}

func usesType(fields []Field, t Type) bool {
	return slices.ContainsFunc(fields, func(f Field) bool { return f.Type == t || usesType(below(f.Type), t) })
}

// lowestProtocol is the oldest protocol that has the features: (1, 2) when there are none.
func lowestProtocol(names []string) *Protocol {
	return (&Protocol{MinReaderVersion: 1, MinWriterVersion: 2}).with(names...)
}

// with is the protocol that has these features, too, and those that they need: by the legacy versions that brought
// them, if all can be had that way, else by name. What the versions imply is kept. Spec: "Table Features".
func (p *Protocol) with(names ...string) *Protocol {
	n := &Protocol{MinReaderVersion: p.MinReaderVersion, MinWriterVersion: p.MinWriterVersion,
		ReaderFeatures: slices.Clone(p.ReaderFeatures), WriterFeatures: slices.Clone(p.WriterFeatures)}
	added := p.missing(names)
	if len(added) == 0 {
		return n
	}
	named := func(f feature) bool { return f.since == 0 }
	if n.MinWriterVersion < featureWriterVersion && !slices.ContainsFunc(added, named) {
		for _, f := range added {
			n.MinWriterVersion = max(n.MinWriterVersion, f.since)
		}
		if n.MinWriterVersion >= 5 { // which implies columnMapping
			n.MinReaderVersion = max(n.MinReaderVersion, 2)
		}
		return n
	}
	n.WriterFeatures, n.MinWriterVersion = slices.Clone(p.features()), featureWriterVersion
	for _, f := range added {
		n.WriterFeatures = append(n.WriterFeatures, f.name)
		n.tellReaders(f)
	}
	return n
}

// tellReaders makes a feature of the protocol one that readers must know, if it is one of them.
func (p *Protocol) tellReaders(f feature) {
	switch {
	case !f.reader:
		return
	case p.MinReaderVersion < featureReaderVersion && f.name == "columnMapping":
		p.MinReaderVersion = 2
		return
	case p.MinReaderVersion < featureReaderVersion:
		if p.MinReaderVersion == 2 && slices.Contains(p.WriterFeatures, "columnMapping") {
			p.ReaderFeatures = append(p.ReaderFeatures, "columnMapping")
		}
		p.MinReaderVersion = featureReaderVersion
	}
	if !slices.Contains(p.ReaderFeatures, f.name) {
		p.ReaderFeatures = append(p.ReaderFeatures, f.name)
	}
}

// missing are the features, and those that they need, that the protocol does not have; each after what it needs.
func (p *Protocol) missing(names []string) (all []feature) {
	for _, name := range names {
		f := featureNamed(name)
		for _, g := range append(p.missing(f.needs), f) {
			have := func(h feature) bool { return h.name == g.name }
			if !p.Supports(g.name) && !p.Supports(g.name+"-preview") && !slices.ContainsFunc(all, have) {
				all = append(all, g)
			}
		}
	}
	return all
}

// without is the protocol without the feature, which it lists by name or implies: what else its versions imply is
// listed. Where the features that are left are those of a legacy protocol, it is that again.
func (p *Protocol) without(name string) *Protocol {
	n := &Protocol{MinReaderVersion: p.MinReaderVersion, MinWriterVersion: featureWriterVersion,
		ReaderFeatures: without(p.ReaderFeatures, name), WriterFeatures: without(p.features(), name)}
	readers := slices.ContainsFunc(n.ReaderFeatures, func(f string) bool { return f != "columnMapping" })
	if !readers && n.MinReaderVersion >= featureReaderVersion || name == "columnMapping" && len(n.ReaderFeatures) == 0 {
		n.MinReaderVersion, n.ReaderFeatures = 1, nil
		if slices.Contains(n.WriterFeatures, "columnMapping") {
			n.MinReaderVersion = 2
		}
	}
	if n.MinReaderVersion >= featureReaderVersion {
		return n
	}
	for version := 1; version < featureWriterVersion; version++ {
		old := &Protocol{MinReaderVersion: n.MinReaderVersion, MinWriterVersion: version}
		if sameSet(old.features(), n.WriterFeatures) && (version >= 5) == (n.MinReaderVersion == 2) {
			return old
		}
	}
	return n
}

func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == name })
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// checkNeeds makes sure that the protocol has what the new metadata needs and the old does not.
func checkNeeds(p *Protocol, before, after *Metadata, old, schema *Schema) error {
	had := needs(old, before.Configuration)
	for _, name := range needs(schema, after.Configuration) {
		if slices.Contains(had, name) || p.Supports(name) || p.Supports(name+"-preview") {
			continue
		}
		return fmt.Errorf("the new metadata needs the table feature %s, which the protocol (%d, %d) does not "+
			"have: add it to the table first, if all its readers know it", name, p.MinReaderVersion, p.MinWriterVersion)
	}
	return nil
}
