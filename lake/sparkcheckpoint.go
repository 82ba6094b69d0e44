package lake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/store"
)

// SparkOffsets is where a Spark structured streaming query from Kafka stands, according to its checkpoint
// folder and its sink. Spark writes offsets/N before batch N runs and commits/N after it:
//
//	metadata        {"id":"<query id>"}
//	offsets/N       v1, a line of settings, then one line a source: {"topic":{"0":next,"1":next}}
//	commits/N       the batch is done
//
// Whether the last batch counts, when commits/N is missing, its Delta sink tells: it holds a txn of the
// query's id whose version is the last batch that landed.
type SparkOffsets struct {
	QueryID  string
	Batch    int64 // the last that counts
	Progress freshet.Progress
}

// maxCheckpointFile bounds what is read of one file of a checkpoint.
const maxCheckpointFile = 64 << 20

// ReadSpark reads the checkpoint folder at the root of checkpoint and settles it by the Delta table at the
// root of sink. Lanes have no OriginID: Spark does not record it. Errors: *freshet.Error when the folder is
// no checkpoint, has a source that is not Kafka, or belongs to another sink.
func ReadSpark(ctx context.Context, checkpoint, sink store.Store) (*SparkOffsets, error) {
	c := sparkCheckpoint{st: checkpoint}
	id, err := c.queryID(ctx)
	if err != nil {
		return nil, err
	}
	last, err := c.last(ctx, "offsets/")
	if err != nil {
		return nil, err
	}
	done, err := c.last(ctx, "commits/")
	if err != nil {
		return nil, err
	}
	if last < 0 {
		return nil, c.fault("it has no offsets: the query has read nothing", nil)
	}
	snap, err := openTable(ctx, sink, "")
	if err != nil {
		return nil, err
	}
	landed, ok := snap.Txn(id)
	switch {
	case !ok && (done >= 0 || last > 0):
		return nil, c.fault(fmt.Sprintf("the table %s has no batch of the query %s", sink.URL(), id), nil)
	case !ok:
		landed = -1
	case landed > last:
		return nil, c.fault(fmt.Sprintf("the table %s holds batch %d of the query %s, "+
			"but the last that is planned is %d: "+
			"the folder is an old copy", sink.URL(), landed, id, last), nil)
	}
	if settled := max(done, landed); settled < last {
		last--
	}
	if last < 0 {
		return &SparkOffsets{QueryID: id, Batch: -1, Progress: freshet.Progress{}}, nil
	}
	p, err := c.offsets(ctx, last)
	if err != nil {
		return nil, err
	}
	return &SparkOffsets{QueryID: id, Batch: last, Progress: p}, nil
}

// ImportSpark takes over the table at the root of sink from a Spark query that was stopped: it records under
// app where the query stands. It refuses lanes that have progress already. A nil opts means defaults.
func ImportSpark(ctx context.Context, checkpoint, sink store.Store, app string, opts *SetOptions) (
	*SparkOffsets, int64, error) {
	offsets, err := ReadSpark(ctx, checkpoint, sink)
	if err != nil {
		return nil, 0, err
	}
	if len(offsets.Progress) == 0 {
		return nil, 0, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput,
			Place: checkpoint.URL(),
			Msg:   "the query has committed nothing, so that there is nothing to go on from",
			Fix:   "run the pipeline as for a new table"}
	}
	o := SetOptions{OnlyAbsent: true}
	if opts != nil {
		o = *opts
		o.OnlyAbsent = true
	}
	if o.Reason == "" {
		o.Reason = fmt.Sprintf("taken over from Spark query %s after batch %d", offsets.QueryID, offsets.Batch)
	}
	topics := map[string]bool{}
	for l := range offsets.Progress {
		topics[l.Origin] = true
	}
	if len(topics) > 1 {
		o.ManyOrigins = true
	}
	version, err := SetProgress(ctx, sink, app, offsets.Progress, &o)
	return offsets, version, err
}

type sparkCheckpoint struct{ st store.Store }

