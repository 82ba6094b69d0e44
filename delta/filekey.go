package delta

import (
	"net/url"
	"strconv"
	"strings"
)

// fileKey identifies a data file in a log: what an add and a remove of one file have in common. Spec: "Action
// Reconciliation": the path, decoded and in one form, and the deletion vector's id.
type fileKey struct {
	path, dv string
}

func (a *Add) key() fileKey { return fileKey{canonicalPath(a.Path), a.DeletionVector.id()} }

func (a *Remove) key() fileKey { return fileKey{canonicalPath(a.Path), a.DeletionVector.id()} }

// id is the vector's unique id, "" when there is none. Spec: "Deletion Vector Descriptor Schema", derived
// fields.
func (v *DeletionVector) id() string {
	switch {
	case v == nil:
		return ""
	case v.Offset == nil:
		return v.StorageType + v.PathOrInlineDv
	}
	return v.StorageType + v.PathOrInlineDv + "@" + strconv.Itoa(int(*v.Offset))
}

// canonicalPath decodes a path of the log once and brings the spellings of one absolute path together: "/x",
// "file:/x" and "file:///x" are the same file.
func canonicalPath(path string) string {
	path = decodePath(path)
	if rest, ok := strings.CutPrefix(path, "file:"); ok && strings.HasPrefix(rest, "/") {
		return "/" + strings.TrimLeft(rest, "/")
	}
	return path
}

// decodePath undoes the URI encoding of a path of the log. A path that is not encoded well stands for itself.
func decodePath(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	if decoded, err := url.PathUnescape(path); err == nil {
		return decoded
	}
	return path
}
