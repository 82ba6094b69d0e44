package spec

import (
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
	"github.com/freshet-io/freshet/kafka"
)

// Changes is how JSON records tell of changes to rows with a key.
type Changes struct {
	Op         string
	Insert     []string
	Update     []string
	Upsert     []string
	Delete     []string
	KeyFrom    string // "message", or "" with Key
	Key        []string
	Tombstones string
	Absent     string
}

// Debezium is how the connector is set whose records are read.
type Debezium struct {
	Before        string
	Key           []string
	Truncates     string
	Flattened     bool
	Placeholder   string
	Signals       string
	SourceColumns []string
	Transactions  string        // the topic of transaction metadata; "": none is read
	TxWait        time.Duration // how long is waited for what is missing of a transaction

	at places
}

func (c *Changes) shape() shape {
	values := func(into *[]string) shape { return loneOrList(into, text) }
	return object{keys: []key{
		{name: "op", doc: "The path of the field that says what happened: op, meta.op. Default: none, each record is " +
			"what the row is now.", is: text(&c.Op)},
		{name: "insert", doc: "Values of op for a new row. Default of the four, when none is given: insert, INSERT, I, i, c, r.",
			is: values(&c.Insert)},
		{name: "update", doc: "Values of op for a changed row: update, UPDATE, U, u.", is: values(&c.Update)},
		{name: "upsert", doc: "Values of op for a row that is new or changed: upsert, UPSERT.", is: values(&c.Upsert)},
		{name: "delete", doc: "Values of op for a row that is gone: delete, DELETE, D, d.", is: values(&c.Delete)},
		{name: "key", doc: "message: the fields of the record's key, a JSON object. Or a list of columns, which are taken " +
			"from the value, and from the record's key where it lacks them. Default: message.",
			is: choice{scalar: word(&c.KeyFrom, "message"), list: listOf(&c.Key, text), wanted: "message or a list of columns"}},
		{name: "tombstones", doc: "What a record without a value says. delete: the row of its key is gone. skip: nothing. " +
			"Default: delete.", is: word(&c.Tombstones, "delete", "skip")},
		{name: "absent", doc: "What a field says that an update does not have. null: that it is null. keep: that the " +
			"stored value stays. Default: null.", is: word(&c.Absent, "null", "keep")},
	}}
}

func (d *Debezium) shape() shape {
	return object{places: &d.at, keys: []key{
		{name: "before", doc: "full: rows before a change are whole, as with REPLICA IDENTITY FULL. key: but for the key " +
			"they hold made-up values. Default: key.", is: word(&d.Before, "key", "full")},
		{name: "key", doc: "The columns of the key of records that have no key of their own.",
			is: loneOrList(&d.Key, text)},
		{name: "truncates", doc: "What becomes of a record that says that the table was emptied. reject: it goes to " +
			"quarantine. ignore: nothing. Default: reject.", is: word(&d.Truncates, "reject", "ignore")},
		{name: "flattened", doc: "true: the records are rows, made by the transform ExtractNewRecordState.",
			is: flag(&d.Flattened)},
		{name: "placeholder", doc: "The connector's unavailable.value.placeholder. Default: __debezium_unavailable_value.",
			is: text(&d.Placeholder)},
		{name: "signals", doc: "The connector's signal.data.collection, whose rows are dropped.", is: text(&d.Signals)},
		{name: "source_columns", doc: "Columns that tell of a change's source, with _ before their names: " +
			strings.Join(format.SourceColumns(), ", ") + ".",
			is: loneOrList(&d.SourceColumns, func(s *string) shape { return word(s, format.SourceColumns()...) })},
		{name: "transactions", doc: "The topic to which the connector writes its transactions (provide.transaction.metadata). " +
			"Then all tables get a transaction together, and cuts show whole ones. Default: none.", is: text(&d.Transactions)},
		{name: "transaction_wait", doc: "For how long is waited for what is missing of a transaction once nothing comes. " +
			"Default: 1m.", is: duration(&d.TxWait)},
	}}
}

// takesChanges reports whether a mode of the target looks at what a row's change is.
func takesChanges(mode string) bool { return mode == "upsert" || mode == "mirror" || mode == "scd2" }

// tellsChanges reports whether records say what became of a row.
func (k *Kafka) tellsChanges() bool { return k.Format == "debezium" || k.Changes != nil }

