package delta

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// Support says whether an engine can do something.
type Support string

// The answers.
const (
	SupportYes     Support = "yes"
	SupportNo      Support = "no"
	SupportUnknown Support = "unknown" // neither its documents nor a test say
)

// EngineSupport says what an engine can do with a table.
type EngineSupport struct {
	Engine  string
	Version string // that this was found of
	Read    Support
	Write   Support
	// Reasons say why not, or what is not known, one a feature: the features that are in the way.
	Reasons []string
	// Source says where this comes from: "measured", or the document.
	Source string
}

// Compatibility tells which engines can read and write the table as it is, and why the others cannot. It goes by the
// protocol, and by what the engines are known to stumble over besides. One entry an engine, always in the same order.
func (s *Snapshot) Compatibility() []EngineSupport {
	readers, writers := s.state.proto.neededToRead(), s.state.proto.features()
	all := []EngineSupport{sparkSupport(s.state.proto)}
	for i := range engines {
		all = append(all, engines[i].judge(s, readers, writers))
	}
	return all
}

// Compatibility is Snapshot.Compatibility of the newest version of the table at st, also of one that this package cannot
// read itself. Errors: as Open, but for ErrUnsupportedFeature.
func Compatibility(ctx context.Context, st store.Store, opts *OpenOptions) ([]EngineSupport, error) {
	t := newTable(st, opts)
	t.unread = true
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return snap.Compatibility(), nil
}

// neededToRead are the features that a reader must know. A version that nobody has heard of stands for one.
func (p *Protocol) neededToRead() []string {
	switch {
	case p.MinReaderVersion > featureReaderVersion:
		return append(slices.Clone(p.ReaderFeatures), fmt.Sprintf("reader version %d", p.MinReaderVersion))
	case p.MinReaderVersion >= featureReaderVersion:
		return p.ReaderFeatures
	case p.MinReaderVersion == 2:
		return []string{"columnMapping"}
	}
	return nil
}

// engine is what is known of one.
type engine struct {
	name, version, source string
	reads                 []string // features
	unsure                []string // features of which it is not known whether it reads them
	writes                []string // features; nil for an engine that writes no Delta tables
	cannotWrite           string   // why not, if it tries to
	stumbles              []stumble
}

// stumble is something that an engine cannot read although the protocol says nothing of it.
type stumble struct {
	over func(*Snapshot) bool
	why  string
}

func (e *engine) judge(s *Snapshot, readers, writers []string) EngineSupport {
	r := EngineSupport{Engine: e.name, Version: e.version, Source: e.source, Read: SupportYes, Write: SupportYes}
	for _, f := range readers {
		switch {
		case slices.Contains(e.reads, f):
		case slices.Contains(e.unsure, f):
			if r.Read == SupportYes {
				r.Read = SupportUnknown
			}
			r.Reasons = append(r.Reasons, "read: whether it knows "+f+" is not known")
		default:
			r.Read = SupportNo
			r.Reasons = append(r.Reasons, "read: it does not know "+f)
		}
	}
	for _, t := range e.stumbles {
		if t.over(s) {
			r.Read = SupportNo
			r.Reasons = append(r.Reasons, "read: "+t.why)
		}
	}
	if e.writes == nil {
		r.Write = SupportNo
		r.Reasons = append(r.Reasons, "write: "+cmp.Or(e.cannotWrite, "it writes no Delta tables"))
		return r
	}
	if r.Read != SupportYes {
		r.Write = r.Read
	}
	for _, f := range writers {
		if !slices.Contains(e.writes, f) && !usedNowhere(s, f) {
			r.Write = SupportNo
			r.Reasons = append(r.Reasons, "write: it does not know "+f)
		}
	}
	return r
}

// usedNowhere reports whether a feature that an old writer version implies asks nothing of a writer of this table.
func usedNowhere(s *Snapshot, feature string) bool {
	if s.state.proto.MinWriterVersion >= featureWriterVersion {
		return false
	}
	switch feature {
	case "identityColumns":
		return columnWith(s.schema.Fields, "", "delta.identity.start") == ""
	case "generatedColumns":
		return columnWith(s.schema.Fields, "", "delta.generationExpression") == ""
	case "columnMapping":
		mode := s.Property(propColumnMapping)
		return mode == "" || mode == "none"
	}
	return false
}

