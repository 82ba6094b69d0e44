package keyindex

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func FuzzManifest(f *testing.F) {
	m := &manifest{
		identity: Identity{"t", []Column{{"id", "long"}, {"s", "string"}}, true, 8},
		index:    1, secret: secret{2, 3}, version: 7, note: "n@3", nextFile: 9, nextRun: 4,
		files: []file{{1, "a"}, {8, "b/c"}}, runs: []runInfo{{3, 100, 4000, 77}, {1, 5, 6, 7}},
	}
	f.Add(m.encode())
	f.Add((&manifest{version: None}).encode())
	f.Add([]byte(manifestMagic + "\x01" + "0000")) // a text that is longer than what is left
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			// A fuzzer does not guess checksums: with the right one, the fields must hold as well.
			if len(b) < len(manifestMagic)+4 {
				return
			}
			if m, err = decodeManifest(signed(b[:len(b)-4])); err != nil {
				return
			}
		}
		again, err := decodeManifest(m.encode())
		if err != nil || !bytes.Equal(again.encode(), m.encode()) {
			t.Errorf("got %+v, %v, want %+v", again, err, m)
		}
	})
}

// FuzzRun opens hostile bytes as a run and looks keys up in it.
func FuzzRun(f *testing.F) {
	keys := []Fingerprint{{1, 2}, {1 << 63, 5}, {1<<63 + 1, 9}, {1<<64 - 1, 3}}
	dir := f.TempDir()
	w, err := newRunWriter(dir, 7, 1, uint64(len(keys)), newPlace(1, int64(len(keys))), 2)
	if err != nil {
		f.Fatal(err)
	}
	for i, k := range keys {
		if err := w.add(k, Position{1, int64(i)}, []byte{1, 2}); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := w.finish(); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, runName(1))
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, true)
	f.Add(seed, false)
	f.Add(seed[len(seed)-footerSize:], true)
	f.Fuzz(func(t *testing.T, b []byte, sign bool) {
		if sign && len(b) >= footerSize {
			b = append(b[:len(b)-footerSize:len(b)-footerSize], signed(b[len(b)-footerSize:len(b)-4])...)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
		info := runInfo{id: 1, size: uint64(len(b))}
		if foot, _, err := decodeFooter(b[max(0, len(b)-footerSize):]); err == nil {
			info.entries, info.footer = foot.entries, foot.sum()
		}
		r, err := openRun(dir, 7, info)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			return
		}
		defer r.unmap()
		lookAt(t, r, keys)
	})
}

func lookAt(t *testing.T, r *run, keys []Fingerprint) {
	at := make([]Position, len(keys))
	seqs := make([]byte, len(keys)*r.seq)
	s := newState(&manifest{files: []file{{1, "a"}}}, []*run{r})
	b := &batch{state: s, keys: keys, at: at, seqs: seqs, seq: r.seq}
	if err := (&Index{}).lookup(b); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
	if err := r.checkAll(t.Context(), 2); err != nil && !errors.Is(err, ErrCorrupt) {
		t.Errorf("check: got %v, want ErrCorrupt", err)
	}
}

func FuzzLayout(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(100), int64(5), uint32(1), []byte("ab"))
	f.Add(uint64(1)<<63, uint64(0), uint64(1)<<32-1, int64(maxRow), uint32(1)<<31, []byte{})
	f.Add(uint64(3), uint64(4), uint64(1000), int64(256), uint32(Tombstone), []byte("a"))
	f.Add(uint64(3), uint64(4), uint64(1000), int64(255), uint32(255), []byte("a"))
	f.Fuzz(func(t *testing.T, hi, lo, entries uint64, row int64, id uint32, seq []byte) {
		if len(seq) > MaxSequenceBytes || entries > maxEntries || row < 0 || row > maxRow {
			t.Skip()
		}
		p := newPlace(0, row)
		if FileID(id) != Tombstone {
			p = newPlace(FileID(id), row)
		}
		l := newLayout(entries, p, len(seq))
		fp, at := Fingerprint{hi, lo}, Position{FileID(id), row}
		rec := l.append(nil, fp, at, seq)
		got := Fingerprint{l.prefix(l.bucketOf(hi)) | l.recordHi(rec), l.recordLo(rec)}
		if len(rec) != l.width || got != fp || l.position(rec) != at || !bytes.Equal(l.sequence(rec), seq) {
			t.Errorf("got %x %v %x in %d bytes, want %x %v %x in %d", got, l.position(rec), l.sequence(rec), len(rec),
				fp, at, seq, l.width)
		}
	})
}