// checkChanges finds what is wrong with how records tell of changes.
func (p *Pipeline) checkChanges(r *reader) {
	k := p.Source.Kafka
	t := p.Target.Delta
	if k.Changes != nil {
		changes := k.at["changes"]
		if k.Format == "debezium" {
			r.add(changes, freshet.CodeBadValue, "leave it out; `debezium:` has its settings",
				"changes: records of format debezium tell of changes themselves")
		}
		addAll(r, changes, k.Changes.options().Validate())
	}
	if k.Debezium != nil {
		if k.Format != "debezium" {
			r.add(k.at["debezium"], freshet.CodeBadValue, "write format: debezium, or leave it out",
				"debezium: the format is another one")
		}
		addAll(r, k.at["debezium"], k.Debezium.options().Validate())
		p.checkTransactions(r)
	}
	if !k.tellsChanges() {
		return
	}
	if at, ok := k.at["tombstones"]; ok {
		r.add(at, freshet.CodeBadValue, "leave it out; `changes: {tombstones: skip}` drops them",
			"tombstones: records without a value tell of changes")
	}
	if t == nil || takesChanges(t.Mode) || t.tellsKind() {
		return
	}
	at := k.at["changes"]
	if k.Format == "debezium" {
		at = k.at["format"]
	}
	r.add(at, freshet.CodeBadValue, "write mode: mirror, or mode: upsert, with a key, at the target; or keep what each "+
		"row is: change_columns: [_change_type]",
		"the records tell of changes, and mode append would add updates and deletes as if they were new rows")
}

// checkTransactions finds what does not go with whole transactions.
func (p *Pipeline) checkTransactions(r *reader) {
	d := p.Source.Kafka.Debezium
	at, is := d.at["transactions"]
	if !is {
		if at, is := d.at["transaction_wait"]; is {
			r.add(at, freshet.CodeBadValue, "name the topic, or leave it out", "transaction_wait: no topic of transactions is named")
		}
		return
	}
	for _, topic := range p.Source.Kafka.Topics {
		if topic.Value == d.Transactions {
			r.add(at, freshet.CodeBadValue, "take it out of topics", "transactions: %s is among the topics that become tables", topic.Value)
		}
	}
	if p.Days.Keep > 0 {
		r.add(at, freshet.CodeUnavailable, "leave out one of the two: at the ends of days all of a transaction is on one side anyway",
			"transactions: they cannot be read where keep_daily tells days apart")
	}
}

// transactions are how whole transactions are told; nil when they are not.
func (k *Kafka) transactions() *kafka.TransactionOptions {
	if k.Debezium == nil || k.Debezium.Transactions == "" {
		return nil
	}
	return &kafka.TransactionOptions{Topic: k.Debezium.Transactions, Wait: k.Debezium.TxWait,
		Parse: func(value []byte) (kafka.Transaction, error) {
			said, err := format.ParseTransaction(value)
			if err != nil {
				return kafka.Transaction{}, err
			}
			t := kafka.Transaction{Name: said.Name(), Ended: said.Ended, Counts: map[string]int64{}}
			for _, table := range said.Tables {
				t.Counts[table.Name] += table.Events
			}
			return t, nil
		}}
}

// addAll adds each of the errors that are joined.
func addAll(r *reader, at place, err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		r.add(at, freshet.CodeBadValue, "", "%s", line)
	}
}

func (c *Changes) options() *format.ChangeOptions {
	return &format.ChangeOptions{Op: c.Op, Insert: c.Insert, Update: c.Update, Upsert: c.Upsert, Delete: c.Delete,
		Key: c.Key, SkipTombstones: c.Tombstones == "skip", KeepAbsent: c.Absent == "keep"}
}

// options are those of the format; d may be nil.
func (d *Debezium) options() *format.DebeziumOptions {
	if d == nil {
		return nil
	}
	return &format.DebeziumOptions{TrustBefore: d.Before == "full", Key: d.Key,
		IgnoreTruncates: d.Truncates == "ignore", Flattened: d.Flattened, Placeholder: d.Placeholder,
		SignalTable: d.Signals, Source: slices.DeleteFunc(slices.Clone(d.SourceColumns), isEmpty)}
}

// isEmpty is true of what a fault has left.
func isEmpty(s string) bool { return s == "" }

// sourceFields are the columns that tell of a change's source.
func (k *Kafka) sourceFields() []arrow.Field {
	if k.Format != "debezium" || k.Debezium == nil {
		return nil
	}
	var fields []arrow.Field
	for _, name := range k.Debezium.SourceColumns {
		if f, ok := format.SourceField(name); ok {
			fields = append(fields, f)
		}
	}
	return fields
}
