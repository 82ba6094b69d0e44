package delta

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// located is where a file of the table lies.
type located struct {
	st  store.Store
	key string
}

// locate finds the file that an action names: by a path relative to the table, or by an absolute one, which may lead out
// of the table's folder, as those of shallow clones do. Errors: *UnsupportedError for a file outside when OpenOptions
// name no way there, errors of OpenOptions.Outside.
func (s *Snapshot) locate(ctx context.Context, name string) (located, error) {
	t := s.table
	key, inside := t.within(name)
	if inside {
		return located{t.st, key}, nil
	}
	if t.outside == nil {
		return located{}, &UnsupportedError{Feature: "the file " + key + ", which is outside of the table's folder"}
	}
	st, err := t.outside(ctx, key)
	if err != nil {
		return located{}, fmt.Errorf("reach %s, which is outside of the table's folder: %w", key, err)
	}
	rest, ok := strings.CutPrefix(absolute(st.URL(), key), rootOf(st.URL())+"/")
	if !ok || store.CheckKey(rest) != nil {
		return located{}, fmt.Errorf("reach %s, which is outside of the table's folder: the store given for it, %s, "+
			"does not hold it", key, st.URL())
	}
	return located{st, rest}, nil
}

// within returns the key of a file in the table's folder; for a file outside of it, its URL.
func (t *Table) within(name string) (key string, inside bool) {
	root := rootOf(t.st.URL())
	key = decodePath(name)
	relative := !strings.HasPrefix(key, "/") && !strings.Contains(key, "://") && !strings.HasPrefix(key, "file:")
	if relative && store.CheckKey(key) == nil {
		return key, true
	}
	if relative {
		key = root + "/" + key
	}
	key = absolute(t.st.URL(), key)
	if rest, ok := strings.CutPrefix(key, root+"/"); ok {
		return rest, true
	}
	return key, false
}

// absolute brings the spellings of a URL together: a bare path is in the file system or bucket of base, "file:/x" is
// "file:///x", s3a and s3n are s3, abfs is abfss, and what climbs up by ".." is where it gets to.
func absolute(base, name string) string {
	scheme, rest, ok := strings.Cut(name, "://")
	switch {
	case !ok && strings.HasPrefix(name, "file:"):
		scheme, rest = "file", "/"+strings.TrimLeft(name[len("file:"):], "/")
	case !ok:
		scheme, rest, _ = strings.Cut(base, "://")
		host, _, _ := strings.Cut(rest, "/")
		rest = host + name
	}
	switch scheme {
	case "s3a", "s3n":
		scheme = "s3"
	case "abfs":
		scheme = "abfss"
	}
	host, file, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + path.Clean("/"+file)
}

// rootOf is a store's URL in the form that absolute gives.
func rootOf(url string) string {
	if !strings.Contains(url, "://") {
		return url
	}
	return strings.TrimSuffix(absolute(url, url), "/")
}

// absent explains that a file which the log names is not there.
func absent(err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return &absentError{err}
}

// absentError is ErrMissingFiles of one file, which is named where it is wrapped, and the store's error.
type absentError struct{ err error }

func (e *absentError) Error() string {
	return "the file is not there, although the log names it; perhaps a vacuum has taken it"
}

func (e *absentError) Unwrap() []error { return []error{ErrMissingFiles, e.err} }
