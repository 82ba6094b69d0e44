package interop_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func foreignPipeline(t *testing.T, b *broker, topic, table, every string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "foreign.yaml")
	text := fmt.Sprintf(`pipeline: foreign
namespace: bronze
source:
  kafka: {brokers: ["%s"], topics: [%s], start: earliest, format: json}
  schema:
    columns: {id: bigint, s: string}
    new_fields: ignore
target:
  delta: {path: "%s", mode: append, commit: {every: %s}}
`, b.servers, topic, table, every)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestForeignWriters_AppendAndOptimizeBesideUs_EachRowOnce lets delta-rs, on disk and on S3, and Spark write the very table
// that a pipeline appends to.
func TestForeignWriters_AppendAndOptimizeBesideUs_EachRowOnce(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		name   string
		engine *engine
		turns  int
		every  string
	}{
		{"delta-rs on disk", deltaRs, 45, "100ms"},
		{"delta-rs on S3", deltaRs, 30, "100ms"},
		{"spark on disk", spark, 15, "200ms"},
	} {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			b := needBroker(t)
			needReaders(t)
			topic := b.topic(2, nil)
			onDisk := filepath.Join(t.TempDir(), "t")
			table := onDisk
			if strings.HasSuffix(with.name, "S3") {
				if os.Getenv("S3_DIR") == "" {
					t.Skip("needs a real S3 server: S3_DIR is not set (interop/README.md)")
				}
				table = "s3://" + os.Getenv("S3_BUCKET") + "/foreign/" + topic
				onDisk = filepath.Join(os.Getenv("S3_DIR"), "data", os.Getenv("S3_BUCKET"), "foreign", topic)
			}
			other := newRival(t, with.engine, table, onDisk)
			stop := b.feed(topic, 2, 10)
			p := start(t, nil, "run", foreignPipeline(t, b, topic, table, with.every), "--progress", "off")
			waitUntil(t, patience, "our first commit is there", func() bool {
				_, err := os.Stat(filepath.Join(onDisk, "_delta_log", fmt.Sprintf("%020d.json", 1)))
				return err == nil || ended(p)
			})
			for turn := range with.turns {
				other.do([]string{"append", "append", "optimize"}[turn%3])
			}
			stop()
			if ended(p) {
				t.Fatalf("freshet ended by itself: %v\n%s", p.err, tail(p.out.String(), 8000))
			}
			p.signal(syscall.SIGTERM)
			p.mustEnd(patience)
			start(t, nil, "run", foreignPipeline(t, b, topic, table, with.every), "--until-caught-up", "--progress", "off").mustEnd(patience)
			var produced int64
			for _, end := range b.ends(topic) {
				produced += end
			}
			t.Logf("other engine: %d commits, %d failures, %d rows; ours: %d records", other.commits, other.failures,
				len(other.mine), produced)
			wantMultiset(t, onDisk, produced, int64(len(other.mine)))
		})
	}
}

// wantMultiset reads the table by an engine that is not ours. Our records are unique by (s, id), theirs by id.
func wantMultiset(t *testing.T, table string, ours, theirs int64) {
	t.Helper()
	var got struct{ Ours, OursDistinct, Theirs, TheirsDistinct int64 }
	out := reader(t, "multiset.py", table, "--first-id", fmt.Sprint(rivalFirstID))
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("found: %+v", got)
	if got.Theirs != theirs || got.TheirsDistinct != theirs {
		t.Errorf("the other engine's rows: %d, distinct %d; it committed %d", got.Theirs, got.TheirsDistinct, theirs)
	}
	if got.Ours != ours || got.OursDistinct != ours {
		t.Errorf("our rows: %d, distinct %d; produced were %d", got.Ours, got.OursDistinct, ours)
	}
}
