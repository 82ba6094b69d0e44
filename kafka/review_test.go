package kafka_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

var errOutage = errors.New("the registry does not answer")

// needy is the format pairs, but for the payload "?", for which it would need something that is not there.
type needy struct{ pairs }

func (needy) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	d, err := pairs{}.NewDecoder(schema)
	return needyDecoder{d}, err
}

type needyDecoder struct{ freshet.Decoder }

func (d needyDecoder) Append(payload []byte) (int, error) {
	if string(payload) == "?" {
		return 0, errOutage
	}
	return d.Decoder.Append(payload)
}

func TestSource_DecoderFails_NothingOfTheJobGetsIntoAnother(t *testing.T) {
	for range 20 {
		b := newBroker(t)
		b.topic("orders", 2)
		want := b.put("orders", 0, "n=1", "n=2", "?")[:0]
		b.put("orders", 1, "n=10", "n=11")
		k := newSink()
		o := &kafka.Options{Group: "app", Workers: 1, Schema: numbers, Bounded: true,
			Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		src, err := kafka.NewSource(b.ListenAddrs(), kafka.Topics{Names: []string{"orders"}}, kafka.RouteTo("t"), needy{}, o)
		if err != nil {
			t.Fatal(err)
		}
		c := k.copy(t)
		if err := c.run(t.Context(), src); !errors.Is(err, errOutage) {
			t.Fatalf("got %v, want %v", err, errOutage)
		}
		_ = want
		k.mu.Lock()
		for _, row := range k.tables["t"].rows {
			if row != "orders[1]@0 n=10" && row != "orders[1]@1 n=11" {
				t.Errorf("got the row %q, want none but those of the other partition", row)
			}
		}
		k.mu.Unlock()
	}
}
