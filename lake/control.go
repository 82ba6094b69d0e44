package lake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/store"
)

// Control is what people have said of an app's pipeline, for all of its processes to obey. It lies in objects
//
//	_freshet/control/<app>/<n>.json
//
// below the table that it is for, each of which replaces those before it and is put if absent, so that of two who change it
// at once one sees what the other did. Hidden names are left alone by every vacuum.
type Control struct {
	// Paused holds the whole pipeline; nil: it runs.
	Paused *Pause `json:"paused,omitempty"`
	// Hole is what the tables lack since their source's log was lost; nil: nothing.
	Hole *Hole `json:"hole,omitempty"`
	// Tables are what is said of single tables, by the name under which the pipeline knows them.
	Tables map[string]TableControl `json:"tables,omitempty"`

	number int // of the object; 0: there is none
}

// TableControl is what people have said of one table of a pipeline.
type TableControl struct {
	Paused *Pause      `json:"paused,omitempty"`
	Resync *ResyncPlan `json:"resync,omitempty"`
	// Slow tells that a process parks the table's changes for now, since it is slow. Nobody obeys it.
	Slow *Pause `json:"slow,omitempty"`
}

// Pause says who paused, when and why.
type Pause struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Why   string    `json:"why,omitempty"`
	// Park has the changes of a table be read, and kept beside it until it goes on.
	Park bool `json:"park,omitempty"`
}

// Hole is a stretch of a source's log that was lost: what happened in it is found by comparing the tables with their source. Until
// that is repaired the tables show no moment of the source together, and no cuts are recorded.
type Hole struct {
	By    string    `json:"by"` // who has the tables go on behind it
	Since time.Time `json:"since"`
	From  string    `json:"from,omitempty"` // positions; "": not known
	To    string    `json:"to,omitempty"`
}

// String is as people read it.
func (h *Hole) String() string {
	return fmt.Sprintf("the log from %s to %s is lost, and not all is repaired yet that differs; let to go on by %s since %s",
		h.From, h.To, h.By, h.Since.UTC().Format(time.RFC3339))
}

// String is as people read it: "by alice@db1 since 2026-01-31T12:00:00Z: migration".
func (p *Pause) String() string {
	s := fmt.Sprintf("by %s since %s", p.By, p.Since.UTC().Format(time.RFC3339))
	if p.Why != "" {
		s += ": " + p.Why
	}
	return s
}

// Empty reports whether nothing is said.
func (c *Control) Empty() bool { return c.Paused == nil && c.Hole == nil && len(c.Tables) == 0 }

// Same reports whether both say the same.
func (c *Control) Same(other *Control) bool {
	return reflect.DeepEqual(c.Paused, other.Paused) && reflect.DeepEqual(c.Hole, other.Hole) &&
		(len(c.Tables) == 0 && len(other.Tables) == 0 || reflect.DeepEqual(c.Tables, other.Tables))
}

// controlKept is how many objects are kept: were the one before deleted at once, who has read one before that could put what
// is already replaced.
const controlKept = 32

func controlFolder(app string) string { return "_freshet/control/" + url.PathEscape(app) + "/" }

func controlKey(app string, number int) string {
	return fmt.Sprintf("%s%010d.json", controlFolder(app), number)
}

// ReadControl returns what is said of the app's pipeline, at the root of st. Nothing is an empty Control. Of the one that
// was read before, which may be nil, it costs one listing to find that nothing has changed.
func ReadControl(ctx context.Context, st store.Store, app string, before *Control) (*Control, error) {
	after := ""
	if before != nil && before.number > 0 {
		after = controlKey(app, before.number)
	}
	newest := ""
	for o, err := range st.List(ctx, controlFolder(app), after) {
		if err != nil {
			return nil, explain(st.URL(), err)
		}
		newest = o.Key
	}
	switch {
	case newest == "" && before != nil:
		return before, nil
	case newest == "":
		return &Control{}, nil
	}
	data, err := st.Get(ctx, newest)
	if errors.Is(err, store.ErrNotFound) { // replaced and deleted meanwhile
		return ReadControl(ctx, st, app, nil)
	}
	if err != nil {
		return nil, explain(st.URL(), err)
	}
	c := &Control{}
	_, scan := fmt.Sscanf(newest[len(controlFolder(app)):], "%d.json", &c.number)
	if err := errors.Join(scan, json.Unmarshal(data, c)); err != nil {
		return nil, &freshet.Error{Code: freshet.CodeCorrupt, Class: freshet.ClassFailure, Place: st.URL(), Err: err,
			Msg: fmt.Sprintf("%s: found %.100q, wanted what is said of a pipeline", newest, data),
			Fix: "delete the object: the pipeline then runs"}
	}
	return c, nil
}

// ChangeControl has change make something else of what is said, again when another was first, and returns what is said
// then. An error of change ends it.
func ChangeControl(ctx context.Context, st store.Store, app string, change func(c *Control) error) (*Control, error) {
	for range maxRaces {
		c, err := ReadControl(ctx, st, app, nil)
		if err != nil {
			return nil, err
		}
		if c.Tables == nil {
			c.Tables = map[string]TableControl{}
		}
		if err := change(c); err != nil {
			return nil, err
		}
		for name, t := range c.Tables {
			if t == (TableControl{}) {
				delete(c.Tables, name)
			}
		}
		data, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return nil, err
		}
		c.number++
		err = st.PutIfAbsent(ctx, controlKey(app, c.number), data)
		switch {
		case err == nil:
			if old := c.number - controlKept; old > 0 {
				_ = st.Delete(ctx, controlKey(app, old)) // what stays is replaced all the same
			}
			return c, nil
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrAmbiguous):
			return nil, explain(st.URL(), err)
		}
	}
	return nil, &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassFailure, Place: st.URL(),
		Msg: fmt.Sprintf("lost %d races in a row against others who pause or resume", maxRaces)}
}
