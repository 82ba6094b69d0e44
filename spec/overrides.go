package spec

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/freshet-io/freshet/lake"
)

// Override says of some tables other things than the target says of all. Of several that match a table a later one has the last word on
// each setting, and on each column.
type Override struct {
	Match         Text // what the source calls the tables: schema.table, or a topic; * stands for any characters
	PartitionBy   []Text
	Properties    []Named[string]
	FileSize      int64
	Compatibility string
	SequenceBy    []Text
	Deletes       string
	DeletesBefore string
	Salt          Secret
	Columns       []Named[ColumnRule]

	at places
}

func (o *Override) shape() shape {
	return object{places: &o.at, keys: []key{
		{name: "match", doc: "The tables, as the source calls them: schema.table, or a topic. * stands for any characters.",
			is: placed(&o.Match), need: true},
		{name: "partition_by", doc: "The partition columns of a table that is made.", is: loneOrList(&o.PartitionBy, placed)},
		{name: "properties", doc: "Table properties of a table that is made, beside those of the target, or in their place.",
			is: mapOf(&o.Properties, text)},
		{name: "target_file_size", doc: "The size at which a data file is full.", is: size(&o.FileSize)},
		{name: "compatibility", doc: "broad: files that lose rows are rewritten. vectors: they get deletion vectors.",
			is: word(&o.Compatibility, "broad", "vectors")},
		{name: "sequence_by", doc: "The columns that order the changes of a key in mode upsert; in mode scd2, the one that says since " +
			"when the row is so.", is: loneOrList(&o.SequenceBy, placed)},
		{name: "deletes", doc: "What becomes of a row whose key is gone, as in the target.",
			is: word(&o.Deletes, "hard", "soft", "log", "ignore")},
		{name: "deletes_before", doc: "What deletes was, to confirm that it is to be changed in a table that is there.",
			is: word(&o.DeletesBefore, "hard", "soft", "log", "ignore")},
		{name: "salt", doc: "The secret key of masks that have none of their own, of at least 16 characters: best as " +
			"${secret:env:NAME}. Columns that are to be joined have the same.", is: secret(&o.Salt)},
		{name: "columns", doc: "What becomes of single columns: mask or drop.", is: mapOf(&o.Columns, (*ColumnRule).shape)},
	}}
}

// origins remembers which tables of the source go to which table.
type origins struct {
	mu sync.Mutex
	of map[string][]string
}

// note notes that rows of a table of the source go to a table.
func (o *origins) note(table, source string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.of[table], source) {
		if o.of == nil {
			o.of = map[string][]string{}
		}
		o.of[table] = append(o.of[table], source)
	}
}

func (o *origins) known(table string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.of[table])
}

// sourcesOf are the tables of the source whose rows go to a table, as far as they are known: with {topic} in the name of the target's the
// topic; else all topics, or all tables that were met.
func (p *Pipeline) sourcesOf(table string) []string {
	k := p.Source.Kafka
	switch {
	case k == nil:
		return p.origins.known(table)
	case strings.Contains(p.TargetTable(), p.hole()):
		return []string{p.topicOf(table)}
	case k.Pattern.Value != "":
		return nil
	}
	return texts(k.Topics)
}

// matches reports whether the override is for a table that has all these sources; where they are not known, whether it is for all.
func (o *Override) matches(sources []string) bool {
	if len(sources) == 0 {
		return strings.Trim(o.Match.Value, "*.") == ""
	}
	is := o.pattern()
	return !slices.ContainsFunc(sources, func(s string) bool { return !is.MatchString(s) })
}

func (o *Override) pattern() *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(o.Match.Value), `\*`, ".*") + "$")
}

// overridesOf are those of a table with these sources.
func (p *Pipeline) overridesOf(sources []string) (all []*Override) {
	for i := range p.Target.Overrides {
		if o := &p.Target.Overrides[i]; o.matches(sources) {
			all = append(all, o)
		}
	}
	return all
}

// override changes what the target says of all tables to what it says of this one.
func (p *Pipeline) override(table string, to *lake.TargetOptions) {
	sources := p.sourcesOf(table)
	to.Properties = maps.Clone(to.Properties)
	for _, o := range p.overridesOf(sources) {
		if o.PartitionBy != nil {
			to.PartitionBy = texts(o.PartitionBy)
		}
		for _, prop := range o.Properties {
			to.Properties[prop.Name] = prop.Value
		}
		if o.FileSize > 0 {
			to.TargetFileBytes = o.FileSize
		}
		if o.SequenceBy != nil {
			to.Key.SequenceBy = texts(o.SequenceBy)
		}
		if o.Compatibility != "" {
			to.Key.CopyOnWrite = o.Compatibility == "broad"
		}
		if o.Deletes != "" {
			to.Key.Deletes, to.Key.DeletesBefore = lake.Deletes(o.Deletes), lake.Deletes(o.DeletesBefore)
		}
	}
	to.Masks = p.masksOf(sources)
}
