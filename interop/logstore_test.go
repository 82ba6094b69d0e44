package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// dynamoTable is a fresh table on the announced S3 server, with what tells the command to arbitrate its commits in the
// announced DynamoDB: its URL, and where its files lie on disk.
func dynamoTable(t *testing.T) (url, dir string, env []string) {
	t.Helper()
	for _, name := range []string{"AWS_ENDPOINT_URL", "S3_BUCKET", "S3_DIR", "AWS_ENDPOINT_URL_DYNAMODB", "DYNAMODB_TABLE"} {
		if os.Getenv(name) == "" {
			t.Skipf("needs servers of S3 and DynamoDB: %s is not set (interop/README.md)", name)
		}
	}
	bucket, name := os.Getenv("S3_BUCKET"), fmt.Sprintf("dynamo/%d/t", time.Now().UnixNano())
	return "s3://" + bucket + "/" + name, filepath.Join(os.Getenv("S3_DIR"), "data", bucket, name),
		[]string{"FRESHET_LOG_STORE=dynamodb://" + os.Getenv("DYNAMODB_TABLE") + "?region=us-east-1"}
}

// TestLogStore_WritersAtOnceKilled_EachRowOnce has processes that write one table at once, each a row, and kills one in each
// round: what it left half done the others complete.
func TestLogStore_WritersAtOnceKilled_EachRowOnce(t *testing.T) {
	t.Parallel()
	url, dir, env := dynamoTable(t)
	random := seeded(t)
	start(t, env, "table", "create", url, "--schema", "id BIGINT").mustEnd(patience)
	ids, killed, rows := 0, map[int64]bool{}, t.TempDir()
	usual := time.Second // what a writer takes
	insert := func() *process {
		file := filepath.Join(rows, fmt.Sprint(ids, ".json"))
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"id":%d}`, ids), 0o600); err != nil {
			t.Fatal(err)
		}
		ids++
		return start(t, env, "table", "merge", url, "--source", file, "--on", "t.id = s.id", "--when-not-matched-insert", "*")
	}
	for range rounds(t, 15) {
		victim := insert()
		others := []*process{insert(), insert()}
		began := time.Now()
		pause(time.Duration(random.Int64N(int64(usual)*5/4)), victim.done)
		victim.kill()
		killed[int64(ids-3)] = true
		for _, p := range others {
			p.mustEnd(patience)
		}
		usual = time.Since(began)
	}
	start(t, env, "table", "read", url, "--digest").mustEnd(patience)
	start(t, env, "table", "check", url, "--deep").mustEnd(patience)
	wantIDs(t, dir, ids, killed)
}

// wantIDs reads the table's files, which are all at their places once somebody has listed them through the log store.
func wantIDs(t *testing.T, dir string, ids int, perhaps map[int64]bool) {
	t.Helper()
	st, err := store.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, err := delta.Open(context.Background(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := table.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	found := map[int64]int{}
	for b, err := range snap.Scan(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := b.MarshalJSON()
		b.Release()
		var got []struct{ ID int64 }
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got {
			found[r.ID]++
		}
	}
	landed := 0
	for id := range int64(ids) {
		if n := found[id]; n > 1 || n == 0 && !perhaps[id] {
			t.Errorf("row %d is there %d times", id, n)
		}
		if perhaps[id] {
			landed += found[id]
		}
	}
	t.Logf("version %d; of %d killed writers %d had committed", snap.Version(), len(perhaps), landed)
}

// TestLogStore_CommitLeftHalfDone_ReaderCompletesIt takes a commit back to where a writer was that died before it had copied
// it to its place. Who does not ask DynamoDB sees the version before.
func TestLogStore_CommitLeftHalfDone_ReaderCompletesIt(t *testing.T) {
	t.Parallel()
	url, dir, env := dynamoTable(t)
	start(t, env, "table", "create", url, "--schema", "id BIGINT").mustEnd(patience)
	start(t, env, "table", "property", "set", url, "owner=shop").mustEnd(patience)
	const file = "00000000000000000001.json"
	log := filepath.Join(dir, "_delta_log")
	if err := os.MkdirAll(filepath.Join(log, ".tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(log, file), filepath.Join(log, ".tmp", "left")); err != nil {
		t.Fatal(err)
	}
	putEntry(t, "s3a"+strings.TrimPrefix(url, "s3"), file, ".tmp/left")
	wantOwner := func(env []string, want bool) {
		t.Helper()
		p := start(t, env, "table", "describe", url)
		p.mustEnd(patience)
		if got := strings.Contains(p.out.String(), "shop"); got != want {
			t.Errorf("with %v: the property is there: %v, want %v", env, got, want)
		}
	}
	wantOwner([]string{"FRESHET_LOG_STORE="}, false)
	wantOwner(env, true)
	wantOwner([]string{"FRESHET_LOG_STORE="}, true)
}

// putEntry puts the entry of a commit that is not complete. The server believes every signature.
func putEntry(t *testing.T, table, file, temp string) {
	t.Helper()
	body := fmt.Sprintf(`{"TableName":%q,"Item":{"tablePath":{"S":%q},"fileName":{"S":%q},"tempPath":{"S":%q},"complete":{"S":"false"}}}`,
		os.Getenv("DYNAMODB_TABLE"), table, file, temp)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, os.Getenv("AWS_ENDPOINT_URL_DYNAMODB"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=f/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=f")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("put the entry: %s", answer.Status)
	}
}
