package delta

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// spend runs what reads so many bytes of hostile input, and fails when all memory that it took on the way, also what it gave
// up again, is more than ten times these bytes and 64 MiB.
func spend(t *testing.T, bytes int, read func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	read()
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+10*bytes); took > most {
		t.Fatalf("%d bytes took %d of memory, want %d at most", bytes, took, most)
	}
}

// held is how many bytes of objects there are at most while read runs, above those of before. It collects often meanwhile, so
// that there is little garbage among them.
func held(read func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	now := func() int64 { metrics.Read(sample); return int64(sample[0].Value.Uint64()) }
	before, most, done := now(), int64(0), make(chan struct{})
	go func() { defer close(done); read() }()
	for {
		select {
		case <-done:
			return max(most, now()) - before
		default:
			most = max(most, now())
			runtime.Gosched()
		}
	}
}

// many repeats what item makes of 0, 1, 2 … between two texts until it has so many bytes.
func many(bytes int, before, after string, item func(i int) string) []byte {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < bytes; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	b.WriteString(after)
	return []byte(b.String())
}

func always(text string) func(int) string { return func(int) string { return text } }

func name36(i int) string { return strconv.FormatInt(int64(i), 36) }

// hostileActions are texts of so many bytes that stand in a log, or in part in its checksums, and that would fill memory if
// each small part of them took much.
func hostileActions(bytes int) map[string][]byte {
	named := func(i int) string { return `"` + name36(i) + `":""` }
	lines := func(item func(i int) string) []byte {
		return []byte(strings.ReplaceAll(string(many(bytes, "", "\n", item)), "},{", "}\n{"))
	}
	const add, meta = `{"add":{"path":"a","size":1,`, `{"metaData":{"id":"m","format":{"provider":"parquet"},"schemaString":`
	schema := `"` + `{\"type\":\"struct\",\"fields\":[`
	return map[string][]byte{
		"adds":         lines(func(i int) string { return `{"add":{"path":"` + name36(i) + `"}}` }),
		"removes":      lines(func(i int) string { return `{"remove":{"path":"` + name36(i) + `"}}` }),
		"txns":         lines(func(i int) string { return `{"txn":{"appId":"` + name36(i) + `"}}` }),
		"domains":      lines(func(i int) string { return `{"domainMetadata":{"domain":"` + name36(i) + `"}}` }),
		"empty":        lines(always("{}")),
		"partitions":   many(bytes, add+`"partitionValues":{`, `}}}`, named),
		"one key":      many(bytes, add+`"partitionValues":{`, `}}}`, always(`"p":""`)),
		"tags":         many(bytes, add+`"tags":{`, `}}}`, func(i int) string { return `"` + name36(i) + `":null` }),
		"features":     many(bytes, `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[`, `]}}`, always(`""`)),
		"columns":      many(bytes, meta+`"","partitionColumns":[`, `]}}`, always(`""`)),
		"properties":   many(bytes, meta+`"","configuration":{`, `}}}`, named),
		"options":      many(bytes, `{"metaData":{"id":"m","format":{"options":{`, `}}}}`, named),
		"fields":       many(bytes, meta+schema, `]}"}}`, func(i int) string { return `{\"name\":\"` + name36(i) + `\",\"type\":\"byte\"}` }),
		"no fields":    many(bytes, meta+schema, `]}"}}`, always("{}")),
		"nested":       []byte(meta + schema + strings.Repeat(`{\"name\":\"\",\"type\":{\"type\":\"struct\",\"fields\":[`, bytes/52) + `"}}`),
		"metadata":     many(bytes, meta+schema+`{\"name\":\"a\",\"type\":\"byte\",\"metadata\":{`, `}}]}"}}`, func(i int) string { return `\"` + name36(i) + `\":1` }),
		"escapes":      many(bytes, meta+`"`, `"}}`, always(`\u0041`)),
		"parameters":   many(bytes, `{"commitInfo":{"operationParameters":{`, `}}}`, named),
		"metrics":      many(bytes, `{"commitInfo":{"operationMetrics":{`, `}}}`, func(i int) string { return `"` + name36(i) + `":1` }),
		"deep":         []byte(strings.Repeat(`{"a":`, bytes/5)),
		"brackets":     []byte(add + `"x":` + strings.Repeat("[", bytes)),
		"commas":       []byte(`{"commitInfo":{"tags":[` + strings.Repeat(`,`, bytes)),
		"long number":  []byte(`{"txn":{"appId":"a","version":` + strings.Repeat("9", bytes) + `}}`),
		"long key":     []byte(`{"` + strings.Repeat("k", bytes) + `":1}`),
		"unterminated": []byte(`{"add":{"path":"` + strings.Repeat(`\"`, bytes/2)),
	}
}

// hostileStats are statistics of so many bytes of a file with the columns a, of which it knows, and s.
func hostileStats(bytes int) map[string][]byte {
	number := func(i int) string { return `"` + name36(i) + `":1` }
	return map[string][]byte{
		"columns":     many(bytes, `{"numRecords":1,"minValues":{`, `}}`, number),
		"counts":      many(bytes, `{"numRecords":1,"nullCount":{`, `}}`, number),
		"keys":        many(bytes, `{`, `}`, number),
		"one key":     many(bytes, `{"numRecords":1,"maxValues":{`, `}}`, always(`"a":1`)),
		"lists":       many(bytes, `{"numRecords":1,"minValues":{"a":[`, `]}}`, always("1")),
		"deep":        []byte(`{"minValues":` + strings.Repeat(`{"s":`, bytes/5)),
		"long number": []byte(`{"numRecords":1,"minValues":{"a":` + strings.Repeat("9", bytes) + `}}`),
		"long text":   []byte(`{"numRecords":1,"minValues":{"t":"` + strings.Repeat("z", bytes) + `"}}`),
		"escapes":     many(bytes, `{"numRecords":1,"maxValues":{"t":"`, `"}}`, always(`\u0041`)),
	}
}

