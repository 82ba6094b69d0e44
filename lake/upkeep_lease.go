package lake

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/freshet-io/freshet/store"
)

// leaseKey is where processes that look after one table tell each other so. It is no lock: two that take it at once do
// the same work, and one of them loses its commit to the other.
const leaseKey = "_freshet/upkeep.json"

// leaseFor is how long a process has the table to itself after it last said so.
const leaseFor = 10 * time.Minute

// lease is what lies there.
type lease struct {
	Holder   string    `json:"holder"`   // a process, by chance
	Until    time.Time `json:"until"`    // by its clock
	Vacuumed time.Time `json:"vacuumed"` // when the table was vacuumed last; zero: not known
}

// readLease returns what is known of the table's upkeep. What is broken counts as nothing.
func readLease(ctx context.Context, st store.Store) (lease, error) {
	var l lease
	data, err := st.Get(ctx, leaseKey)
	if errors.Is(err, store.ErrNotFound) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if json.Unmarshal(data, &l) != nil {
		return lease{}, nil
	}
	return l, nil
}

func (l lease) write(ctx context.Context, st store.Store) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return st.Put(ctx, leaseKey, data)
}

// taken reports whether another process has the table now. A time that no lease can reach is not believed.
func (l lease) taken(by string, now time.Time) bool {
	return l.Holder != "" && l.Holder != by && now.Before(l.Until) && l.Until.Sub(now) <= 2*leaseFor
}
