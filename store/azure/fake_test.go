package azure_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/azure"
	"github.com/freshet-io/freshet/store/storetest"
)

const (
	account   = "acme"
	container = "lake"
)

// fake is a server of the parts of the Blob service's REST API that the store calls, in memory. Like Azure it takes
// backslashes for slashes, and has no ranges from the end.
type fake struct {
	mu     sync.Mutex
	blobs  map[string]*blob
	blocks map[string]map[string][]byte // uncommitted ones, by blob and id
	puts   int
}

type blob struct {
	data     []byte
	modified time.Time
	version  string
	header   http.Header // its metadata
}

func newFake() *fake {
	return &fake{blobs: map[string]*blob{}, blocks: map[string]map[string][]byte{}}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path, ok := strings.CutPrefix(r.URL.Path, "/"+account+"/"+container)
	name := strings.ReplaceAll(strings.TrimPrefix(path, "/"), `\`, "/")
	query := r.URL.Query()
	switch comp := query.Get("comp"); {
	case r.Header.Get("X-Ms-Version") == "" || r.Header.Get("X-Ms-Date") == "":
		refuse(w, http.StatusBadRequest, "MissingRequiredHeader")
	case !ok || path != "" && path[0] != '/':
		refuse(w, http.StatusNotFound, "ContainerNotFound")
	case comp == "list":
		f.list(w, query.Get("prefix"), query.Get("marker"))
	case comp == "block":
		if f.blocks[name] == nil {
			f.blocks[name] = map[string][]byte{}
		}
		f.blocks[name][query.Get("blockid")] = body
		w.WriteHeader(http.StatusCreated)
	case comp == "blocklist":
		f.commit(w, r, name, body)
	case r.Method == http.MethodPut:
		f.put(w, r, name, body)
	default:
		f.blob(w, r, name)
	}
}

func (f *fake) put(w http.ResponseWriter, r *http.Request, name string, data []byte) {
	if r.Header.Get("X-Ms-Blob-Type") != "BlockBlob" && r.URL.Query().Get("comp") == "" {
		refuse(w, http.StatusBadRequest, "MissingRequiredHeader")
		return
	}
	if f.blobs[name] != nil && r.Header.Get("If-None-Match") == "*" {
		refuse(w, http.StatusConflict, "BlobAlreadyExists")
		return
	}
	f.puts++
	b := &blob{data: data, modified: time.Now(), version: fmt.Sprintf("\"0x%d\"", f.puts), header: http.Header{}}
	for key, values := range r.Header {
		if strings.HasPrefix(key, "X-Ms-Meta-") {
			b.header[key] = values
		}
	}
	f.blobs[name] = b
	delete(f.blocks, name) // Azure drops what was not committed
	w.WriteHeader(http.StatusCreated)
}

func (f *fake) commit(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	var list struct {
		Latest []string `xml:"Latest"`
	}
	if err := xml.Unmarshal(body, &list); err != nil {
		refuse(w, http.StatusBadRequest, "InvalidXmlDocument")
		return
	}
	var data []byte
	for _, id := range list.Latest {
		block, ok := f.blocks[name][id]
		if !ok {
			refuse(w, http.StatusBadRequest, "InvalidBlockList")
			return
		}
		data = append(data, block...)
	}
	f.put(w, r, name, data)
}

func (f *fake) blob(w http.ResponseWriter, r *http.Request, name string) {
	b := f.blobs[name]
	switch match := r.Header.Get("If-Match"); {
	case b == nil:
		refuse(w, http.StatusNotFound, "BlobNotFound")
		return
	case match != "" && match != b.version:
		refuse(w, http.StatusPreconditionFailed, "ConditionNotMet")
		return
	case r.Method == http.MethodDelete:
		delete(f.blobs, name)
		w.WriteHeader(http.StatusAccepted)
		return
	case strings.HasPrefix(r.Header.Get("Range"), "bytes=-"):
		r.Header.Del("Range")
	}
	maps.Copy(w.Header(), b.header)
	w.Header().Set("Etag", b.version)
	http.ServeContent(w, r, "", b.modified, strings.NewReader(string(b.data)))
}

// list pages by 100, fewer than are asked for, as the real server may.
func (f *fake) list(w http.ResponseWriter, prefix, marker string) {
	type item struct {
		Name     string
		Size     int    `xml:"Properties>Content-Length"`
		Modified string `xml:"Properties>Last-Modified"`
		Folder   string `xml:"Metadata>hdi_isfolder,omitempty"`
	}
	var page struct {
		XMLName xml.Name `xml:"EnumerationResults"`
		Blobs   []item   `xml:"Blobs>Blob"`
		Next    string   `xml:"NextMarker"`
	}
	from, _ := strconv.Atoi(marker)
	for i, name := range slices.Sorted(maps.Keys(f.blobs)) {
		if i < from || !strings.HasPrefix(name, prefix) {
			continue
		}
		if len(page.Blobs) == 100 {
			page.Next = strconv.Itoa(i)
			break
		}
		b := f.blobs[name]
		page.Blobs = append(page.Blobs, item{name, len(b.data), b.modified.UTC().Format(http.TimeFormat),
			b.header.Get("X-Ms-Meta-Hdi_isfolder")})
	}
	_ = xml.NewEncoder(w).Encode(page)
}

// refuse answers with an error of Azure's form.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants</Message></Error>", code)
}

func open(t *testing.T, container, prefix string, opts *azure.Options) *azure.Store {
	t.Helper()
	opts.Account, opts.Key, opts.Endpoint = account, "c2VjcmV0", opts.Endpoint+"/"+account
	s, err := azure.Open(container, prefix, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// service is Azure Blob Storage to the suite of faults.
var service = storetest.Service{
	Server: func(*testing.T) http.Handler { return newFake() },
	Open: func(t *testing.T, url string, attempts int, timeout time.Duration) store.Store {
		return open(t, container, "", &azure.Options{Endpoint: url, Attempts: attempts, Timeout: timeout})
	},
	Asks:      asks,
	Refuse:    refuse,
	PartBytes: 8 << 20,
	Lost: []storetest.Reply{
		{Status: http.StatusInternalServerError, Code: "OperationTimedOut"},
		{Status: http.StatusServiceUnavailable, Code: "ServerBusy"},
	},
	Later:  []storetest.Reply{{Status: http.StatusTooManyRequests, Code: "TooManyRequests"}},
	Denied: storetest.Reply{Status: http.StatusForbidden, Code: "AuthorizationPermissionMismatch"},
	Refusals: []storetest.Refusal{
		storetest.Refused(http.StatusForbidden, "AuthorizationFailure", store.ErrPermission,
			"Storage Blob Data Contributor"),
		storetest.Refused(http.StatusUnauthorized, "InvalidAuthenticationInfo", store.ErrPermission, ""),
		storetest.Refused(http.StatusPreconditionFailed, "ConditionNotMet", store.ErrExists, ""),
		storetest.Refused(http.StatusConflict, "BlobAlreadyExists", store.ErrExists, ""),
		storetest.Refused(http.StatusConflict, "AccountBeingCreated", nil, "AccountBeingCreated"),
		storetest.Refused(http.StatusNotFound, "ContainerNotFound", nil,
			`container "lake" of the account acme does not exist`),
		storetest.Refused(http.StatusBadRequest, "InvalidHeaderValue", nil, "InvalidHeaderValue"),
	},
	Unordered: `<EnumerationResults><Blobs>` + listed("b") + listed("a") + `</Blobs></EnumerationResults>`,
}

func listed(name string) string {
	return "<Blob><Name>" + name + "</Name><Properties><Content-Length>1</Content-Length>" +
		"<Last-Modified>Fri, 02 Jan 2026 03:04:05 GMT</Last-Modified></Properties></Blob>"
}

func asks(r *http.Request) (key string, step storetest.Step) {
	key = strings.TrimPrefix(r.URL.Path, "/"+account+"/"+container+"/")
	switch comp := r.URL.Query().Get("comp"); {
	case comp == "block":
		return key, storetest.StepPart
	case comp == "blocklist":
		return key, storetest.StepEnd
	case r.Method == http.MethodPut:
		return key, storetest.StepPut
	}
	return key, storetest.StepOther
}
