package pgoutput_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// Layouts that no capture has.
func TestDecode_RareKinds_Fields(t *testing.T) {
	u64 := func(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }
	u32 := func(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
	var d pgoutput.Decoder

	origin := append(u64([]byte{'O'}, 7), "there\x00"...)
	m, err := d.Decode(origin)
	if err != nil || m.LSN != 7 || string(m.Name) != "there" {
		t.Errorf("origin: got %+v, %v", m, err)
	}
	prepare := append(u32(u64(u64(u64([]byte{'p', 0}, 1), 2), 3), 4), "gid\x00"...)
	m, err = d.Decode(prepare)
	if err != nil || m.LSN != 1 || m.End != 2 || m.XID != 4 || string(m.GID) != "gid" {
		t.Errorf("stream prepare: got %+v, %v", m, err)
	}
	abort := u64(u64(u32(u32([]byte{'A'}, 8), 9), 10), 11)
	m, err = d.Decode(abort)
	if err != nil || m.XID != 8 || m.Sub != 9 || m.LSN != 10 {
		t.Errorf("abort of version 4: got %+v, %v", m, err)
	}
	if m, err = d.Decode(abort[:9]); err != nil || m.LSN != 0 || m.Sub != 9 {
		t.Errorf("abort of version 2: got %+v, %v", m, err)
	}
}

func TestDecode_Damaged_Error(t *testing.T) {
	for _, raw := range []string{"", "X", "B", "I\x00\x00\x00\x01N\x00\x01t\xff\xff\xff\xff", "I\x00\x00\x00\x01K\x00\x00",
		"T\xff\xff\xff\xff\x00", "E\x00", "R\x00\x00\x00\x01a", "I\x00\x00\x00\x01N\x00\x01x", "R\x00\x00\x00\x01a\x00b\x00d\xff\xff"} {
		var d pgoutput.Decoder
		if m, err := d.Decode([]byte(raw)); !errors.Is(err, pgoutput.ErrMalformed) {
			t.Errorf("%q: got %+v, %v, want ErrMalformed", raw, m, err)
		}
	}
}

func TestLSN_Text_ThereAndBack(t *testing.T) {
	for _, text := range []string{"0/0", "0/16B3748", "FFFFFFFF/FFFFFFFF"} {
		l, err := pgoutput.ParseLSN(text)
		if err != nil || l.String() != text {
			t.Errorf("got %s, %v, want %s", l, err, text)
		}
	}
	for _, text := range []string{"", "16B3748", "0/", "x/y", "0/1 "} {
		if l, err := pgoutput.ParseLSN(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, l)
		}
	}
}

// Whatever comes, also in the middle of a stream: no panic, and rows no larger than the bytes.
func FuzzDecode(f *testing.F) {
	for _, raw := range []string{"B\x00\x00\x00\x00\x04\x9c\x7f\xa8\x00\x03\x04g \xd3\xac\xb6\x00\x00\x03\x83", "E",
		"I\x00\x00C\x9cN\x00\x03t\x00\x00\x00\x011nu", "U\x00\x00C\x9cK\x00\x01t\x00\x00\x00\x011N\x00\x01b\x00\x00\x00\x00",
		"R\x00\x00C\x9cpublic\x00a\x00d\x00\x01\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff",
		"S\x00\x00\x00\x01\x01", "T\x00\x00\x00\x01\x01\x00\x00C\x9c"} {
		f.Add([]byte(raw), false)
		f.Add([]byte(raw), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, streamed bool) {
		var d pgoutput.Decoder
		if streamed {
			if _, err := d.Decode([]byte("S\x00\x00\x00\x01\x01")); err != nil {
				t.Fatal(err)
			}
		}
		m, err := d.Decode(raw)
		switch {
		case err != nil && !errors.Is(err, pgoutput.ErrMalformed):
			t.Fatalf("got %v, want ErrMalformed", err)
		case err == nil && len(m.Old)+len(m.New)+4*len(m.Tables) > len(raw):
			t.Fatalf("got %d values of %d bytes", len(m.Old)+len(m.New), len(raw))
		}
	})
}
