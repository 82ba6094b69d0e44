package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"freshet": main})
}

// TestScripts plays what people type and see: testdata/script/*.txtar. Besides testscript's own commands
// there are
//
//	broker                    start a Kafka broker for the scene; $BROKER is its address
//	topic NAME PARTITIONS     make a topic
//	produce NAME PART FILE [KEY [HEADER=VALUE]]
//	                          send each line of a file as a record
//	port                      find a free port; $ADDR is an address with it
//	ready                     wait until $ADDR/readyz says that all pipelines run
//	readyz TEXT               wait until $ADDR/readyz says what matches
//	rows FOLDER N             wait until the table has N rows
//	metric TEXT               fail unless $ADDR/metrics has the text
//
// $HISTORIES is the folder of tables that Spark wrote, of delta/testdata/changes.
func TestScripts(t *testing.T) {
	histories, err := filepath.Abs(filepath.Join(root, "delta", "testdata", "changes"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Vars = append(env.Vars, "NO_COLOR=1", "LANG=C.UTF-8", "HOME="+env.WorkDir, "AWS_REGION=us-east-1",
				"HISTORIES="+histories)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"broker": startBroker, "topic": makeTopic, "produce": produce, "port": findPort, "ready": waitReady,
			"metric": metricIsThere, "readyz": waitReadyz, "rows": waitRows,
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

func startBroker(ts *testscript.TestScript, _ bool, _ []string) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	ts.Check(err)
	ts.Defer(cluster.Close)
	ts.Setenv("BROKER", cluster.ListenAddrs()[0])
}

func makeTopic(ts *testscript.TestScript, _ bool, args []string) {
	partitions, err := strconv.ParseInt(args[1], 10, 32)
	ts.Check(err)
	client := connect(ts)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(context.Background(), int32(partitions), 1, nil, args[0])
	ts.Check(err)
}

func produce(ts *testscript.TestScript, _ bool, args []string) {
	partition, err := strconv.ParseInt(args[1], 10, 32)
	ts.Check(err)
	client := connect(ts)
	defer client.Close()
	lines := bufio.NewScanner(bytes.NewReader([]byte(ts.ReadFile(args[2]))))
	for lines.Scan() {
		r := &kgo.Record{Topic: args[0], Partition: int32(partition), Value: bytes.Clone(lines.Bytes()),
			Timestamp: time.UnixMilli(1_700_000_000_123)}
		if len(args) > 3 {
			r.Key = []byte(args[3])
		}
		if len(args) > 4 {
			name, value, _ := strings.Cut(args[4], "=")
			r.Headers = []kgo.RecordHeader{{Key: name, Value: []byte(value)}}
		}
		ts.Check(client.ProduceSync(context.Background(), r).FirstErr())
	}
}

func connect(ts *testscript.TestScript) *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(ts.Getenv("BROKER")),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ts.Check(err)
	return client
}

func findPort(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv("ADDR", l.Addr().String())
	ts.Check(l.Close())
}

func get(ts *testscript.TestScript, path string) (int, string) {
	r, err := http.Get("http://" + ts.Getenv("ADDR") + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	ts.Check(err)
	return r.StatusCode, string(body)
}

func waitReady(ts *testscript.TestScript, _ bool, _ []string) {
	waitFor(ts, func() (bool, string) {
		code, body := get(ts, "/readyz")
		return code == http.StatusOK, fmt.Sprint(code, " ", body)
	})
}

func waitReadyz(ts *testscript.TestScript, _ bool, args []string) {
	waitFor(ts, func() (bool, string) {
		_, body := get(ts, "/readyz")
		return regexp.MustCompile(args[0]).MatchString(body), body
	})
}

func waitRows(ts *testscript.TestScript, _ bool, args []string) {
	st, err := store.NewDisk(ts.MkAbs(args[0]))
	ts.Check(err)
	waitFor(ts, func() (bool, string) {
		n := int64(0)
		d, err := delta.Open(context.Background(), st, nil)
		if errors.Is(err, delta.ErrNoTable) {
			return false, "no table"
		}
		ts.Check(err)
		snap, err := d.Snapshot(context.Background())
		ts.Check(err)
		for rec, err := range snap.Scan(context.Background(), nil) {
			ts.Check(err)
			n += rec.NumRows()
			rec.Release()
		}
		return fmt.Sprint(n) == args[1], fmt.Sprint(n, " rows")
	})
}

// waitFor waits until it is so.
func waitFor(ts *testscript.TestScript, so func() (bool, string)) {
	ticker, limit := time.NewTicker(10*time.Millisecond), time.After(2*time.Minute)
	defer ticker.Stop()
	for {
		is, found := so()
		if is {
			return
		}
		select {
		case <-ticker.C:
		case <-limit:
			ts.Fatalf("found %s", found)
		}
	}
}

func metricIsThere(ts *testscript.TestScript, _ bool, args []string) {
	if _, body := get(ts, "/metrics"); !strings.Contains(body, args[0]) {
		ts.Fatalf("/metrics has no %s", args[0])
	}
}
