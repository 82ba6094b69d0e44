package spec

import (
	"context"
	"slices"
	"strings"
	"sync"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/veil"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/transform"
)

// ColumnRule says what becomes of a column: it is masked, or left out.
type ColumnRule struct {
	Mask string
	Salt Secret
	Drop bool

	at places
}

func (c *ColumnRule) shape() shape {
	return object{oneOf: []string{"mask", "drop"}, places: &c.at, keys: []key{
		{name: "mask", doc: "sha256: its values become their HMAC-SHA-256 under the salt, as 64 hexadecimal digits; nulls stay null.",
			is: word(&c.Mask, "sha256")},
		{name: "salt", doc: "The secret key of this mask. Default: the salt beside columns.", is: secret(&c.Salt)},
		{name: "drop", doc: "true: the column is left out.", is: c.dropShape()},
	}}
}

// dropShape is true: what is not left out need not be said.
func (c *ColumnRule) dropShape() shape {
	return one{json: map[string]any{"const": true}, parse: func(s string) (string, bool) {
		c.Drop = s == "true"
		return "true", c.Drop
	}}
}

// leastSalt is how many characters a salt has at least: shorter ones can be guessed, and with them values that are few.
const leastSalt = 16

// rules are what becomes of columns of a table with these sources.
type rules []rule

type rule struct {
	column string
	key    *veil.Key // nil: it is left out
}

// rulesOf are those of a table with these sources.
func (p *Pipeline) rulesOf(sources []string) (all rules) {
	for _, o := range p.overridesOf(sources) {
		for _, c := range o.Columns {
			one := rule{column: c.Name}
			if !c.Value.Drop {
				one.key = veil.New(o.saltOf(&c.Value))
			}
			if i := all.index(c.Name); i >= 0 {
				all[i] = one
				continue
			}
			all = append(all, one)
		}
	}
	return all
}

// saltOf is the salt of a column; "" in a file that is looked at, and cannot run, since a secret is not set.
func (o *Override) saltOf(c *ColumnRule) string {
	if salt := c.Salt.Reveal(); salt != "" {
		return salt
	}
	return o.Salt.Reveal()
}

func (all rules) index(column string) int {
	for i, r := range all {
		if strings.EqualFold(r.column, column) {
			return i
		}
	}
	return -1
}

// masksOf are the masks of a table with these sources, as lake.TargetOptions has them.
func (p *Pipeline) masksOf(sources []string) map[string]string {
	masks := map[string]string{}
	for _, r := range p.rulesOf(sources) {
		if r.key != nil {
			masks[r.column] = "sha256:" + r.key.ID()
		}
	}
	return masks
}

// hides reports whether columns of some table are masked or left out.
func (p *Pipeline) hides() bool {
	for i := range p.Target.Overrides {
		if len(p.Target.Overrides[i].Columns) > 0 {
			return true
		}
	}
	return false
}

// keysOf are all keys that records of a table with these sources may have been sealed under, first the one that they are sealed under
// now.
func (p *Pipeline) keysOf(sources []string) (all []*veil.Key) {
	seen := map[string]bool{}
	add := func(salt string) {
		if salt != "" && !seen[salt] {
			seen[salt] = true
			all = append(all, veil.New(salt))
		}
	}
	for _, o := range p.overridesOf(sources) {
		if len(o.Columns) > 0 {
			add(o.Salt.Reveal())
		}
		for _, c := range o.Columns {
			add(c.Value.Salt.Reveal())
		}
	}
	return all
}

// hidden is what a PostgreSQL source hides of a column of a table, "public.orders"; nil where no table has any.
func (p *Pipeline) hidden() func(table, column string) postgres.Hiding {
	if !p.hides() {
		return nil
	}
	var mu sync.Mutex
	byTable := map[string]rules{}
	return func(table, column string) postgres.Hiding {
		mu.Lock()
		defer mu.Unlock()
		all, known := byTable[table]
		if !known {
			all = p.rulesOf([]string{table})
			byTable[table] = all
		}
		i := all.index(column)
		if i < 0 {
			return postgres.Hiding{}
		}
		return postgres.Hiding{Key: all[i].key, LeftOut: all[i].key == nil}
	}
}

// maskStep is the step that hides columns of a topic's table; nil: there are none. What PostgreSQL has is hidden where it is decoded.
func (p *Pipeline) maskStep(sources []string) freshet.Step {
	all := p.rulesOf(sources)
	if p.Source.Kafka == nil || len(all) == 0 {
		return nil
	}
	columns := make([]transform.MaskedColumn, len(all))
	for i, r := range all {
		columns[i] = transform.MaskedColumn{Name: r.column, Key: r.key}
	}
	seal := veil.New("") // of a file that is looked at, as saltOf says
	if keys := p.keysOf(sources); len(keys) > 0 {
		seal = keys[0]
	}
	return transform.NewMask(columns, seal)
}

// Unsealed is an entry of quarantine with its record as it came, where that was sealed since columns of its table are hidden. Errors:
// CodeBadValue for one that was sealed by a salt which the file does not have.
func (p *Pipeline) Unsealed(e *lake.Entry) (*lake.Entry, error) {
	if !p.hides() {
		return e, nil
	}
	one := *e
	r, found, err := transform.Unseal(e.Record, p.keysOf(p.sourcesOf(e.Table)))
	if err != nil {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: e.ID(), Err: err,
			Msg: "the record of an entry cannot be opened",
			Fix: "give the salt under which it was sealed as the salt of one more override of the table, before the others, or drop the entry"}
	}
	one.Record = r
	if found != "" {
		one.Message = found
	}
	return &one, nil
}

// unsealing opens records of quarantine that were sealed, for retake.
func (p *Pipeline) unsealing(retake lake.Retake) lake.Retake {
	return func(ctx context.Context, entries []*lake.Entry) (*freshet.Batch, error) {
		opened := make([]*lake.Entry, len(entries))
		for i, e := range entries {
			var err error
			if opened[i], err = p.Unsealed(e); err != nil {
				return nil, err
			}
		}
		return retake(ctx, opened)
	}
}

// keyHere are values of a key as the table has them: the hashes of those that are masked.
func (p *Pipeline) keyHere(table string, columns, key []string) []string {
	all, here := p.rulesOf(p.sourcesOf(table)), slices.Clone(key)
	for i, c := range columns {
		if at := all.index(c); at >= 0 && all[at].key != nil {
			here[i] = all[at].key.Hash(key[i])
		}
	}
	return here
}
