package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
)

// Kafka is a Kafka source.
type Kafka struct {
	Connection     Text
	Client         KafkaClient // given inline; what it leaves out comes from the connection
	Topics         []Text
	Pattern        Text
	Start          Start
	Format         string
	Changes        *Changes
	Debezium       *Debezium
	Group          string
	InstanceID     string
	SessionTimeout time.Duration
	Rebalance      string
	Metadata       Metadata
	KeyAs          string
	Isolation      string
	Tombstones     string
	Decompress     string
	MaxDepth       int64
	MaxMessage     int64
	FetchMemory    int64
	ForgetGroup    bool

	at places
}

// KafkaClient is how to reach a broker.
type KafkaClient struct {
	Brokers  []string
	TLS      *TLS
	SASL     *SASL
	Embedded *Embedded
}

// Embedded is a broker inside this process, for demos: it lives as long as the process and keeps its records
// in a folder.
type Embedded struct {
	Dir    string
	Listen string
}

// TLS is how the broker proves itself, and how we do.
type TLS struct {
	Off        bool
	CA         string // PEM files
	Cert       string
	Key        string
	ServerName string
	Insecure   bool
}

// SASL is how we log in.
type SASL struct {
	Mechanism string
	Username  string
	Password  Secret
	Token     Secret
	TokenFile string
}

// Start is where reading begins of a topic that the table does not know yet.
type Start struct {
	At      string // "earliest", "latest" or ""
	Time    time.Time
	Offsets map[string]map[int32]int64 // the first offset to read, by topic and partition

	topics []Named[[]Named[int64]] // Offsets as they stand in the file
}

// Metadata are the columns that tell where a record came from: what, and under which name.
type Metadata []Named[string]

// MetadataFields are what a metadata column can hold.
var metadataFields = []string{"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers"}

func (k *Kafka) shape() shape {
	return object{
		oneOf:  []string{"topics", "pattern"},
		atMost: []string{"connection", "brokers"},
		places: &k.at,
		keys: append([]key{
			{name: "connection", doc: "A connection of the project file.", is: placed(&k.Connection)},
			{name: "topics", doc: "The topics to read.", is: oneOrMore(&k.Topics, placed)},
			{name: "pattern", doc: "A regular expression that matches whole names of topics to read, also of later " +
				"ones.",
				is: placed(&k.Pattern)},
			{name: "start", doc: "Where reading begins of a topic that the table does not know yet: earliest, " +
				"latest, a time, or " +
				"offsets: {topic: {partition: first offset to read}}. Default: earliest.", is: startShape{&k.Start}},
			{name: "format", doc: "json: a JSON object a record. raw: the bytes as they came, in the column value. " +
				"debezium: changes as Debezium writes them, as JSON with or without schema. Default: json.",
				is: laterWord(&k.Format, []string{"avro", "protobuf", "csv", "parquet", "text"}, "json", "raw",
					"debezium")},
			{name: "changes", doc: "How JSON records tell of changes to rows with a key. Default: they do not, each is a row.",
				is: maybe(&k.Changes, (*Changes).shape)},
			{name: "debezium", doc: "How Debezium's connector is set.", is: maybe(&k.Debezium, (*Debezium).shape)},
			{name: "group", doc: "The consumer group, which shares the partitions among processes; offsets in it " +
				"are for lag tools only. " +
				"Default: the app.", is: text(&k.Group)},
			{name: "instance_id", doc: "A static member id: a process that comes back under it within the session " +
				"timeout causes no rebalance.",
				is: text(&k.InstanceID)},
			{name: "session_timeout", doc: "How long the group waits for a silent member. Default: 45s.",
				is: duration(&k.SessionTimeout)},
			{name: "rebalance", doc: "cooperative: the classic protocol. kip848: the newer one, by brokers of 4.0 " +
				"or later. Default: cooperative.",
				is: word(&k.Rebalance, "cooperative", "kip848")},
			{name: "metadata", doc: "Columns that tell where a record came from: a list of " +
				strings.Join(metadataFields, ", ") +
				" (their columns begin with _), or a mapping of them to column names.", is: metadataShape(&k.Metadata)},
			{name: "key_as", doc: "The type of the metadata column key. Default: binary.",
				is: word(&k.KeyAs, "binary", "string")},
			{name: "isolation", doc: "read_committed: records of aborted transactions are not read. Default: " +
				"read_committed.",
				is: word(&k.Isolation, "read_committed", "read_uncommitted")},
			{name: "tombstones", doc: "What becomes of a record without a value: skip it, or reject: quarantine it. " +
				"Format raw keeps it. " +
				"Default: skip.", is: word(&k.Tombstones, "skip", "reject")},
			{name: "decompress", doc: "gzip: payloads that are gzip'ed are unpacked. Default: none.",
				is: laterWord(&k.Decompress, []string{"zstd", "lz4", "snappy"}, "none", "gzip")},
			{name: "max_depth", doc: "How deep a record may be nested, up to 10000. Default: 64.", is: whole(&k.MaxDepth, 1)},
			{name: "max_message", doc: "The largest payload, unpacked, up to 256MiB. Default: 64MiB.", is: size(&k.MaxMessage)},
			{name: "fetch_memory", doc: "What one fetch from all brokers may take in memory. Default: 16MiB.",
				is: size(&k.FetchMemory)},
			{name: "forget_group", doc: "true: a partition that the group knows and the table does not starts as if " +
				"new. " +
				"Default: that is an error, since the table was lost or is another one.", is: flag(&k.ForgetGroup)},
		}, k.Client.keys()...)}
}

