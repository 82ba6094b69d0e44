package quality

import (
	"context"
	"time"
)

// askAgain is after what time the source is asked again to send rows that have not come: it leaves out those that were being changed.
const askAgain = 3 * time.Second

// mend has the source send the rows of the keys that were found wrong, and looks at both sides until they are the same: two looks
// that are equal, one behind the other, show that the table has come to have the row that the source has.
func (v *verifier) mend(ctx context.Context) error {
	keys, of := map[string]*candidate{}, map[string]Difference{}
	for _, d := range v.wrong {
		key := joinKey(d.Key)
		keys[key], of[key] = &candidate{}, d
	}
	v.wrong = nil
	var asked time.Time
	for until := time.Now().Add(v.o.Wait); len(keys) > 0 && time.Now().Before(until); {
		if time.Since(asked) > askAgain {
			left := make([]Difference, 0, len(keys))
			for key, c := range keys {
				d := of[key]
				if c.source.is {
					d.Mark = c.source.mark()
				}
				left = append(left, d)
			}
			if err := v.o.Mend(ctx, left); err != nil {
				return err
			}
			asked = time.Now()
		}
		high, _, err := v.lookAtSource(ctx, keys)
		if err != nil {
			return err
		}
		if err := v.lookAtTable(ctx, keys, high); err != nil {
			return err
		}
		for key, c := range keys {
			if c.source.equal(&c.table) || c.source.rejected {
				delete(keys, key)
				v.result.Mended++
			}
		}
	}
	return nil
}
