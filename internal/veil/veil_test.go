package veil_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/freshet-io/freshet/internal/veil"
)

// The first is that of RFC 4231, test case 2; the other is what Python's hmac gives.
func TestHasher_KnownValues_AreHMACSHA256(t *testing.T) {
	h := veil.New("Jefe").Hasher()
	for value, want := range map[string]string{
		"what do ya want for nothing?": "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
		"":                             "923598ca6d64af2a5dba79dcd021a8a0fe5c5f557519adaaf0ad532d4506dd30",
	} {
		if got := string(h.Append(nil, []byte(value))); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

func TestSeal_OpenedByAnotherKeyOrDamaged_Fails(t *testing.T) {
	ours, other := veil.New("a secret of ours"), veil.New("another secret")
	plain := []byte("ann@example.org")
	kept := ours.Seal(plain)
	if bytes.Contains(kept, plain) || !veil.IsSealed(kept) || veil.IsSealed(plain) {
		t.Fatalf("sealed: %q", kept)
	}
	got, err := veil.Open(kept, []*veil.Key{other, ours})
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := veil.Open(kept, []*veil.Key{other}); !errors.Is(err, veil.ErrKey) {
		t.Errorf("another key: got %v, want ErrKey", err)
	}
	if bytes.Equal(ours.Seal(plain), kept) {
		t.Error("two seals of the same bytes are the same")
	}
	for i := range kept {
		damaged := bytes.Clone(kept)
		damaged[i] ^= 1
		if got, err := veil.Open(damaged, []*veil.Key{ours}); err == nil {
			t.Errorf("byte %d changed: got %q, want an error", i, got)
		}
		if got, err := veil.Open(kept[:i], []*veil.Key{ours}); err == nil {
			t.Errorf("cut at %d: got %q, want an error", i, got)
		}
	}
}

func FuzzOpen(f *testing.F) {
	key := veil.New("a secret of ours")
	f.Add(key.Seal([]byte("x")))
	f.Add([]byte("\x00freshet sealed 1\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if plain, err := veil.Open(b, []*veil.Key{key}); err != nil && plain != nil {
			t.Errorf("got %q beside %v", plain, err)
		}
	})
}
