package spec

import (
	"testing"
	"time"
)

// Comparing takes no more of the time than it may, and comes no more often than it is to.
func TestVerification_Pause_KeepsBoth(t *testing.T) {
	for _, c := range []struct{ took, want time.Duration }{
		{0, time.Hour},
		{time.Minute, 59 * time.Minute},
		{6 * time.Minute, 54 * time.Minute},
		{time.Hour, 9 * time.Hour},
	} {
		v := Verification{Every: time.Hour, Cost: 0.1}
		if got := v.pause(c.took); got != c.want {
			t.Errorf("after %s: got %s, wanted %s", c.took, got, c.want)
		}
	}
}

func TestNamesAll_ValuesAsWords(t *testing.T) {
	for _, c := range []struct {
		text string
		key  []string
		want bool
	}{
		{`{"id":42}`, []string{"42"}, true},
		{`{"id":421}`, []string{"42"}, false},
		{`{"id":421, "n": 42}`, []string{"42"}, true},
		{`{"id":1,"k":"a b"}`, []string{"1", "a b"}, true},
		{`{"id":1}`, []string{"1", "b"}, false},
		{`{"id":"ä42"}`, []string{"42"}, false},
		{`{}`, []string{""}, false},
	} {
		if got := namesAll(c.text, c.key); got != c.want {
			t.Errorf("%s, %q: got %v, wanted %v", c.text, c.key, got, c.want)
		}
	}
}
