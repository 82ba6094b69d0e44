package delta

import (
	"maps"
)

// tableState is what of the log a snapshot keeps in memory: all but the files.
type tableState struct {
	proto   *Protocol
	meta    *Metadata
	txns    map[string]Txn
	domains map[string]DomainMetadata
	owned   bool // the maps belong to this state alone
}

// apply takes an action that is newer than all that the state has. Actions of files are none of its business.
func (s *tableState) apply(a *Action) {
	switch {
	case a.Protocol != nil:
		s.proto = a.Protocol
	case a.Metadata != nil:
		s.meta = a.Metadata
	case a.Txn != nil:
		s.own()
		s.txns[a.Txn.AppID] = *a.Txn
	case a.DomainMetadata != nil:
		s.own()
		if a.DomainMetadata.Removed {
			delete(s.domains, a.DomainMetadata.Domain)
		} else {
			s.domains[a.DomainMetadata.Domain] = *a.DomainMetadata
		}
	}
}

// own copies the maps before their first change.
func (s *tableState) own() {
	if s.owned {
		return
	}
	s.owned = true
	s.txns, s.domains = maps.Clone(s.txns), maps.Clone(s.domains)
	if s.txns == nil {
		s.txns = map[string]Txn{}
	}
	if s.domains == nil {
		s.domains = map[string]DomainMetadata{}
	}
}

// share returns a state with the same content that copies the maps before it changes them.
func (s tableState) share() tableState {
	s.owned = false
	return s
}
