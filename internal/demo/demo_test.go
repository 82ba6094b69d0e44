package demo_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/freshet-io/freshet/internal/demo"
)

func TestAppendOrder_AnyNumber_ValidJSONOfItsNumber(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 999, 123_456_789} {
		var o struct {
			OrderID int64  `json:"order_id"`
			Placed  string `json:"placed_at"`
		}
		b := demo.AppendOrder(nil, n)
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if o.OrderID != n || len(o.Placed) != len("2026-01-01T00:00:00.000Z") {
			t.Errorf("order %d: got %s", n, b)
		}
		if again := demo.AppendOrder(nil, n); string(again) != string(b) {
			t.Errorf("order %d differs the second time: %s", n, again)
		}
	}
}

func TestBroker_StartedAgainOnItsFolder_HoldsTheRecords(t *testing.T) {
	dir := t.TempDir()
	b, err := demo.StartBroker(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := demo.StartBroker(dir, ""); !errors.Is(err, demo.ErrInUse) {
		t.Errorf("a second broker on the folder: got %v, want ErrInUse", err)
	}
	last, err := demo.Produce(t.Context(), b.Addr(), 0, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(demo.Partitions) {
		if last[p] != 24 {
			t.Errorf("last offset of partition %d: got %d, want 24", p, last[p])
		}
	}
	b.Close()
	b, err = demo.StartBroker(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got, err := demo.Sent(t.Context(), b.Addr()); got != 100 || err != nil {
		t.Errorf("Sent after a restart: got %d, %v, want 100", got, err)
	}
}
