package azure

import (
	"context"
	"encoding/xml"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/internal/rest"
)

const pageBlobs = "5000"

// List yields blobs in key order. See store.Store. One request brings up to 5000 of them. Azure cannot begin
// behind a key: with after, the pages before it are read and passed over. So are folders and keys that are no valid
// ones.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			return // no key can be both
		}
		last, page := after, ""
		for {
			found, err := s.page(ctx, prefix, page)
			if err != nil {
				yield(store.Object{}, err)
				return
			}
			for i := range found.Blobs {
				b := &found.Blobs[i]
				key, below := strings.CutPrefix(b.Name.text(), s.prefix)
				if !below || key <= after || b.folder() || checkKey(key) != nil {
					continue
				}
				o, err := object(key, b.Size, b.Modified)
				if err == nil && key <= last {
					err = fmt.Errorf("list %s: %s lists %q behind %q, not in the order of keys", prefix, s.URL(),
						key, last)
				}
				if last = key; !yield(o, err) || err != nil {
					return
				}
			}
			if page = found.Next; page == "" {
				return
			}
		}
	}
}

// listing is the answer of List Blobs.
type listing struct {
	Blobs []blob `xml:"Blobs>Blob"`
	Next  string `xml:"NextMarker"`
}

type blob struct {
	Name     name   `xml:"Name"`
	Size     string `xml:"Properties>Content-Length"`
	Modified string `xml:"Properties>Last-Modified"`
	Kind     string `xml:"Properties>ResourceType"` // "directory" with a hierarchical namespace
	IsFolder string `xml:"Metadata>hdi_isfolder"`
}

func (b *blob) folder() bool { return b.Kind == "directory" || b.IsFolder == "true" }

// name is a blob's name, URL-encoded where XML could not hold it.
type name struct {
	Encoded bool   `xml:"Encoded,attr"`
	Text    string `xml:",chardata"`
}

func (n *name) text() string {
	if plain, err := url.PathUnescape(n.Text); n.Encoded && err == nil {
		return plain
	}
	return n.Text
}

func (s *Store) page(ctx context.Context, prefix, marker string) (*listing, error) {
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {s.prefix + prefix},
		"maxresults": {pageBlobs}, "include": {"metadata"}}
	if marker != "" {
		query.Set("marker", marker)
	}
	a, err := s.client.Do(ctx, &rest.Call{Verb: "list", Key: prefix, Method: http.MethodGet,
		URL: s.base + "?" + query.Encode()})
	if err != nil {
		return nil, err
	}
	var found listing
	if err := xml.Unmarshal(a.Body, &found); err != nil {
		return nil, fmt.Errorf("list %s: the server's answer is no XML: %w", prefix, err)
	}
	return &found, nil
}
