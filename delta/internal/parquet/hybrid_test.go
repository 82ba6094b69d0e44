package parquet

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHybrid_WhatTheEncoderWrites_ComesBack(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		width := r.IntN(25)
		want := make([]uint32, r.IntN(500))
		for i := range want {
			if i > 0 && r.IntN(3) > 0 {
				want[i] = want[i-1]
			} else {
				want[i] = r.Uint32N(1 << width)
			}
		}
		var h Hybrid
		if err := h.Reset(appendHybrid(nil, want, width), width); err != nil {
			t.Fatal(err)
		}
		got := make([]uint32, len(want))
		for at := 0; at < len(got); {
			n := min(1+r.IntN(40), len(got)-at)
			passed, err := h.Repeats(want[at], n)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for i := range passed {
				got[at+i] = want[at]
			}
			if err := h.Next(got[at+passed : at+n]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			at += n
		}
		if !slices.Equal(got, want) {
			t.Errorf("seed %d, width %d: got %v, want %v", seed, width, got, want)
		}
	}
}

func FuzzHybrid(f *testing.F) {
	f.Add([]byte{0x03, 0x88, 0xc6, 0xfa, 0x10, 0x05}, 3, uint16(9))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x01}, 32, uint16(2))
	f.Add([]byte{0x00, 0x00, 0x00}, 0, uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, width int, n uint16) {
		var h Hybrid
		if err := h.Reset(data, width); err != nil {
			return
		}
		out := make([]uint32, n)
		if _, err := h.Repeats(0, len(out)); err != nil {
			return
		}
		if err := h.Next(out); err != nil {
			return
		}
		for _, v := range out {
			if uint64(v) >= 1<<width {
				t.Errorf("%d does not fit %d bits", v, width)
			}
		}
	})
}
