package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/kafka"
)

var allColumns = kafka.Columns{Topic: "_topic", Partition: "_partition", Offset: "_offset", Timestamp: "_ts",
	TimestampType: "_tt", Key: "_key", Headers: "_headers"}

func TestSource_Columns_TellWhereARowCameFrom(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 2)
	when := time.UnixMilli(1_700_000_000_123)
	b.putRecords(
		&kgo.Record{Topic: "orders", Partition: 1, Value: []byte("n=1"), Timestamp: when},
		&kgo.Record{Topic: "orders", Partition: 1, Value: []byte("n=2"), Timestamp: when, Key: []byte("k\xff"),
			Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("x")}, {Key: "b"}}},
	)
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.Columns = allColumns })
	k.want(t, "t", []string{
		`orders[1]@0 n=1 _topic=orders _partition=1 _offset=0 _ts=2023-11-14T22:13:20.123Z _tt=0`,
		`orders[1]@1 n=2 _topic=orders _partition=1 _offset=1 _ts=2023-11-14T22:13:20.123Z _tt=0 _key=a/8= ` +
			`_headers=[{"key":"a","value":"eA=="},{"key":"b","value":null}]`,
	})
	b.put("orders", 0, "n=3") // the table has the columns now
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.Columns = allColumns })
	if n := k.count("t"); n != 3 {
		t.Fatalf("got %d rows, want 3", n)
	}
}

func TestSource_KeyAsText_RejectsWhatIsNone(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.putRecords(&kgo.Record{Topic: "orders", Value: []byte("n=1"), Key: []byte("é")},
		&kgo.Record{Topic: "orders", Value: []byte("n=2"), Key: []byte("\xff")},
		&kgo.Record{Topic: "orders", Value: []byte("n=3")})
	b.mustCatchUp(k, "orders", func(o *kafka.Options) { o.Columns = kafka.Columns{Key: "key", KeyAsText: true} })
	k.want(t, "t", []string{"orders[0]@0 n=1 key=é", "orders[0]@2 n=3"})
	r := k.tables["t"].rejects
	if len(r) != 1 || r[0].Code != freshet.CodeBadUTF8 || string(r[0].Key) != "\xff" {
		t.Fatalf("got rejects %+v", r)
	}
}

func TestSource_ColumnHasAFieldsName_SaysSo(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.put("orders", 0, "n=1 Offset=2")
	named := func(o *kafka.Options) { o.Columns.Offset = "offset" }
	err := wantCode(t, b.catchUp(k, "orders", named), freshet.CodeBadValue)
	if !strings.Contains(err.Msg, `"offset"`) || !strings.Contains(err.Msg, `"Offset"`) {
		t.Fatalf("got %v", err)
	}
}

func TestSource_NewFieldHasAColumnsName_IsAReject(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	offset := func(o *kafka.Options) { o.Columns.Offset = "offset" }
	b.put("orders", 0, "n=1")
	b.mustCatchUp(k, "orders", offset)
	b.put("orders", 0, "n=2", "n=3 offset=4", "n=5")
	b.mustCatchUp(k, "orders", offset)
	k.want(t, "t", []string{"orders[0]@0 n=1 offset=0", "orders[0]@1 n=2 offset=1", "orders[0]@3 n=5 offset=3"})
	if r := k.tables["t"].rejects; len(r) != 1 || r[0].Code != freshet.CodeNewField || r[0].Seq != 2 {
		t.Fatalf("got rejects %+v", r)
	}
}

func TestSource_TableHasTheColumnWithAnotherType_SaysSo(t *testing.T) {
	b, k := newBroker(t), newSink()
	b.topic("orders", 1)
	b.put("orders", 0, "n=1 who=me")
	b.mustCatchUp(k, "orders", nil)
	named := func(o *kafka.Options) { o.Columns.Offset = "who" }
	wantCode(t, b.catchUp(k, "orders", named), freshet.CodeSchemaMismatch)
}