// hostileBytes is the size of these inputs, and mostHeld what reading one may hold: no more than ten times as much, and
// little besides.
const (
	hostileBytes = 1 << 20
	mostHeld     = 10*hostileBytes + 8<<20
)

// readAll is what readers do with a table: its files with statistics, some that a condition picks, its history.
func readAll(st store.Store) {
	ctx := context.Background()
	table, err := Open(ctx, st, nil)
	if err != nil {
		return
	}
	snap, err := table.Snapshot(ctx)
	if err == nil {
		for _, err := range snap.Files(ctx, &FilesOptions{Stats: true}) {
			if err != nil {
				break
			}
		}
		for _, err := range snap.Matching(ctx, someCondition) {
			if err != nil {
				break
			}
		}
	}
	for _, err := range table.History(ctx, 10) {
		if err != nil {
			break
		}
	}
}

var someCondition, _ = expr.Parse("a > 5 AND t < 'x' AND s.b > 7")

// hostileTable has a commit that may say anything.
func hostileTable(t testing.TB, second []byte) *store.Mem {
	t.Helper()
	st := store.NewMem()
	_, err := Create(context.Background(), st, &CreateOptions{Schema: &Schema{Fields: []Field{nullable("a", Long),
		nullable("t", String), nullable("s", &Struct{Fields: []Field{nullable("b", Long)}})}}})
	if err == nil {
		err = st.Put(context.Background(), commitKey(1), second)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestReading_HostileLog_HoldsAtMostTenTimesItsSize has commits, checksums and _last_checkpoint that were made to take memory.
func TestReading_HostileLog_HoldsAtMostTenTimesItsSize(t *testing.T) {
	for name, text := range hostileActions(hostileBytes) {
		t.Run(name, func(t *testing.T) {
			st := hostileTable(t, text)
			got := held(func() { readAll(st) })
			if got > mostHeld {
				t.Errorf("as a commit its %d bytes hold %d of memory, %.1f times as many", len(text), got, float64(got)/float64(len(text)))
			}
			if got := held(func() { _, _ = parseChecksum(text); _, _ = parseLastCheckpoint(text) }); got > mostHeld {
				t.Errorf("as a checksum its %d bytes hold %d of memory", len(text), got)
			}
		})
	}
}

func TestReading_HostileStatistics_HoldAtMostTenTimesTheirSize(t *testing.T) {
	for name, text := range hostileStats(hostileBytes) {
		t.Run(name, func(t *testing.T) {
			o := appendJSONString([]byte(`{"add":{"path":"a","size":1,"stats":`), string(text))
			st := hostileTable(t, append(o, "}}\n"...))
			if got := held(func() { readAll(st) }); got > mostHeld {
				t.Errorf("its %d bytes hold %d of memory, %.1f times as many", len(text), got, float64(got)/float64(len(text)))
			}
			if got := held(func() { _, _ = recordCount(string(text)); _ = wideStats(string(text), 3) }); got > mostHeld {
				t.Errorf("made wide its %d bytes hold %d of memory", len(text), got)
			}
		})
	}
}

// TestReading_HostileChecksum_HoldsAtMostTenTimesItsSize has the parts that only checksums have.
func TestReading_HostileChecksum_HoldsAtMostTenTimesItsSize(t *testing.T) {
	for name, text := range map[string][]byte{
		"txns":       many(hostileBytes, `{"setTransactions":[`, `]}`, func(i int) string { return `{"appId":"` + name36(i) + `"}` }),
		"nothing":    many(hostileBytes, `{"setTransactions":[`, `]}`, always("{}")),
		"domains":    many(hostileBytes, `{"domainMetadata":[`, `]}`, func(i int) string { return `{"domain":"` + name36(i) + `"}` }),
		"files":      many(hostileBytes, `{"allFiles":[`, `]}`, func(i int) string { return `{"path":"` + name36(i) + `"}` }),
		"histogram":  many(hostileBytes, `{"fileSizeHistogram":{"sortedBinBoundaries":[`, `]}}`, always("1")),
		"properties": many(hostileBytes, `{"metadata":{"configuration":{`, `}}}`, func(i int) string { return fmt.Sprintf(`"%s":""`, name36(i)) }),
	} {
		if got := held(func() { _, _ = parseChecksum(text) }); got > mostHeld {
			t.Errorf("%s: %d bytes hold %d of memory, %.1f times as many", name, len(text), got, float64(got)/float64(len(text)))
		}
	}
}

// TestFiles_CommitOfVeryManyTinyActions_LastOfEachFileCounts has more of them than are held.
func TestFiles_CommitOfVeryManyTinyActions_LastOfEachFileCounts(t *testing.T) {
	const n = heldActions + 1000
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"add\":{\"path\":\"%s\",\"size\":1}}\n", name36(i))
	}
	for i := range n / 2 {
		fmt.Fprintf(&b, "{\"remove\":{\"path\":\"%s\"}}\n{\"add\":{\"path\":\"%s\",\"size\":2}}\n", name36(2*i), name36(3*i))
	}
	want := map[string]int64{}
	for i := range n {
		want[name36(i)] = 1
	}
	for i := range n / 2 {
		delete(want, name36(2*i))
		want[name36(3*i)] = 2
	}
	table, err := Open(t.Context(), hostileTable(t, []byte(b.String())), nil)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for a, err := range snap.Files(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := got[a.Path]; twice {
			t.Fatalf("%s comes twice", a.Path)
		}
		got[a.Path] = a.Size
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %d files, want %d, or of other sizes", len(got), len(want))
	}
}
