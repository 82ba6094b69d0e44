package lake

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
)

// groupParam is the parameter of a commit that tells, in the first commit of what was sealed together, where the others
// end: a process that finds it after a crash knows how far the tables must come before they are level.
const groupParam = "freshet.group"

// groupEnd is where a lane ends in a group.
type groupEnd struct {
	Origin   string `json:"origin"`
	OriginID string `json:"origin_id"`
	Lane     string `json:"lane"`
	Seq      int64  `json:"seq"`
}

// tellGroup has one of the commits tell where the others end, and puts it before them.
func tellGroup(commits []freshet.Commit) {
	var own []*commit // those of tables that are held back are in no cut, and idle ones bring nothing
	for _, c := range commits {
		c, is := c.(*commit)
		if !is {
			continue
		}
		if _, idle := c.Idle(); !idle {
			own = append(own, c)
		}
	}
	if len(own) < 2 {
		return
	}
	var ends []groupEnd
	for _, c := range own[1:] {
		for l, s := range c.lanes {
			ends = append(ends, groupEnd{l.Origin, l.OriginID, l.Name, s.last})
		}
	}
	if text, err := json.Marshal(ends); err == nil { // texts and numbers
		own[0].group = string(text)
	}
	i := slices.IndexFunc(commits, func(c freshet.Commit) bool { return c == own[0] })
	commits[0], commits[i] = commits[i], commits[0]
}

// lateParam is the parameter of a commit that tells the first day that was over when rows of it came, and whose end moves
// with the next cut.
const lateParam = "freshet.late"

// earlier is the earlier one of two days, of which 0 is none.
func earlier(a, b freshet.Day) freshet.Day {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// withGroup adds the group and the late day to the parameters of the commit.
func (c *commit) withGroup(params map[string]string) map[string]string {
	if c.group == "" && c.late == 0 {
		return params
	}
	all := maps.Clone(params)
	if all == nil {
		all = map[string]string{}
	}
	if c.group != "" {
		all[groupParam] = c.group
	}
	if c.late != 0 {
		all[lateParam] = c.late.String()
	}
	return all
}

// untold is how many commits are looked through of a table that no cut has shown.
const untold = 100

// recall finds what the table's commits since the newest cut tell of groups: a process before may not have finished one.
func (r *recorder) recall(ctx context.Context, s shownTable) (err error) {
	if r.hasRecalled(s.t) {
		return nil
	}
	newest, err := s.snap.Table().Snapshot(ctx)
	if err != nil {
		return explain(s.t.name, err)
	}
	since := max(-1, newest.Version()-untold)
	if r.head != nil {
		for _, h := range r.head.Tables {
			if h.Name == s.t.name {
				since = h.Version
			}
		}
	}
	owed := map[freshet.Lane]int64{}
	defer func() {
		if err == nil {
			r.recollect(s.t, owed)
		}
	}()
	if newest.Version() <= since {
		return nil
	}
	for e, err := range s.snap.Table().History(ctx, int(newest.Version()-since)) {
		if err != nil {
			return explain(s.t.name, err)
		}
		if e.Version <= since {
			break
		}
		if e.Info.OperationParameters["queryId"] != r.a.app {
			continue
		}
		if day, err := freshet.ParseDay(e.Info.OperationParameters[lateParam]); err == nil {
			r.cameLate(day)
		}
		var ends []groupEnd
		text, ours := e.Info.OperationParameters[groupParam]
		if !ours || json.Unmarshal([]byte(text), &ends) != nil {
			continue
		}
		for _, end := range ends {
			l := freshet.Lane{Origin: end.Origin, OriginID: end.OriginID, Name: end.Lane}
			owed[l] = max(owed[l], end.Seq)
		}
	}
	return nil
}

func (r *recorder) hasRecalled(t *table) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recalled[t.name]
}

// recollect notes what a table's commits tell.
func (r *recorder) recollect(t *table, owed map[freshet.Lane]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, seq := range owed {
		r.owed[l] = max(r.owed[l], seq)
	}
	r.recalled[t.name] = true
}

// meets is of how many tables the stores are asked at once.
const meets = 16

// meet looks through the commits of tables that the recorder has not met yet, side by side: each costs several requests.
func (r *recorder) meet(ctx context.Context, tables []*table) error {
	var all errgroup.Group
	all.SetLimit(meets)
	for _, t := range tables {
		if r.hasRecalled(t) {
			continue
		}
		all.Go(func() error {
			snap, err := r.known(ctx, t, false)
			if err != nil || snap == nil {
				return err
			}
			return r.ask(ctx, t, "read its history", func(ctx context.Context) error { return r.recall(ctx, shownTable{t, snap}) })
		})
	}
	return all.Wait()
}

// paid reports whether the lanes have come as far as commits before told, and forgets what has.
func (r *recorder) paid(at map[freshet.Lane]int64) bool {
	for l, seq := range r.owed {
		if have, known := at[l]; known && have < seq {
			return false
		}
		delete(r.owed, l)
	}
	return true
}
