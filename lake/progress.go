package lake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// AppProgress is what a table records of one app.
type AppProgress struct {
	App         string
	Version     int64 // of the table
	ManyOrigins bool
	// Foreign says that another program's txn is shown as it is: App is its appId, and there is one lane without
	// a name.
	Foreign bool
	Lanes   []LaneProgress // by origin and name
}

// LaneProgress is where a lane stands in a table.
type LaneProgress struct {
	Lane    freshet.Lane // Origin is "" where the table does not say; OriginID likewise
	AppID   string       // of the txn action
	Seq     int64        // the last that the table holds
	Txn     int64        // what its own txn says of that, which is less where cuts say more
	Cut     int64        // the cut that says Seq; 0: the txn does
	Updated time.Time    // when the txn was written, or the cut; zero when it does not say
}

// ReadProgress returns what the table at the root of st records, by app. Lanes of an app that nobody has
// marked as one (kafka-delta-ingest does not) are recognised by a number at the end of their appId.
func ReadProgress(ctx context.Context, st store.Store) ([]AppProgress, error) {
	snap, err := openTable(ctx, st, "")
	if err != nil {
		return nil, err
	}
	apps := map[string]bool{}
	for id := range snap.Txns() {
		if app, ok := strings.CutSuffix(id, "#form"); ok {
			apps[app] = true
		}
	}
	taken := map[string]bool{}
	var all []AppProgress
	for app := range apps {
		all = append(all, appProgress(snap, app, taken))
	}
	for id := range snap.Txns() {
		if i := strings.LastIndexByte(id, '-'); i > 0 && !taken[id] && isNumber(id[i+1:]) && !foreign(id) {
			all = append(all, appProgress(snap, id[:i], taken))
		}
	}
	for id, txn := range snap.Txns() {
		if !taken[id] && !strings.Contains(id, "#") {
			all = append(all, AppProgress{App: id, Version: snap.Version(), Foreign: true,
				Lanes: []LaneProgress{laneProgress(freshet.Lane{}, id, txn)}})
		}
	}
	slices.SortFunc(all, func(a, b AppProgress) int { return cmp.Compare(a.App, b.App) })
	return all, nil
}

// foreign tells appIds that only look like those of lanes: a Spark query's id is a UUID, and may end in a
// number.
func foreign(id string) bool {
	const dashes = "8-13-18-23"
	var at []string
	for i := range len(id) {
		if id[i] == '-' {
			at = append(at, strconv.Itoa(i))
		}
	}
	return strings.Contains(id, "#") || len(id) == 36 && strings.Join(at, "-") == dashes
}

// openTable is the newest snapshot of the table at the root of st. Commits upon it name the engine; "": the default.
func openTable(ctx context.Context, st store.Store, engine string) (*delta.Snapshot, error) {
	d, err := delta.Open(ctx, st, &delta.OpenOptions{EngineInfo: engine})
	if err != nil {
		return nil, explain(st.URL(), err)
	}
	snap, err := d.Snapshot(ctx)
	return snap, explain(st.URL(), err)
}

func laneProgress(l freshet.Lane, id string, txn delta.Txn) LaneProgress {
	p := LaneProgress{Lane: l, AppID: id, Seq: txn.Version, Txn: txn.Version}
	if txn.LastUpdated != nil {
		p.Updated = time.UnixMilli(*txn.LastUpdated)
	}
	return p
}

// appProgress gathers the lanes of one app, and notes in taken which txns those are.
func appProgress(snap *delta.Snapshot, app string, taken map[string]bool) AppProgress {
	f := form{app: app}
	number, _ := f.found(snap)
	f.many = number == formMany
	p := AppProgress{App: app, Version: snap.Version(), ManyOrigins: f.many}
	origins := f.origins(snap)
	if len(origins) == 0 {
		origins = []string{""}
	}
	for _, origin := range origins {
		prefix := f.lane(freshet.Lane{Origin: origin})
		for id, txn := range snap.Txns() {
			name, ok := strings.CutPrefix(id, prefix)
			if !ok || taken[id] || !isNumber(name) {
				continue
			}
			taken[id] = true
			l := freshet.Lane{Origin: origin, OriginID: f.identityIn(snap, origin), Name: name}
			p.Lanes = append(p.Lanes, laneProgress(l, id, txn))
		}
	}
	for id := range snap.Txns() {
		if strings.HasPrefix(id, app+"-") && isNumber(id[len(app)+1:]) {
			taken[id] = true // of the form that the table had before
		}
	}
	slices.SortFunc(p.Lanes, func(a, b LaneProgress) int {
		return cmp.Or(cmp.Compare(a.Lane.Origin, b.Lane.Origin), compareNames(a.Lane.Name, b.Lane.Name))
	})
	return p
}