func (c *KafkaClient) shape() shape {
	return object{oneOf: []string{"brokers", "embedded"}, keys: append(c.keys(), key{name: "embedded",
		doc: "A broker inside this process, for demos.", is: maybe(&c.Embedded, (*Embedded).shape)})}
}

func (c *KafkaClient) keys() []key {
	return []key{
		{name: "brokers", doc: "Addresses HOST:PORT of some brokers of the cluster.",
			is: oneOrMore(&c.Brokers, address)},
		{name: "tls", doc: "Encrypt the connection: true, or how.", is: maybe(&c.TLS, (*TLS).shape)},
		{name: "sasl", doc: "How to log in.", is: maybe(&c.SASL, (*SASL).shape)},
	}
}

func (e *Embedded) shape() shape {
	return object{keys: []key{
		{name: "dir", doc: "The folder that keeps its records.", is: text(&e.Dir), need: true},
		{name: "listen", doc: "The address to listen on. Default: a free port of 127.0.0.1.",
			is: address(&e.Listen)},
	}}
}

func (t *TLS) shape() shape {
	return choice{
		scalar: one{json: map[string]any{"type": "boolean"}, parse: func(s string) (string, bool) {
			t.Off = s == "false"
			return "true, false or a mapping", s == "true" || s == "false"
		}},
		mapping: checked{t.object(), func(r *reader, n *node) {
			if (n.get("cert") == nil) != (n.get("key") == nil) {
				r.add(n.where, freshet.CodeMissing, "", "tls: found only one of the keys cert and key, wanted both or "+
					"none")
			}
		}},
		wanted: "true, false or a mapping",
	}
}

func (t *TLS) object() object {
	return object{keys: []key{
		{name: "ca", doc: "A PEM file with the authorities to trust. Default: the system's.", is: text(&t.CA)},
		{name: "cert", doc: "A PEM file with our certificate, for mTLS.", is: text(&t.Cert)},
		{name: "key", doc: "A PEM file with our private key, for mTLS.", is: text(&t.Key)},
		{name: "server_name", doc: "The name that the broker's certificate must have. Default: the host.",
			is: text(&t.ServerName)},
		{name: "insecure", doc: "true: do not check the broker's certificate.", is: flag(&t.Insecure)},
	}}
}

func (s *SASL) shape() shape {
	o := object{keys: []key{
		{name: "mechanism", doc: "How the login is proved.", need: true,
			is: laterWord(&s.Mechanism, []string{"GSSAPI", "AWS_MSK_IAM"}, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512",
				"OAUTHBEARER")},
		{name: "username", is: text(&s.Username)},
		{name: "password", doc: "Best as ${secret:env:NAME} or ${secret:file:PATH}.", is: secret(&s.Password)},
		{name: "token", doc: "The token of OAUTHBEARER.", is: secret(&s.Token)},
		{name: "token_file", doc: "A file with the token of OAUTHBEARER, read again at each login.",
			is: text(&s.TokenFile)},
	}}
	return checked{o, func(r *reader, n *node) {
		needs := []string{"username", "password"}
		if s.Mechanism == "OAUTHBEARER" {
			needs = []string{"token", "token_file"}
		}
		first, second := n.get(needs[0]) != nil, n.get(needs[1]) != nil
		switch {
		case s.Mechanism == "":
		case s.Mechanism == "OAUTHBEARER" && first == second:
			r.add(n.where, freshet.CodeMissing, "", "sasl: OAUTHBEARER needs one of the keys token and token_file")
		case s.Mechanism != "OAUTHBEARER" && !(first && second):
			r.add(n.where, freshet.CodeMissing, "", "sasl: %s needs the keys username and password", s.Mechanism)
		}
	}}
}

// checked is a mapping with a rule about several of its keys.
type checked struct {
	object
	rule func(r *reader, n *node)
}

func (c checked) read(r *reader, n *node) {
	c.object.read(r, n)
	if n.kind == mapping {
		c.rule(r, n)
	}
}

