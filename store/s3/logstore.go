package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
)

// entryLife is how long a complete entry stays at least: as long as a slow writer may take between looking for the
// file and putting its entry.
const entryLife = 24 * time.Hour

// logStore lets commits exclude each other by a DynamoDB table, as Spark's S3DynamoDBLogStore does, for tables whose
// other writers put log entries without a condition. To commit N.json with the bytes T:
//
//	0  refuse if N.json is there
//	1  see to it that N-1.json is there: complete the entry of N-1
//	2  put T under _delta_log/.tmp/, and the entry of N, incomplete, unless there is one: this decides
//	3  copy T to N.json
//	4  mark the entry complete, so that it may expire after a day
//
// Whoever finds an incomplete entry does steps 3 and 4. An entry that expired lets a writer that slept since step 0
// pass step 2, so step 3 is a put if absent here, which then loses.
type logStore struct {
	store  *Store
	table  *dynamo
	scheme string // of the tables' URLs, as all writers name them

	named sync.Map // of the tables' URLs: those that are known not to go by another scheme
}

// logEntry is a commit in the log of a table.
var logEntry = regexp.MustCompile(`^((?:.*/)?_delta_log/)([0-9]{20}\.json)$`)

// commit is a place in the log of a table.
type commit struct {
	log  string // key of the log's folder, with a slash at the end
	file string
	of   string // URL of the table
}

// commitAt tells commits from other keys.
func (l *logStore) commitAt(key string) (commit, bool) {
	m := logEntry.FindStringSubmatch(key)
	if m == nil {
		return commit{}, false
	}
	return commit{m[1], m[2], l.urlOf(l.scheme, m[1])}, true
}

// urlOf is the URL of the table that has the log.
func (l *logStore) urlOf(scheme, log string) string {
	folder := l.store.prefix + strings.TrimSuffix(log, "_delta_log/")
	return scheme + "://" + l.store.bucket + "/" + strings.TrimSuffix(folder, "/")
}

// put is PutIfAbsent of a commit. A commit whose entry is put stands, whoever completes it.
func (l *logStore) put(ctx context.Context, at commit, data []byte) error {
	if err := l.ready(ctx, at); err != nil {
		return err
	}
	mine := &entry{table: at.of, file: at.file, temp: ".tmp/" + at.file + "." + uuid.NewString()}
	if err := l.store.put(ctx, "put", at.log+mine.temp, data); err != nil {
		if errors.Is(err, store.ErrAmbiguous) && ctx.Err() == nil { // nobody knows of that object
			err = fmt.Errorf("%w: %v", store.ErrUnavailable, err)
		}
		return err
	}
	err := l.table.claim(ctx, mine)
	if errors.Is(err, errTaken) || errors.Is(err, store.ErrAmbiguous) {
		err = l.whose(ctx, mine, err)
	}
	switch {
	case err == nil:
		return l.publish(ctx, at, mine, data)
	case !errors.Is(err, store.ErrAmbiguous):
		l.drop(ctx, at, mine)
	}
	return err
}

// ready is steps 0 and 1.
func (l *logStore) ready(ctx context.Context, at commit) error {
	if err := l.checkNames(ctx, at); err != nil {
		return err
	}
	if err := l.free(ctx, at); err != nil {
		return err
	}
	before, first := at.before()
	if first {
		return l.unused(ctx, at)
	}
	e, err := l.table.get(ctx, at.of, before)
	if err != nil {
		return err
	}
	if e != nil && !e.complete {
		return l.complete(ctx, at.log, e)
	}
	there, err := l.there(ctx, at.log+before)
	if err == nil && !there {
		err = fmt.Errorf("put %s: the commit before it, %s, is not there", at.log+at.file, before)
	}
	return err
}

// free is ErrExists if the file is there.
func (l *logStore) free(ctx context.Context, at commit) error {
	there, err := l.there(ctx, at.log+at.file)
	if err == nil && there {
		err = fmt.Errorf("put %s: %w", at.log+at.file, store.ErrExists)
	}
	return err
}

// unused refuses the first commit of a table if the entry of an older one is complete, and its file gone.
func (l *logStore) unused(ctx context.Context, at commit) error {
	e, err := l.table.get(ctx, at.of, at.file)
	if err != nil || e == nil || !e.complete {
		return err
	}
	if err := l.free(ctx, at); err != nil { // others have committed it since step 0
		return err
	}
	return fmt.Errorf("put %s: %w: the DynamoDB table %s still has entries of an older one at %s: delete its items with "+
		"that tablePath", at.log+at.file, store.ErrLogStore, l.table.name, at.of)
}

// before is the file of the commit before this one, unless it is the first.
func (c commit) before() (file string, first bool) {
	digits := []byte(c.file)
	for i := 19; i >= 0; i-- {
		if digits[i] > '0' {
			digits[i]--
			return string(digits), false
		}
		digits[i] = '9'
	}
	return "", true
}

