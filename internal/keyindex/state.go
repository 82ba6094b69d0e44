package keyindex

import "slices"

// state is what look-ups see: the runs and the live files of one manifest. It does not change; each look-up
// holds the one that it began with, and the last to let go of a state unmaps the runs that no other state
// has.
type state struct {
	*manifest
	runs []*run // as manifest.runs
	live liveFiles
	uses int // guarded by Index.mu
}

func newState(m *manifest, runs []*run) *state {
	for _, r := range runs {
		r.uses.Add(1)
	}
	return &state{manifest: m, runs: runs, live: newLiveFiles(m.files), uses: 1}
}

// liveFiles is the set of ids of files that were not removed. Zero is not among them, and Tombstone always is.
type liveFiles struct {
	base  FileID // a multiple of 64
	words []uint64
}

func newLiveFiles(files []file) liveFiles {
	if len(files) == 0 {
		return liveFiles{}
	}
	s := liveFiles{base: files[0].id &^ 63}
	s.words = make([]uint64, (files[len(files)-1].id-s.base)/64+1)
	for _, f := range files {
		s.words[(f.id-s.base)/64] |= 1 << (f.id & 63)
	}
	return s
}

func (s *liveFiles) has(id FileID) bool {
	i := uint64(id-s.base) / 64 // an id below base becomes a large one
	return i < uint64(len(s.words)) && s.words[i]>>(id&63)&1 == 1 || id == Tombstone
}

// path finds a live file.
func (m *manifest) path(id FileID) (string, bool) {
	i, ok := slices.BinarySearchFunc(m.files, id, func(f file, id FileID) int {
		return int(int64(f.id) - int64(id))
	})
	if !ok {
		return "", false
	}
	return m.files[i].path, true
}
