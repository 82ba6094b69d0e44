package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// Topics says what is read: topics by name, or all whose whole name matches a pattern, also those made later.
type Topics struct {
	Names   []string
	Pattern string // a regular expression (RE2)
	// Except are names of topics that match and are not read.
	Except []string
}

// Start is where partitions begin that the table does not know. The zero value is the beginning of each.
type Start struct {
	Latest bool      // at the end, as it is at the first start
	Time   time.Time // at the first record of this time or later; unset: not used
	// Offsets are the first offsets to read, by topic and partition. They go before the other fields. A
	// partition that is not named starts as the other fields say.
	Offsets map[string]map[int32]int64
}

// Tombstones says what becomes of a record that has no value.
type Tombstones string

// The treatments of tombstones. Each moves progress.
const (
	Skip   Tombstones = "skip"   // it is dropped
	Reject Tombstones = "reject" // it goes to quarantine
	Keep   Tombstones = "keep"   // the format gets a nil value: raw makes a null of it, one of changes a delete
)

// Columns are the names of the columns that tell where a row came from, appended to the decoded ones in this
// order. An empty name: there is no such column.
type Columns struct {
	Topic         string // string
	Partition     string // int
	Offset        string // bigint
	Timestamp     string // timestamp: the record's
	TimestampType string // int: 0 the producer's time, 1 the time of the append to the log, -1 unknown
	Key           string // binary, or string if KeyAsText
	Headers       string // array<struct<key string, value binary>>, null when the record has none
	KeyAsText     bool   // keys that are not UTF-8 are then rejected
}

// Matches reports whether the pattern matches the topic's whole name.
func (t Topics) Matches(topic string) bool {
	pattern, err := t.regexp()
	return err == nil && pattern.MatchString(topic)
}

// excluded are expressions that match the topics of Except alone.
func (t Topics) excluded() []string {
	out := make([]string, len(t.Except))
	for i, name := range t.Except {
		out[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return out
}

// Options are the settings of a Source. The zero value of each field means its default.
type Options struct {
	// Whole refuses to start a partition whose log no longer has its beginning, or that of Start: a gap.
	Whole bool

	Group      string // consumer group; required unless Partitions are given
	InstanceID string // static member id, unique within the group. Default: none, a dynamic member
	// ServerSideBalancer has the broker assign partitions (KIP-848; Kafka 4.0 and later). Default: the classic
	// protocol, cooperative-sticky.
	ServerSideBalancer bool
	// Partitions are read, and no group is joined. Another process that reads them too is harmless, but in vain.
	Partitions map[string][]int32

	Start       Start
	ForgetGroup bool // what the group knows and the table does not starts as if new. Default: an error
	// Bounded ends the source where its partitions ended when it was opened, for the last one of several
	// processes too.
	Bounded         bool
	ReadUncommitted bool // also deliver records of open and aborted transactions

	Schema      *arrow.Schema // the decoded columns. Default: inferred from the first records
	Columns     Columns
	Tombstones  Tombstones // default Skip
	KeepRecords bool       // keep a copy of each row's record with the batch, for rejects after decoding. Default: not

	Workers        int           // goroutines that decode. Default: GOMAXPROCS, at most 8
	FetchMemory    int64         // bytes that one fetch from all brokers may take here, unpacked. Default 16 MiB
	SampleRecords  int           // records to infer a schema from, at most. Default 10,000
	SampleWait     time.Duration // how long to wait for more of them while records keep coming. Default 250 ms
	SessionTimeout time.Duration // until the group gives up a silent member. Default 45 s
	MetadataAge    time.Duration // how soon new partitions, new topics and remade ones are noticed. Default 10 s
	ConnectTimeout time.Duration // how long Open tries to reach a broker. Default 10 s

	ClientID string // what brokers log. Default "freshet"
	TLS      *TLS   // nil: plain text
	SASL     *SASL  // nil: no authentication
	// Dial makes connections. Default: TCP, with TLS if set; with a Dial of its own the caller sees to TLS.
	Dial func(ctx context.Context, network, host string) (net.Conn, error)

	Observer freshet.Observer // Lag, Retry, Recovered and State are told
	Log      *slog.Logger     // default: nothing is logged
}

// Validate reports all faults of the options. Nil is valid but for the missing group.
func (o *Options) Validate() error {
	if o == nil {
		o = &Options{}
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Group == "" && len(o.Partitions) == 0 {
		fault("group: found none, wanted the name of a consumer group")
	}
	switch o.Tombstones {
	case "", Skip, Reject, Keep:
	default:
		fault("tombstones: found %q, wanted skip, reject or keep", o.Tombstones)
	}
	if o.Start.Latest && !o.Start.Time.IsZero() {
		fault("start: found both latest and a time, wanted one")
	}
	for topic, offsets := range o.Start.Offsets {
		for partition, offset := range offsets {
			if offset < 0 {
				fault("start: found offset %d for %s[%d], wanted 0 or more", offset, topic, partition)
			}
		}
	}
	for name, n := range map[string]int64{"workers": int64(o.Workers), "fetch memory": o.FetchMemory,
		"sample records": int64(o.SampleRecords), "sample wait": int64(o.SampleWait),
		"session timeout": int64(o.SessionTimeout), "metadata age": int64(o.MetadataAge),
		"connect timeout": int64(o.ConnectTimeout)} {
		if n < 0 {
			fault("%s: found %d, wanted no negative number", name, n)
		}
	}
	seen := map[string]bool{}
	for _, c := range o.Columns.fields() {
		if low := strings.ToLower(c.Name); seen[low] {
			fault("columns: found the name %q twice, wanted different ones", c.Name)
		} else {
			seen[low] = true
		}
	}
	faults = append(faults, o.TLS.validate(), o.SASL.validate())
	if o.Schema != nil {
		if err := o.Columns.collision(o.Schema); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (t Topics) validate() error {
	switch {
	case len(t.Names) == 0 && t.Pattern == "":
		return errors.New("topics: found none, wanted names or a pattern")
	case len(t.Names) > 0 && t.Pattern != "":
		return errors.New("topics: found both names and a pattern, wanted one")
	}
	if _, err := t.regexp(); err != nil {
		return fmt.Errorf("topics: found the pattern %q: %w", t.Pattern, err)
	}
	return nil
}

// anchored is the pattern for a whole name.
func (t Topics) anchored() string { return "^(?:" + t.Pattern + ")$" }

func (t Topics) regexp() (*regexp.Regexp, error) { return regexp.Compile(t.anchored()) }

func (o Options) withDefaults() Options {
	setDefault(&o.Tombstones, Skip)
	setDefault(&o.Workers, min(runtime.GOMAXPROCS(0), 8))
	setDefault(&o.FetchMemory, 16<<20)
	setDefault(&o.SampleRecords, 10_000)
	setDefault(&o.SampleWait, 250*time.Millisecond)
	setDefault(&o.SessionTimeout, 45*time.Second)
	setDefault(&o.MetadataAge, 10*time.Second)
	setDefault(&o.ConnectTimeout, 10*time.Second)
	setDefault(&o.ClientID, "freshet")
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// RouteTo returns the route to one table, or, where the name holds {topic}, to a table for each topic.
func RouteTo(table string) func(topic string) string {
	return func(topic string) string { return strings.ReplaceAll(table, "{topic}", topic) }
}