func (c sparkCheckpoint) fault(msg string, err error) error {
	if store.Retryable(err) || errors.Is(err, store.ErrPermission) {
		return explain(c.st.URL(), err)
	}
	return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: c.st.URL(), Err: err,
		Msg: "cannot go on from the Spark checkpoint: " + msg,
		Fix: "name the query's checkpointLocation and the Delta table that it writes"}
}

func (c sparkCheckpoint) read(ctx context.Context, key string) ([]byte, error) {
	o, err := c.st.Stat(ctx, key)
	if err == nil && o.Size > maxCheckpointFile {
		err = fmt.Errorf("%s: found %d bytes, wanted at most %d", key, o.Size, maxCheckpointFile)
	}
	if err != nil {
		return nil, c.fault("it lacks a file", err)
	}
	data, err := c.st.Get(ctx, key)
	if err != nil {
		return nil, c.fault("it lacks a file", err)
	}
	return data, nil
}

func (c sparkCheckpoint) queryID(ctx context.Context) (string, error) {
	data, err := c.read(ctx, "metadata")
	if err != nil {
		return "", err
	}
	var m struct{ ID string }
	if err := json.Unmarshal(data, &m); err != nil || m.ID == "" {
		return "", c.fault(fmt.Sprintf("metadata: found %.100q, wanted {\"id\": …}", data), err)
	}
	return m.ID, nil
}

// last is the highest number among the files of the folder, -1 when there is none. Other files (.crc,
// temporary ones) do not count.
func (c sparkCheckpoint) last(ctx context.Context, folder string) (int64, error) {
	last := int64(-1)
	for o, err := range c.st.List(ctx, folder, "") {
		if err != nil {
			return 0, c.fault("its files cannot be listed", err)
		}
		if name := strings.TrimPrefix(o.Key, folder); isNumber(name) {
			n, err := strconv.ParseInt(name, 10, 64)
			if err != nil {
				return 0, c.fault("a batch number is too large", err)
			}
			last = max(last, n)
		}
	}
	return last, nil
}

// sourceNumber is what a line of an offsets file of version 2 begins with.
var sourceNumber = regexp.MustCompile(`^\d+:`)

func (c sparkCheckpoint) offsets(ctx context.Context, batch int64) (freshet.Progress, error) {
	name := "offsets/" + strconv.FormatInt(batch, 10)
	data, err := c.read(ctx, name)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) < 3 || lines[0] != "v1" && lines[0] != "v2" {
		return nil, c.fault(fmt.Sprintf("%s: found %.40q, wanted v1 or v2, settings, and a line a source",
			name, data), nil)
	}
	p := freshet.Progress{}
	for _, line := range lines[2:] {
		if lines[0] == "v2" {
			line = line[len(sourceNumber.FindString(line)):]
		}
		if err := addOffsets(p, line); err != nil {
			return nil, c.fault(fmt.Sprintf("%s: a source is not Kafka", name), err)
		}
	}
	return p, nil
}

// addOffsets adds one source's offsets. Spark's are of the next record, ours of the last.
func addOffsets(p freshet.Progress, line string) error {
	var topics map[string]map[string]int64
	if err := json.Unmarshal([]byte(line), &topics); err != nil {
		return fmt.Errorf("found %.100q, wanted {topic: {partition: offset}}: %w", line, err)
	}
	for topic, partitions := range topics {
		for partition, next := range partitions {
			if !isNumber(partition) || next < 0 {
				return fmt.Errorf("topic %s: found partition %q at %d, wanted numbers of 0 or more",
					topic, partition, next)
			}
			l := freshet.Lane{Origin: topic, Name: partition}
			if _, twice := p[l]; twice {
				return fmt.Errorf("two sources read %s", l)
			}
			p[l] = next - 1
		}
	}
	return nil
}

// Lanes are the lanes of the progress, in order.
func (o *SparkOffsets) Lanes() []freshet.Lane {
	var lanes []freshet.Lane
	for l := range o.Progress {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b freshet.Lane) int {
		if a.Origin != b.Origin {
			return strings.Compare(a.Origin, b.Origin)
		}
		return compareNames(a.Name, b.Name)
	})
	return lanes
}
