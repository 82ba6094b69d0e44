package s3_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeDynamo is a DynamoDB table with the keys tablePath and fileName, in memory, at the wire: the three operations
// of the log store, and conditions of equalities and attribute_not_exists.
type fakeDynamo struct {
	name string

	mu    sync.Mutex
	items map[[2]string]map[string]value
}

type value map[string]string // "S" or "N" to the text

func newFakeDynamo() *fakeDynamo {
	return &fakeDynamo{name: "delta_log", items: map[[2]string]map[string]value{}}
}

func keyOf(item map[string]value) [2]string {
	return [2]string{item["tablePath"]["S"], item["fileName"]["S"]}
}

func (f *fakeDynamo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		TableName                 string
		ConsistentRead            bool
		Key, Item                 map[string]value
		ConditionExpression       string
		KeyConditionExpression    string
		ExpressionAttributeNames  map[string]string
		ExpressionAttributeValues map[string]value
		ScanIndexForward          bool
		Limit                     int
	}
	signed := strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if json.NewDecoder(r.Body).Decode(&in) != nil || !signed {
		refuseDynamo(w, http.StatusBadRequest, "SerializationException")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	target := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810.")
	holds := func(expression string, item map[string]value) bool {
		return conditionHolds(expression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, item)
	}
	out := map[string]any{}
	switch {
	case in.TableName != f.name:
		refuseDynamo(w, http.StatusBadRequest, "ResourceNotFoundException")
		return
	case target == "PutItem" && !holds(in.ConditionExpression, f.items[keyOf(in.Item)]):
		refuseDynamo(w, http.StatusBadRequest, "ConditionalCheckFailedException")
		return
	case target == "PutItem":
		f.items[keyOf(in.Item)] = in.Item
	case target == "GetItem" && in.ConsistentRead:
		if item, ok := f.items[keyOf(in.Key)]; ok {
			out["Item"] = item
		}
	case target == "Query" && in.ConsistentRead && !in.ScanIndexForward:
		found := []map[string]value{}
		for _, item := range f.items {
			if holds(in.KeyConditionExpression, item) {
				found = append(found, item)
			}
		}
		slices.SortFunc(found, func(a, b map[string]value) int { return strings.Compare(keyOf(b)[1], keyOf(a)[1]) })
		out["Items"] = found[:min(len(found), in.Limit)]
	default:
		refuseDynamo(w, http.StatusBadRequest, "ValidationException")
		return
	}
	_ = json.NewEncoder(w).Encode(out)
}

// conditionHolds evaluates alternatives of conjunctions; an empty expression holds.
func conditionHolds(expression string, names map[string]string, values map[string]value, item map[string]value) bool {
	term := func(term string) bool {
		if name, ok := strings.CutPrefix(term, "attribute_not_exists("); ok {
			_, there := item[names[strings.TrimSuffix(name, ")")]]
			return !there
		}
		name, wanted, _ := strings.Cut(term, " = ")
		found, there := item[names[name]]
		return there && maps.Equal(found, values[wanted])
	}
	for _, alternative := range strings.Split(expression, " OR ") {
		missing := func(t string) bool { return !term(t) }
		if expression == "" || !slices.ContainsFunc(strings.Split(alternative, " AND "), missing) {
			return true
		}
	}
	return false
}

func refuseDynamo(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + kind,
		"message": "as the test wants"})
}

// put is what a writer of another kind does: Spark puts its entries without looking at ours.
func (f *fakeDynamo) put(table, file, temp, complete string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := map[string]value{"tablePath": {"S": table}, "fileName": {"S": file}, "tempPath": {"S": temp},
		"complete": {"S": complete}}
	f.items[keyOf(item)] = item
}

func (f *fakeDynamo) item(table, file string) map[string]value {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.items[[2]string{table, file}])
}

// expire removes all entries, as DynamoDB does in its time.
func (f *fakeDynamo) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.items)
}

// wantComplete wants each entry complete and due to expire.
func (f *fakeDynamo) wantComplete(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, item := range f.items {
		if item["complete"]["S"] != "true" || item["expireTime"]["N"] == "" {
			t.Errorf("entry %q: got %v, want it complete", key, item)
		}
	}
}
