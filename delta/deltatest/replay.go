// Package deltatest checks Delta tables by other means than package delta: a replay of the log that is as
// plain as can be, for tests to compare with.
//
// Guarantees: it reads only the commits, with encoding/json, and keeps everything in memory; it shares no
// code with package delta. Non-goals: speed, checkpoints, tables whose log was cleaned.
//
//	state, err := deltatest.Replay(ctx, st)
//	if got := len(state.Files); got != 3 { … }
package deltatest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/freshet-io/freshet/store"
)

// State is a table as its commits tell it.
type State struct {
	Version int64
	Files   map[string]File  // live files by decoded path and deletion vector
	Txns    map[string]int64 // progress by application
	Commits []Commit         // by version
}

// File is a live data file.
type File struct {
	Path            string             `json:"path"`
	PartitionValues map[string]*string `json:"partitionValues"`
	Size            int64              `json:"size"`
	Stats           string             `json:"stats"`
	Version         int64              `json:"-"` // the commit that added it
}

// Commit is what one version did.
type Commit struct {
	Operation string
	TxnID     string
	Txns      map[string]int64
	Added     []File
	Removed   int
}

type line struct {
	CommitInfo *struct {
		Operation string `json:"operation"`
		TxnID     string `json:"txnId"`
	} `json:"commitInfo"`
	Txn *struct {
		AppID   string `json:"appId"`
		Version int64  `json:"version"`
	} `json:"txn"`
	Add    *added `json:"add"`
	Remove *added `json:"remove"`
}

type added struct {
	File
	DeletionVector *struct {
		StorageType string `json:"storageType"`
		Path        string `json:"pathOrInlineDv"`
		Offset      *int   `json:"offset"`
	} `json:"deletionVector"`
}

func (a *added) key() string {
	path, err := url.PathUnescape(a.Path)
	if err != nil {
		path = a.Path
	}
	if v := a.DeletionVector; v != nil {
		text, _ := json.Marshal(v)
		return path + "\n" + string(text)
	}
	return path
}

// Replay reads the commits from version 0 on until one is not there. Errors: store.ErrNotFound when version 0
// is not there.
func Replay(ctx context.Context, st store.Store) (*State, error) {
	s := &State{Version: -1, Files: map[string]File{}, Txns: map[string]int64{}}
	for {
		next := s.Version + 1
		data, err := st.Get(ctx, fmt.Sprintf("_delta_log/%020d.json", next))
		if errors.Is(err, store.ErrNotFound) && next > 0 {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		if err := s.commit(next, data); err != nil {
			return nil, fmt.Errorf("version %d: %w", next, err)
		}
	}
}

func (s *State) commit(version int64, data []byte) error {
	c := Commit{Txns: map[string]int64{}}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return err
		}
		s.take(version, &l, &c)
	}
	s.Version = version
	s.Commits = append(s.Commits, c)
	return lines.Err()
}

func (s *State) take(version int64, l *line, c *Commit) {
	switch {
	case l.CommitInfo != nil:
		c.Operation, c.TxnID = l.CommitInfo.Operation, l.CommitInfo.TxnID
	case l.Txn != nil:
		s.Txns[l.Txn.AppID], c.Txns[l.Txn.AppID] = l.Txn.Version, l.Txn.Version
	case l.Add != nil:
		l.Add.Version = version
		s.Files[l.Add.key()] = l.Add.File
		c.Added = append(c.Added, l.Add.File)
	case l.Remove != nil:
		delete(s.Files, l.Remove.key())
		c.Removed++
	}
}
