package spec

import (
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
)

// keyKeys are the keys of a target that tell by which columns rows are told apart.
func (t *Delta) keyKeys() []key {
	return []key{
		{name: "key", doc: "The columns by which upsert, mirror and scd2 tell rows apart.", is: loneOrList(&t.Key, placed)},
		{name: "keys", doc: "By topic, the columns of the key of tables that have another one than key says, where {topic} makes " +
			"one table a topic.", is: mapOf(&t.Keys, func(c *[]Text) shape { return oneOrMore(c, placed) })},
	}
}

// keyed reports whether rows are told apart by a key.
func (t *Delta) keyed() bool { return takesChanges(t.Mode) }

// gathers reports whether rows wait in memory until the commit, which finds out what they do to the table.
func (t *Delta) gathers() bool { return t.keyed() || t.Dedupe != nil }

// checkKey finds a key where there is none to be, and none where there must be one.
func (p *Pipeline) checkKey(r *reader) {
	t := p.Target.Delta
	checkTwice(r, "key column", t.Key)
	switch {
	case !t.keyed() && len(t.Key) > 0:
		r.add(t.Key[0].at.where, freshet.CodeBadValue, "write mode: upsert, or leave the key out",
			"key: mode append adds every record, and looks at no key")
	case len(t.SequenceBy) > 0:
		t.checkSequence(r)
	}
	p.checkKeys(r)
	p.checkKeyless(r)
	t.checkDeletes(r)
	t.checkDedupe(r)
}

// checkKeys finds keys of tables that there are not.
func (p *Pipeline) checkKeys(r *reader) {
	t := p.Target.Delta
	for _, of := range t.Keys {
		checkTwice(r, "key column", of.Value)
		switch {
		case !t.keyed():
			r.add(of.at.where, freshet.CodeBadValue, "write mode: upsert, or leave the keys out",
				"keys: mode append adds every record, and looks at no key")
		case p.Source.Kafka == nil:
			r.add(of.at.where, freshet.CodeBadValue, "leave the keys out", "keys: the source knows those of its tables")
		case !strings.Contains(p.TargetTable(), p.hole()):
			r.add(of.at.where, freshet.CodeBadValue, "write key, or "+p.hole()+" in the table's name",
				"keys: all topics go to one table, which has one key")
		case !p.reads(of.Name):
			r.add(of.at.where, freshet.CodeBadValue, suggest(of.Name, texts(p.kafka().Topics)),
				"keys: %q is no topic of the pipeline", of.Name)
		default:
			continue
		}
		return
	}
}

// checkKeyless finds tables without a key, where the source does not know it.
func (p *Pipeline) checkKeyless(r *reader) {
	t := p.Target.Delta
	at := t.Table.at
	if at == nil {
		at = t.Path.at
	}
	if !t.keyed() || len(t.Key) > 0 || p.Source.Postgres != nil || at == nil {
		return
	}
	if len(t.Keys) == 0 {
		r.add(at.where, freshet.CodeBadValue, "write key: [id], with the columns that no two rows have alike",
			"key: found none, and mode %s tells rows apart by it", t.Mode)
		return
	}
	for _, topic := range p.kafka().Topics {
		named := func(of Named[[]Text]) bool { return of.Name == topic.Value }
		if !slices.ContainsFunc(t.Keys, named) {
			r.add(t.Keys[0].at.where, freshet.CodeBadValue, "name it there, or write key for all that keys does not name",
				"keys: found none of the topic %s, and mode %s tells rows apart by it", topic.Value, t.Mode)
		}
	}
}

// keyColumns are all columns of keys.
func (t *Delta) keyColumns() []Text {
	all := slices.Clone(t.Key)
	for _, of := range t.Keys {
		all = append(all, of.Value...)
	}
	return all
}

// keyOf gives the key of each table; nil where all have one, or the source knows them.
func (p *Pipeline) keyOf() func(table string) []string {
	t := p.Target.Delta
	if len(t.Keys) == 0 {
		return nil
	}
	return func(table string) []string {
		topic := p.topicOf(table)
		for _, of := range t.Keys {
			if of.Name == topic {
				return texts(of.Value)
			}
		}
		return texts(t.Key)
	}
}