// address is HOST:PORT.
func address(into *string) shape {
	return one{json: map[string]any{"type": "string"}, parse: func(s string) (string, bool) {
		*into = s
		colon := strings.LastIndexByte(s, ':')
		if colon < 1 {
			return "HOST:PORT", false
		}
		_, err := strconv.ParseUint(s[colon+1:], 10, 16)
		return "HOST:PORT", err == nil
	}}
}

// inferShape is a number of records: `10000` or `10000 rows`.
func inferShape(into *int64) shape {
	const most = 10_000
	return one{json: map[string]any{"type": []string{"integer", "string"}},
		parse: func(s string) (string, bool) {
			v, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(strings.TrimSuffix(s, "rows")), " "), 10,
				64)
			*into = v
			return fmt.Sprintf("a number of records from 1 to %d", most), err == nil && v >= 1 && v <= most
		}}
}

// metadataShape is a list of fields, or a mapping of fields to column names.
func metadataShape(into *Metadata) shape {
	byName := (*[]Named[string])(into)
	return choice{
		scalar:  metadataList{byName},
		list:    metadataList{byName},
		mapping: metadataMap{byName},
		wanted:  "a list of " + strings.Join(metadataFields, ", "),
	}
}

type metadataList struct{ into *[]Named[string] }

func (m metadataList) read(r *reader, n *node) {
	var names []string
	loneOrList(&names, func(s *string) shape { return word(s, metadataFields...) }).read(r, n)
	for _, name := range names {
		*m.into = append(*m.into, Named[string]{Name: name, Value: "_" + name, at: n})
	}
}

func (m metadataList) schema() map[string]any {
	return map[string]any{"type": "array", "items": map[string]any{"enum": metadataFields}}
}

type metadataMap struct{ into *[]Named[string] }

func (m metadataMap) read(r *reader, n *node) { m.object(r, n).read(r, n) }

func (m metadataMap) object(_ *reader, n *node) object {
	var o object
	values := make([]string, len(metadataFields))
	for i, name := range metadataFields {
		o.keys = append(o.keys, key{name: name, is: metadataColumn{&values[i], name, n, m.into}})
	}
	return o
}

func (m metadataMap) schema() map[string]any { return m.object(nil, nil).schema() }

type metadataColumn struct {
	text *string
	name string
	at   *node
	into *[]Named[string]
}

func (m metadataColumn) read(r *reader, n *node) {
	text(m.text).read(r, n)
	*m.into = append(*m.into, Named[string]{Name: m.name, Value: *m.text, at: n})
}

func (m metadataColumn) schema() map[string]any { return map[string]any{"type": "string"} }

// startShape is earliest, latest, a time, or offsets.
type startShape struct{ into *Start }

func (s startShape) read(r *reader, n *node) {
	switch {
	case n.open:
	case n.kind == mapping:
		s.offsets(r, n)
	case n.kind == scalar && (n.text == "earliest" || n.text == "latest"):
		s.into.At = n.text
	case n.kind == scalar:
		at, err := ParseTime(n.text)
		if err != nil {
			r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted earliest, latest, a time such as "+
				"2026-01-31T12:00:00Z, or "+
				"offsets: {topic: {partition: offset}}", r.found(n))
		}
		s.into.Time = at
	default:
		r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted earliest, latest, a time or offsets", r.found(n))
	}
}

func (s startShape) offsets(r *reader, n *node) {
	ofTopic := func(p *[]Named[int64]) shape {
		return mapOf(p, func(v *int64) shape { return whole(v, 0) })
	}
	object{keys: []key{{name: "offsets", is: mapOf(&s.into.topics, ofTopic), need: true}}}.read(r, n)
	s.into.Offsets = map[string]map[int32]int64{}
	for _, t := range s.into.topics {
		s.into.Offsets[t.Name] = map[int32]int64{}
		for _, p := range t.Value {
			number, err := strconv.ParseInt(p.Name, 10, 32)
			if err != nil || number < 0 {
				r.add(p.at.where, freshet.CodeBadValue, "", "found %q, wanted the number of a partition", p.Name)
				continue
			}
			s.into.Offsets[t.Name][int32(number)] = p.Value
		}
	}
}

func (s startShape) schema() map[string]any {
	offsets := map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "object",
		"additionalProperties": map[string]any{"type": "integer", "minimum": 0}}}
	return map[string]any{"anyOf": []any{
		map[string]any{"type": "string", "examples": []string{"earliest", "latest", "2026-01-31T12:00:00Z"}},
		map[string]any{"type": "object", "additionalProperties": false, "required": []string{"offsets"},
			"properties": map[string]any{"offsets": offsets}},
	}}
}
