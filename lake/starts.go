package lake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/store"
)

// Where lanes start in a table that is still to be made is kept in its folder, in objects
//
//	_freshet/starts-<app>/<n>.json   [{"origin":…,"origin_id":…,"lane":…,"seq":…}, …]
//
// each of which holds starts that those before it lack and is put if absent: of several processes, each adopts what
// another was first with. The commit that makes the table takes them over, and they are deleted.
type keptStarts struct {
	progress freshet.Progress
	since    time.Time // of the first object
	keys     []string
	next     int
}

type keptStart struct {
	Origin   string `json:"origin"`
	OriginID string `json:"origin_id"`
	Lane     string `json:"lane"`
	Seq      int64  `json:"seq"`
}

func (t *table) startsFolder() string { return "_freshet/starts-" + url.PathEscape(t.a.app) + "/" }

// kept reads what is kept.
func (t *table) kept(ctx context.Context) (*keptStarts, error) {
	k := &keptStarts{progress: freshet.Progress{}}
	for o, err := range t.st.List(ctx, t.startsFolder(), "") {
		if err != nil {
			return nil, explain(t.name, err)
		}
		data, err := t.st.Get(ctx, o.Key)
		if errors.Is(err, store.ErrNotFound) {
			continue // the table was made meanwhile
		}
		if err != nil {
			return nil, explain(t.name, err)
		}
		var starts []keptStart
		if err := json.Unmarshal(data, &starts); err != nil {
			return nil, &freshet.Error{Code: freshet.CodeCorrupt, Class: freshet.ClassFailure, Place: t.name, Err: err,
				Msg: fmt.Sprintf("%s: found %.100q, wanted where lanes start", o.Key, data),
				Fix: "delete the object; lanes then start anew"}
		}
		for _, s := range starts {
			l := freshet.Lane{Origin: s.Origin, OriginID: s.OriginID, Name: s.Lane}
			if _, ok := k.progress[l]; !ok {
				k.progress[l] = s.Seq
			}
		}
		if len(k.keys) == 0 {
			k.since = o.Modified
		}
		k.keys = append(k.keys, o.Key)
	}
	k.next = len(k.keys)
	return k, nil
}

// keep has starts kept that nobody was first with, and returns what is kept of them.
func (t *table) keep(ctx context.Context, starts freshet.Progress) (freshet.Progress, error) {
	for range maxRaces {
		k, err := t.kept(ctx)
		if err != nil {
			return nil, err
		}
		var missing []keptStart
		p := maps.Clone(starts)
		for l, seq := range starts {
			if have, ok := k.progress[l]; ok {
				p[l] = have
				continue
			}
			missing = append(missing, keptStart{l.Origin, l.OriginID, l.Name, seq})
		}
		if len(missing) == 0 {
			return p, nil
		}
		data, err := json.Marshal(missing)
		if err != nil {
			return nil, err
		}
		err = t.st.PutIfAbsent(ctx, fmt.Sprintf("%s%08d.json", t.startsFolder(), k.next), data)
		switch {
		case err == nil:
			return p, nil
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrAmbiguous):
			return nil, explain(t.name, err)
		}
	}
	return nil, t.tooManyRaces()
}

// toRecord are the starts that the commit takes over that makes the table: those that are kept, but for an origin that
// was deleted and made again since, and ours.
func (t *table) toRecord(k *keptStarts) freshet.Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.starts)
	if all == nil {
		all = freshet.Progress{}
	}
	for l, seq := range k.progress {
		again := false
		for ours := range t.starts {
			again = again || ours.Origin == l.Origin && ours.OriginID != l.OriginID
		}
		if !again {
			all[l] = seq
		}
	}
	return all
}

// drop deletes what is kept, now that there is a table. What cannot be deleted is read by nobody as long as there is.
func (t *table) drop(ctx context.Context, k *keptStarts) {
	for _, key := range k.keys {
		_ = t.st.Delete(ctx, key)
	}
}