func compareNames(a, b string) int {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return cmp.Compare(x, y)
}

// identityIn is the identity under which the snapshot knows the origin, "" when it knows none.
func (f form) identityIn(snap *delta.Snapshot, origin string) string {
	for id, txn := range snap.Txns() {
		if identity, ok := strings.CutPrefix(id, f.identities(origin)); ok && txn.Version != 0 {
			return identity
		}
	}
	return ""
}

// setTxn counts how often somebody has set the progress of the app: what cuts before say beyond it counts no more.
func setTxn(app string) string { return app + "#set" }

// SetOptions tune SetProgress. The zero value of each field means its default.
type SetOptions struct {
	// ManyOrigins is the form for a table that has no progress of the app yet; see TargetOptions. One that has
	// keeps its own.
	ManyOrigins bool
	// NewOrigin accepts lanes whose origin has another identity than the table remembers: it was deleted and
	// made again. Lanes of it that are not set begin at their start.
	NewOrigin bool
	// OnlyAbsent refuses to change lanes that have progress.
	OnlyAbsent bool
	// Reason is noted in the table's history.
	Reason string
	// EngineInfo names the writer there. Default "Freshet".
	EngineInfo string
}

// SetProgress sets where lanes stand in the table at the root of st: the next record that is read is the one
// after. A lane without an OriginID keeps the identity that the table knows. A pipeline that runs meanwhile
// notices, drops what it has read and goes on from there. It returns the version of the commit, or of the
// table when that has all of it already.
func SetProgress(ctx context.Context, st store.Store, app string, p freshet.Progress, opts *SetOptions) (
	version int64, err error) {
	var o SetOptions
	if opts != nil {
		o = *opts
	}
	for range maxRaces {
		snap, err := openTable(ctx, st, o.EngineInfo)
		if err != nil {
			return 0, err
		}
		set, err := o.txns(st.URL(), snap, app, p)
		if err != nil {
			return 0, err
		}
		if set.in(snap) {
			return snap.Version(), nil
		}
		times, _ := snap.Txn(setTxn(app))
		set[setTxn(app)] = times + 1
		tx := snap.Table().Begin(snap, nil)
		set.addTo(tx, snap)
		tx.Operation("SET PROGRESS", map[string]string{"app": app}, nil)
		tx.BlindAppend(true)
		tx.UserMetadata(o.Reason)
		done, err := tx.Commit(ctx)
		if err == nil {
			return done.Version, nil
		}
		if !errors.Is(err, delta.ErrConflict) {
			return 0, explain(st.URL(), err)
		}
	}
	return 0, explain(st.URL(), delta.ErrConflict)
}

// txns are what SetProgress commits on the snapshot.
func (o *SetOptions) txns(table string, snap *delta.Snapshot, app string, p freshet.Progress) (txns, error) {
	f := form{app, o.ManyOrigins}
	if number, ok := f.found(snap); ok {
		f.many = number == formMany
	}
	set := txns{}
	for l, seq := range p {
		if seq < -1 {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: l.String(),
				Msg: fmt.Sprintf("found the position %d, wanted -1 (the start) or more", seq)}
		}
		if have, ok := snap.Txn(f.lane(l)); ok && o.OnlyAbsent && have != seq {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: table,
				Msg: fmt.Sprintf("the table has %s already", l.Position(have)),
				Fix: "to change it, use `freshet progress set`"}
		}
		if err := o.identity(set, f, table, snap, l); err != nil {
			return nil, err
		}
		f.record(set, l, seq)
	}
	return set, nil
}

// identity makes sure that the lane's origin is the one that the table knows, or replaces that.
func (o *SetOptions) identity(set txns, f form, table string, snap *delta.Snapshot, l freshet.Lane) error {
	known := f.origins(snap)
	if !f.many && len(known) > 0 && l.Origin != "" && !slices.Contains(known, l.Origin) {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: table,
			Msg: fmt.Sprintf("found a position of %s, but the table's app %s reads %s", l.Origin, f.app, known[0])}
	}
	err := f.checkIdentity(table, snap, l)
	if err == nil || !o.NewOrigin {
		return err
	}
	for id, txn := range snap.Txns() {
		if strings.HasPrefix(id, f.identities(l.Origin)) && txn.Version != 0 && id != f.identity(l) {
			set[id] = 0
		}
		name, ok := strings.CutPrefix(id, f.lane(freshet.Lane{Origin: l.Origin}))
		if _, given := set[id]; ok && isNumber(name) && !given {
			set[id] = -1
		}
	}
	return nil
}
