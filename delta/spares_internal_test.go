package delta

import "testing"

func TestSpares_TakenOnceAndOnlyWhereTheyFit(t *testing.T) {
	var s spares
	big, small := make([]byte, 1000), make([]byte, 300)
	s.give(big)
	s.give(small)
	if got := s.take(200); cap(got) != 300 {
		t.Errorf("got a buffer of %d bytes for 200, want the one of 300", cap(got))
	}
	if got := s.take(200); got != nil {
		t.Errorf("got a buffer of %d bytes for 200, want none: it is five times as large", cap(got))
	}
	if got := s.take(2000); got != nil {
		t.Errorf("got a buffer of %d bytes for 2,000, want none", cap(got))
	}
	if got := s.take(900); cap(got) != 1000 {
		t.Errorf("got a buffer of %d bytes for 900, want the one of 1,000", cap(got))
	}
	if got := s.take(900); got != nil {
		t.Error("got a buffer twice")
	}
	var none *spares
	none.give(big)
	if none.take(1) != nil {
		t.Error("got a buffer of what keeps none")
	}
}

func TestSpares_Many_LargestAreKept(t *testing.T) {
	var s spares
	for n := range 2 * sparesKept {
		s.give(make([]byte, 100+n))
	}
	if len(s.free) != sparesKept {
		t.Errorf("got %d buffers kept, want %d", len(s.free), sparesKept)
	}
	for _, b := range s.free {
		if cap(b) < 100+sparesKept {
			t.Errorf("got a buffer of %d bytes kept, want the largest", cap(b))
		}
	}
}
