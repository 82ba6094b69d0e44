package lake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// form is how an app's progress is written into the txn actions of a table.
//
//	txn appId                     version                   when
//	<app>-<lane>                  last seq of the lane      one origin, as kafka-delta-ingest has it
//	<app>-<origin>-<lane>         last seq of the lane      several origins
//	<app>-<origin>#<originID>     1: the origin's identity; 0: an identity that was given up
//	<app>#form                    1: one origin; 2: several
//
// The marker tells which of the two holds when a table has been brought from one to the other: txns cannot be
// taken back. A table without it, but with progress, was written by kafka-delta-ingest: form 1.
type form struct {
	app  string
	many bool
}

const (
	formOne  = 1
	formMany = 2
)

func (a *Target) form() form { return form{a.app, a.opts.ManyOrigins} }

func (f form) lane(l freshet.Lane) string {
	if f.many {
		return f.app + "-" + l.Origin + "-" + l.Name
	}
	return f.app + "-" + l.Name
}

// identity is the appId that records the identity of the lane's origin; "" for an origin that has none.
func (f form) identity(l freshet.Lane) string {
	if l.OriginID == "" {
		return ""
	}
	return f.identities(l.Origin) + l.OriginID
}

// identities is what the appIds of all identities of the origin begin with.
func (f form) identities(origin string) string { return f.app + "-" + origin + "#" }

func (f form) marker() string { return f.app + "#form" }

func (f form) number() int64 {
	if f.many {
		return formMany
	}
	return formOne
}

// progress is what the snapshot has of the lanes, in this form.
func (f form) progress(snap *delta.Snapshot, lanes []freshet.Lane) freshet.Progress {
	p := freshet.Progress{}
	for _, l := range lanes {
		if v, ok := snap.Txn(f.lane(l)); ok {
			p[l] = v
		}
	}
	return p
}

// found is the form that the table is in; ok is false when the app has no progress in it.
func (f form) found(snap *delta.Snapshot) (number int64, ok bool) {
	if v, ok := snap.Txn(f.marker()); ok {
		return v, true
	}
	for id := range snap.Txns() {
		if rest, ok := strings.CutPrefix(id, f.app+"-"); ok && isNumber(rest) {
			return formOne, true
		}
	}
	return 0, false
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// checkIdentity fails when the table knows the lane's origin under another identity.
func (f form) checkIdentity(table string, snap *delta.Snapshot, l freshet.Lane) error {
	if l.OriginID == "" {
		return nil
	}
	prefix := f.identities(l.Origin)
	for id, txn := range snap.Txns() {
		other, ok := strings.CutPrefix(id, prefix)
		if !ok || txn.Version == 0 || other == l.OriginID {
			continue
		}
		return &freshet.Error{Code: freshet.CodeOriginChanged, Class: freshet.ClassInput, Place: l.Origin,
			Msg: fmt.Sprintf("table %s holds the records of %s with id %s; there is one with id %s now: it was "+
				"deleted and made again",
				table, l.Origin, other, l.OriginID),
			Fix: fmt.Sprintf("to go on with the new one from its start: freshet progress set %s '%s[0]=-1' --new-origin %s; "+
				"or write to another table", table, l.Origin, l.OriginID)}
	}
	return nil
}

// startTxns are the txns of a commit that starts lanes in a table that has none.
func (f form) startTxns(starts freshet.Progress) []delta.Txn {
	set := txns{}
	for l, seq := range starts {
		f.record(set, l, seq)
	}
	all := make([]delta.Txn, 0, len(set))
	for id, v := range set {
		all = append(all, delta.Txn{AppID: id, Version: v})
	}
	slices.SortFunc(all, func(a, b delta.Txn) int { return strings.Compare(a.AppID, b.AppID) })
	return all
}

// txns are versions of txn actions by appId, which a commit sets under the condition that each was what the
// snapshot that it is built upon has. One that has its version already is only checked to stay.
type txns map[string]int64

func (s txns) addTo(tx *delta.Transaction, snap *delta.Snapshot) {
	for _, id := range slices.Sorted(maps.Keys(s)) {
		was, ok := snap.Txn(id)
		tx.ExpectTxn(id, was, ok)
		if !ok || was != s[id] {
			tx.AddTxn(id, s[id])
		}
	}
}

// in reports whether the snapshot has all of it.
func (s txns) in(snap *delta.Snapshot) bool {
	for id, v := range s {
		if have, ok := snap.Txn(id); !ok || have != v {
			return false
		}
	}
	return true
}

// record adds what records the lane, its origin's identity and the form.
func (f form) record(s txns, l freshet.Lane, seq int64) {
	s[f.lane(l)] = seq
	s[f.marker()] = f.number()
	if id := f.identity(l); id != "" {
		s[id] = 1
	}
}

// change brings the app's lanes in the snapshot from the form that it has to this one. It returns the txns to
// set, nil when there is nothing to bring.
func (f form) change(table string, snap *delta.Snapshot) (txns, error) {
	was, ok := f.found(snap)
	if !ok || was == f.number() {
		return nil, nil
	}
	origins := f.origins(snap)
	if len(origins) != 1 {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: table,
			Msg: fmt.Sprintf("the table's progress is that of %s origins (%s), and names of the other form are wanted",
				map[bool]string{true: "unknown", false: "several"}[len(origins) == 0], strings.Join(origins, ", ")),
			Fix: "run once as before with this version, so that the origin is recorded; or use another app"}
	}
	from := form{f.app, was == formMany}
	prefix := from.lane(freshet.Lane{Origin: origins[0]})
	set := txns{f.marker(): f.number()}
	for id, txn := range snap.Txns() {
		if name, ok := strings.CutPrefix(id, prefix); ok && isNumber(name) {
			set[f.lane(freshet.Lane{Origin: origins[0], Name: name})] = txn.Version
		}
	}
	return set, nil
}

// origins are the origins whose identity the table records for the app.
func (f form) origins(snap *delta.Snapshot) []string {
	var names []string
	for id, txn := range snap.Txns() {
		rest, ok := strings.CutPrefix(id, f.app+"-")
		if name, _, is := strings.Cut(rest, "#"); ok && is && txn.Version != 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
