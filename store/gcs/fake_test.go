package gcs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store/gcs"
)

const bucket = "lake"

// fake is a server of the parts of Google's JSON API that the store calls, in memory.
type fake struct {
	mu       sync.Mutex
	objects  map[string]object
	sessions map[string]*session
}

type object struct {
	data    []byte
	updated time.Time
}

type session struct {
	name string
	data []byte
	made bool
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path := r.URL.EscapedPath()
	name, isObject := strings.CutPrefix(path, "/storage/v1/b/"+bucket+"/o/")
	switch {
	case r.URL.Query().Has("upload_id"):
		f.resume(w, r, body)
	case path == "/upload/storage/v1/b/"+bucket+"/o":
		f.upload(w, r, body)
	case path == "/storage/v1/b/"+bucket+"/o":
		f.list(w, r.URL.Query())
	case isObject:
		name, err := url.PathUnescape(name)
		if err != nil {
			refuse(w, http.StatusBadRequest, "invalid", err.Error())
			return
		}
		f.object(w, r, name)
	default:
		refuse(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
	}
}

func (f *fake) object(w http.ResponseWriter, r *http.Request, name string) {
	found, ok := f.objects[name]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "notFound", "No such object: "+bucket+"/"+name)
	case r.Method == http.MethodDelete:
		delete(f.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("alt") == "media":
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(found.data)))
	default:
		_ = json.NewEncoder(w).Encode(found.resource(name))
	}
}

func (o object) resource(name string) map[string]any {
	return map[string]any{"name": name, "size": strconv.Itoa(len(o.data)), "updated": o.updated}
}

// list pages by 100, fewer than are asked for, as the real server may.
func (f *fake) list(w http.ResponseWriter, query url.Values) {
	items, next := []any{}, ""
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasPrefix(name, query.Get("prefix")) || name < query.Get("startOffset") ||
			name < query.Get("pageToken") {
			continue
		}
		if len(items) == 100 {
			next = name
			break
		}
		items = append(items, f.objects[name].resource(name))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": items, "nextPageToken": next})
}

func (f *fake) upload(w http.ResponseWriter, r *http.Request, body []byte) {
	query := r.URL.Query()
	name := query.Get("name")
	if query.Get("uploadType") == "resumable" {
		id := strconv.Itoa(len(f.sessions))
		f.sessions[id] = &session{name: name}
		w.Header().Set("Location", "http://"+r.Host+"/upload/storage/v1/b/"+bucket+"/o?name="+url.QueryEscape(name)+
			"&upload_id="+id)
		return
	}
	if _, taken := f.objects[name]; taken && query.Get("ifGenerationMatch") == "0" {
		refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions failed.")
		return
	}
	f.objects[name] = object{body, time.Now()}
	_ = json.NewEncoder(w).Encode(f.objects[name].resource(name))
}

func (f *fake) resume(w http.ResponseWriter, r *http.Request, body []byte) {
	s := f.sessions[r.URL.Query().Get("upload_id")]
	if s == nil {
		refuse(w, http.StatusNotFound, "notFound", "no such session")
		return
	}
	if r.Method == http.MethodDelete {
		delete(f.sessions, r.URL.Query().Get("upload_id"))
		w.WriteHeader(499)
		return
	}
	span, total, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Content-Range"), "bytes "), "/")
	if from, _, ok := strings.Cut(span, "-"); ok && !s.made {
		if from != strconv.Itoa(len(s.data)) || total == "*" && len(body)%(256<<10) != 0 {
			refuse(w, http.StatusBadRequest, "invalid", "a part that does not follow, or of a wrong size")
			return
		}
		s.data = append(s.data, body...)
	}
	if s.made || total == strconv.Itoa(len(s.data)) {
		s.made = true
		f.objects[s.name] = object{s.data, time.Now()}
		_ = json.NewEncoder(w).Encode(f.objects[s.name].resource(s.name))
		return
	}
	if len(s.data) > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(s.data)-1))
	}
	w.WriteHeader(http.StatusPermanentRedirect)
}

// refuse answers with an error of Google's form.
func refuse(w http.ResponseWriter, status int, reason, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": message,
		"errors": []any{map[string]any{"reason": reason, "message": message}}}})
}

func newFake() *fake { return &fake{objects: map[string]object{}, sessions: map[string]*session{}} }

func fakeServer(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(newFake())
	t.Cleanup(server.Close)
	return server
}

func open(t *testing.T, prefix string, opts *gcs.Options) *gcs.Store {
	t.Helper()
	s, err := gcs.Open(bucket, prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