// sparkSince says with which release of Delta Lake for Spark a feature came. Source: docs.delta.io/versioning, and the
// release notes of what is not there.
var sparkSince = []struct {
	major, minor int
	features     []string
}{
	{0, 8, []string{"appendOnly", "invariants", "checkConstraints"}},
	{1, 0, []string{"generatedColumns"}},
	{1, 2, []string{"columnMapping"}},
	{2, 0, []string{"changeDataFeed"}},
	{2, 3, []string{"deletionVectors"}},
	{2, 4, []string{"timestampNtz"}},
	{3, 0, []string{"v2Checkpoint", "domainMetadata", "icebergCompatV1"}},
	{3, 1, []string{"clustering", "allowColumnDefaults", "icebergCompatV2"}},
	{3, 2, []string{"rowTracking", "typeWidening-preview"}},
	{3, 3, []string{"identityColumns", "inCommitTimestamp", "vacuumProtocolCheck"}},
	{4, 0, []string{"typeWidening", "variantType", "variantType-preview", "checkpointProtection"}},
	{4, 4, []string{"variantShredding", "variantShredding-preview", "materializePartitionColumns", "catalogManaged",
		"catalogOwned-preview", "icebergCompatV3"}},
}

// sparkSupport names the oldest release that can write the table, and the oldest that can read it if that is another.
func sparkSupport(p *Protocol) EngineSupport {
	readers, writers := p.neededToRead(), p.features()
	r := EngineSupport{Engine: "Apache Spark", Read: SupportYes, Write: SupportYes,
		Source: "docs.delta.io/versioning; 4.4 measured"}
	oldest := func(features []string, what string, named bool, support *Support) string {
		major, minor := 0, 8
		if named { // features by name came with this release
			major, minor = 2, 3
		}
		for _, f := range features {
			known := false
			for _, s := range sparkSince {
				if slices.Contains(s.features, f) {
					known = true
					if s.major > major || s.major == major && s.minor > minor {
						major, minor = s.major, s.minor
					}
				}
			}
			if !known {
				*support = SupportUnknown
				r.Reasons = append(r.Reasons, what+": whether it knows "+f+" is not known")
			}
		}
		return fmt.Sprintf("%d.%d", major, minor)
	}
	read := oldest(readers, "read", p.MinReaderVersion >= featureReaderVersion, &r.Read)
	write := oldest(writers, "write", p.MinWriterVersion >= featureWriterVersion, &r.Write)
	if r.Read != SupportYes && r.Write == SupportYes {
		r.Write = r.Read
	}
	r.Version = "Delta Lake " + write + " and later"
	if read != write {
		r.Reasons = append(r.Reasons, "read: Delta Lake "+read+" and later")
	}
	return r
}

// isVoid reports whether the table has a column of type void.
func isVoid(s *Snapshot) bool { return usesType(s.schema.Fields, Void) }

// mappedInReader2 reports whether the protocol has features by name for writers, and version 2 for readers: Spark 4.4
// makes every table with column mapping so.
func mappedInReader2(s *Snapshot) bool {
	p := s.state.proto
	return p.MinReaderVersion == 2 && p.MinWriterVersion >= featureWriterVersion
}

// mappedPartitions reports whether a partition column has another name in the log than in the schema.
func mappedPartitions(s *Snapshot) bool {
	return slices.ContainsFunc(s.schema.Fields, func(f Field) bool {
		return slices.Contains(s.PartitionColumns(), f.Name) && !physicalAsNamed([]Field{f})
	})
}

// widenedDecimalsOrDates reports whether a column became a wider decimal, or was a date before.
func widenedDecimalsOrDates(s *Snapshot) bool { return hasWidenedDecimalsOrDates(s.schema.Fields) }

func hasWidenedDecimalsOrDates(fields []Field) bool {
	return slices.ContainsFunc(fields, func(f Field) bool {
		var changes []struct{ FromType, ToType string }
		if m := f.metaValue(metaTypeChanges); m != nil && json.Unmarshal(m, &changes) != nil {
			return true
		}
		for _, c := range changes {
			if c.FromType == string(Date) || strings.HasPrefix(c.ToType, "decimal") {
				return true
			}
		}
		return hasWidenedDecimalsOrDates(below(f.Type))
	})
}

// oldVectors reports whether a table might hold deletion vectors, which symlink manifests cannot tell.
func oldVectors(s *Snapshot) bool {
	return slices.Contains(s.state.proto.ReaderFeatures, "deletionVectors")
}

func beyondVersion1(s *Snapshot) bool { return s.state.proto.MinReaderVersion > 1 }

// words is a list in one line.
func words(text string) []string { return strings.Fields(text) }
