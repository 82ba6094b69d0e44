package kafka_test

import (
	"errors"
	"fmt"
	"strings"
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
	b := newBroker(t)
	b.topic("orders", 6)
	for p := range int32(6) {
		if p%2 == 0 {
			b.put("orders", p, "n=1", "n=2", "?")
		} else {
			b.put("orders", p, "n=10", "n=11")
		}
	}
	for run := range 30 { // what Next finds first is chance
		k := newSink()
		src, err := kafka.NewSource(b.ListenAddrs(), kafka.Topics{Names: []string{"orders"}}, kafka.RouteTo("t"),
			needy{}, &kafka.Options{Group: fmt.Sprint("app", run), Workers: 1, Schema: numbers, Bounded: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.copy(t).run(t.Context(), src); !errors.Is(err, errOutage) {
			t.Fatalf("got error %v, want %v", err, errOutage)
		}
		for _, row := range k.tables["t"].rows {
			if !strings.HasSuffix(row, "@0 n=10") && !strings.HasSuffix(row, "@1 n=11") {
				t.Fatalf("got the row %q, want none of the jobs that failed", row)
			}
		}
	}
}
