package delta

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// parseAll parses a commit with everything in it.
func parseAll(data string) (actions []Action, err error) {
	for a, err := range parseLog("commit", []byte(data), ^kinds(0)) {
		if err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, nil
}

func TestParseLog_AnyForm_IsUnderstood(t *testing.T) {
	for _, c := range []struct{ name, data string }{
		{"one line", `{"add":{"path":"a","size":1,"dataChange":true}}`},
		{"blank lines", "\n\n{\"add\":{\"path\":\"a\",\"size\":1,\"dataChange\":true}}\r\n\n"},
		{"many lines", "{\n  \"add\" : {\n \"path\": \"a\",\n\t\"size\": 1, \"dataChange\": true\n}\n}\n"},
		{"unknown actions", `{"new":[1,{"x":"}"}]}` + "\n" + `{"add":{"path":"a","size":1,"dataChange":true},"more":null}`},
		{"unknown fields", `{"add":{"x":{"add":1},"path":"a","size":1,"y":[[[]]],"dataChange":true,"stats":null}}`},
		{"escapes", `{"\u0061dd":{"p\u0061th":"\u0061","size":1,"dataChange":true}}`},
		{"null action", `{"add":null}` + `{"remove":null,"add":{"path":"a","size":1,"dataChange":true}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseAll(c.data)
			want := []Action{{Add: &Add{Path: "a", Size: 1, DataChange: true}}}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestParseLog_Broken_NamesTheLine(t *testing.T) {
	good := `{"add":{"path":"a","size":1}}` + "\n"
	for _, c := range []struct {
		data string
		line int
	}{
		{good + `{"add":{"path":"b","size":`, 2},
		{good + good + `{"add":{"path":"b","size":1.5}}`, 3},
		{good + `{"add":{"size":1}}` + "\n" + good, 2},
		{good + `{"add":{"path":"b","size":99999999999999999999}}`, 2},
		{`{"add":{"path":7}}` + "\n" + good, 1},
		{good + `[]`, 2},
		{good + `{"add":` + strings.Repeat(`{"x":`, 500), 2},
		{good + `{"add":` + strings.Repeat(`[`, 100_000), 2},
		{good + `{"txn":{"appId":"\ud8","version":1}}`, 2},
		{good + `garbage`, 2},
	} {
		_, err := parseAll(c.data)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("commit:%d:", c.line)) {
			t.Errorf("%.60q: got %v, want ErrCorrupt in line %d", c.data, err, c.line)
		}
	}
}

func TestParseLog_CommitInfoOfAnyType_IsTolerated(t *testing.T) {
	got, err := parseAll(`{"commitInfo":{"timestamp":1.5e12,"operation":null,"operationParameters":{"mode":"Append",` +
		`"partitionBy":["a"],"statsOnLoad":false,"n":null},"readVersion":"x","isBlindAppend":"yes","userMetadata":{"a":1},` +
		`"operationMetrics":[],"tags":7,"inCommitTimestamp":12,"job":{"id":1}}}`)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(12)
	want := &CommitInfo{OperationParameters: map[string]string{"mode": "Append", "partitionBy": `["a"]`,
		"statsOnLoad": "false"}, UserMetadata: `{"a":1}`, InCommitTimestamp: &at}
	if !reflect.DeepEqual(got[0].CommitInfo, want) {
		t.Errorf("got %+v, want %+v", got[0].CommitInfo, want)
	}
}

func TestLog_EveryAction_ComesBackAsWritten(t *testing.T) {
	one, text, yes, offset := int64(1), "x\n\"é\U0001F600", true, int32(4)
	vector := &DeletionVector{StorageType: "u", PathOrInlineDv: "ab^-aqEH.-t@S}K{vb[*k^", Offset: &offset,
		SizeInBytes: 36, Cardinality: 2}
	values := map[string]*string{"day": &text, "null": nil}
	want := []Action{
		{CommitInfo: &CommitInfo{Timestamp: 5, InCommitTimestamp: &one, Operation: "WRITE",
			OperationParameters: map[string]string{"mode": "Append"}, OperationMetrics: map[string]string{"n": "1"},
			ReadVersion: &one, IsolationLevel: "Serializable", IsBlindAppend: &yes, EngineInfo: "e", TxnID: "t",
			UserMetadata: "u", UserID: "i", UserName: "n", Tags: map[string]string{"a": "b"}}},
		{Protocol: &Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"a"},
			WriterFeatures: []string{"a", "b"}}},
		{Metadata: &Metadata{ID: "i", Name: "n", Description: "d", Provider: "parquet",
			FormatOptions: map[string]string{"a": "b"}, SchemaString: `{"type":"struct"}`,
			PartitionColumns: []string{"p"}, Configuration: map[string]string{"k": "v"}, CreatedTime: &one}},
		{Txn: &Txn{AppID: "a", Version: 1<<53 + 1, LastUpdated: &one}},
		{DomainMetadata: &DomainMetadata{Domain: "d", Configuration: "{}", Removed: true}},
		{Remove: &Remove{Path: "p", DeletionTimestamp: &one, DataChange: true, ExtendedFileMetadata: &yes,
			PartitionValues: values, Size: &one, Stats: "{}", Tags: values, DeletionVector: vector, BaseRowID: &one,
			DefaultRowCommitVersion: &one}},
		{Add: &Add{Path: "p", PartitionValues: values, Size: 1, ModificationTime: 2, DataChange: true,
			Stats: `{"numRecords":1}`, Tags: values, DeletionVector: vector, BaseRowID: &one,
			DefaultRowCommitVersion: &one, ClusteringProvider: "liquid"}},
		{CDC: &CDC{Path: "p", PartitionValues: values, Size: 1, DataChange: false, Tags: values}},
	}
	text2 := appendLog(nil, want)
	got, err := parseAll(string(text2))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\n%s", err, text2)
	}
	for line := range strings.Lines(string(text2)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

func TestChecksumJSON_ExampleOfTheProtocol_Agrees(t *testing.T) {
	got, err := checksumJSON([]byte(`{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ` +
		`["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}`))
	if want := "6a92d155a59bf2eecbd4b4ec7fd1f875"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestLastCheckpoint_Written_IsRead(t *testing.T) {
	want := lastCheckpoint{Version: 10, Size: 7, SizeInBytes: 1000, NumOfAddFiles: 5}
	text, err := want.text()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := parseLastCheckpoint(text)
	if !ok || got != want {
		t.Errorf("got %+v, %v", got, ok)
	}
	if _, ok := parseLastCheckpoint([]byte(strings.Replace(string(text), "1000", "1001", 1))); ok {
		t.Error("a changed file has a right checksum")
	}
}

func TestParseInterval(t *testing.T) {
	for text, want := range map[string]string{
		"interval 30 days": "720h0m0s", "INTERVAL 1 WEEK": "168h0m0s", "1 week 2 days": "216h0m0s", "interval 0 hours": "0s",
		"interval 90 minutes 5 seconds": "1h30m5s", "interval 7 milliseconds": "7ms",
		"interval 1 month": "", "interval 1 year": "", "": "", "interval": "", "7": "", "interval -1 day": "",
		"interval 1.5 days": "", "interval 99999999999 days": "", "interval 1 day 2": "",
	} {
		d, err := parseInterval(text)
		if want == "" && err == nil || want != "" && (err != nil || d.String() != want) {
			t.Errorf("%q: got %v, %v, want %s", text, d, err, want)
		}
	}
}

func TestFileKey_SpellingsOfOneFile_AreEqual(t *testing.T) {
	for _, group := range [][]string{
		{"a b", "a%20b"}, {"p=a%3Ab/x", "p=a%253Ab/x"},
		{"/x/y", "file:/x/y", "file:///x/y"}, {"/x/a b", "file:///x/a%20b"},
	} {
		want := (&Add{Path: group[0]}).key()
		if group[0] == "p=a%3Ab/x" { // decoded once, and no more
			if (&Add{Path: group[1]}).key() == want {
				t.Errorf("%v: equal", group)
			}
			continue
		}
		for _, path := range group[1:] {
			if got := (&Remove{Path: path}).key(); got != want {
				t.Errorf("%s: got %v, want %v", path, got, want)
			}
		}
	}
}

func FuzzParseCommit(f *testing.F) {
	goldenSeeds(f, "_delta_log/*.json")
	f.Add([]byte(`{"commitInfo":{"timestamp":1,"operation":"WRITE","operationParameters":{"a":"[]"}}}` + "\n" +
		`{"add":{"path":"a%20b","partitionValues":{"d":null},"size":1,"modificationTime":2,"dataChange":true,` +
		`"stats":"{\"numRecords\":1}","deletionVector":{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":1}}}`))
	f.Add([]byte(`{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"],"writerFeatures":[]}}`))
	f.Add([]byte(`{"metaData":{"id":"\ud83d\ude00","schemaString":"{}","partitionColumns":["a"]}}{"txn":{"appId":"a"}}`))
	f.Add([]byte(`{"remove":{"path":"a","deletionTimestamp":1}}{"cdc":{}}{"sidecar":{"path":"x"}}{"domainMetadata":{}}`))
	for _, text := range hostileActions(4 << 10) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var first []Action
		var err error
		spend(t, len(data), func() { first, err = parseAll(string(data)) })
		if err != nil {
			return
		}
		var kept []Action
		for _, a := range first {
			if a.CheckpointMetadata == nil && a.Sidecar == nil {
				kept = append(kept, a)
			}
		}
		// What was understood is written in a form that is understood.
		if _, err := parseAll(string(appendLog(nil, kept))); err != nil {
			t.Errorf("written again it does not parse: %v", err)
		}
	})
}

func FuzzLastCheckpoint(f *testing.F) {
	goldenSeeds(f, "_delta_log/_last_checkpoint")
	f.Add([]byte(`{"version":10,"size":7,"sizeInBytes":1,"numOfAddFiles":5,"checksum":"x","parts":3}`))
	f.Add([]byte(`{"version":2,"v2Checkpoint":{"path":"a","nonFileActions":[{"protocol":{}}]},"tags":{"a":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spend(t, len(data), func() {
			if c, ok := parseLastCheckpoint(data); ok && c.Version < 0 {
				t.Errorf("version %d", c.Version)
			}
			_, _ = checksumJSON(data)
		})
	})
}

func TestParseLog_RemoveWithNulls_KeepsTheFieldsBehindThem(t *testing.T) {
	got, err := parseAll(`{"remove":{"extendedFileMetadata":null,"deletionTimestamp":null,"path":"a","size":5,` +
		`"stats":{"numRecords":1}}}`)
	if err != nil || len(got) != 1 || got[0].Remove == nil {
		t.Fatalf("got %v, %v, want a remove", got, err)
	}
	r := got[0].Remove
	if r.ExtendedFileMetadata != nil || r.DeletionTimestamp != nil || r.Path != "a" || deref(r.Size) != 5 ||
		r.Stats != `{"numRecords":1}` {
		t.Errorf("got %+v", r)
	}
}

func TestParseLog_UnwantedActions_PassedOverWhateverTheirForm(t *testing.T) {
	const txn = `{"txn":{"appId":"a","version":1}}`
	for _, add := range []string{`{"add":{"path":"x","tags":{"a":"}"}}}`, "{\"add\":{\"path\":\"x\",\n\"tags\":{\"a\":null}\n}}",
		"{\"add\":\n{\"path\":\"x\"}}", `{"add":null}`, `{"add":{"path":"}"}} `} {
		n := 0
		for a, err := range parseLog("commit", []byte(txn+"\n"+add+"\n"+txn+add+"\r\n"+txn+"\n"), kindTxn) {
			if err != nil || a.Txn == nil {
				t.Fatalf("%q: got %+v, %v", add, a, err)
			}
			n++
		}
		if n != 3 {
			t.Errorf("%q: got %d actions, want 3", add, n)
		}
	}
}