func (l *logStore) there(ctx context.Context, key string) (bool, error) {
	_, err := l.store.stat(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// whose finds out whether the entry that was claimed is there; unclear is why that is not known. It returns nil if
// it is, and ErrExists if another one is.
func (l *logStore) whose(ctx context.Context, mine *entry, unclear error) error {
	is, err := l.table.get(ctx, mine.table, mine.file)
	switch {
	case err != nil:
		return fmt.Errorf("put %s: %w: %v, then: %v", mine.file, store.ErrAmbiguous, unclear, err)
	case is == nil:
		return fmt.Errorf("put %s: %w: %v", mine.file, store.ErrAmbiguous, unclear)
	case is.temp != mine.temp:
		return fmt.Errorf("put %s: %w", mine.file, store.ErrExists)
	}
	return nil
}

// publish is steps 3 and 4 of an entry that is there.
func (l *logStore) publish(ctx context.Context, at commit, mine *entry, data []byte) error {
	key := at.log + at.file
	err := l.store.putIfAbsent(ctx, key, data)
	if errors.Is(err, store.ErrExists) { // others have completed it, or it was there before
		var found []byte
		if found, _, err = l.store.download(ctx, "get", key, ""); err == nil && !bytes.Equal(found, data) {
			err = fmt.Errorf("put %s: %w", key, store.ErrExists)
		}
	}
	if err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("put %s: %w: its entry is in the DynamoDB table, and whoever reads the table next completes "+
			"it: %v", key, store.ErrAmbiguous, err)
	}
	if l.table.acknowledge(ctx, mine) == nil { // else whoever comes next does it
		l.drop(ctx, at, mine)
	}
	return err
}

// drop removes the object of an entry that is complete or was never put. It may stay.
func (l *logStore) drop(ctx context.Context, at commit, e *entry) {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	_ = l.store.Delete(clean, at.log+e.temp)
}

// complete does steps 3 and 4 in place of the writer that put the entry.
func (l *logStore) complete(ctx context.Context, log string, e *entry) error {
	there, err := l.there(ctx, log+e.file)
	if err == nil && !there {
		err = l.copy(ctx, log, e)
	}
	if err != nil {
		return fmt.Errorf("complete the commit %s that another writer has begun: %w", log+e.file, err)
	}
	_ = l.table.acknowledge(ctx, e)
	return nil
}

func (l *logStore) copy(ctx context.Context, log string, e *entry) error {
	data, _, err := l.store.download(ctx, "get", log+e.temp, "")
	if errors.Is(err, store.ErrNotFound) { // its writer may have completed it just now
		if there, thereErr := l.there(ctx, log+e.file); there || thereErr != nil {
			return thereErr
		}
		return fmt.Errorf("the entry in the DynamoDB table %s names an object that is gone: %v", l.table.name, err)
	}
	if err != nil {
		return err
	}
	err = l.store.putIfAbsent(ctx, log+e.file, data)
	switch {
	case errors.Is(err, store.ErrExists):
		return nil
	case errors.Is(err, store.ErrAmbiguous): // it is the same, whoever writes it
		return fmt.Errorf("%w: %v", store.ErrUnavailable, err)
	}
	return err
}

// beforeList completes what the latest writer has begun, if the prefix is in a table's log.
func (l *logStore) beforeList(ctx context.Context, prefix string) error {
	const folder = "_delta_log/"
	i := strings.LastIndex(prefix, folder)
	if i < 0 || i > 0 && prefix[i-1] != '/' {
		return nil
	}
	log := prefix[:i+len(folder)]
	at := commit{log: log, of: l.urlOf(l.scheme, log)}
	if err := l.checkNames(ctx, at); err != nil {
		return err
	}
	e, err := l.table.latest(ctx, at.of)
	if err != nil || e == nil || e.complete {
		return err
	}
	return l.complete(ctx, log, e)
}

// restore completes a commit that was not found, and reports whether it is there now.
func (l *logStore) restore(ctx context.Context, key string) (bool, error) {
	at, ok := l.commitAt(key)
	if !ok {
		return false, nil
	}
	e, err := l.table.get(ctx, at.of, at.file)
	if err != nil || e == nil || e.complete {
		return false, err
	}
	return true, l.complete(ctx, at.log, e)
}

// checkNames refuses a table whose latest commit others made under a URL of another scheme: they would not see ours.
func (l *logStore) checkNames(ctx context.Context, at commit) error {
	if _, ok := l.named.Load(at.of); ok {
		return nil
	}
	mine, err := l.table.latest(ctx, at.of)
	if err != nil {
		return err
	}
	for _, scheme := range schemes {
		if scheme == l.scheme {
			continue
		}
		other, err := l.table.latest(ctx, l.urlOf(scheme, at.log))
		if err != nil {
			return err
		}
		if other != nil && (mine == nil || other.file > mine.file) {
			return fmt.Errorf("%w: other writers name it %s in the DynamoDB table %s, not %s, and would not "+
				"see our commits: give the log store scheme=%s", store.ErrLogStore, other.table, l.table.name, at.of, scheme)
		}
	}
	l.named.Store(at.of, true)
	return nil
}
