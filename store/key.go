package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxKeyBytes is the longest key that S3 takes.
const maxKeyBytes = 1024

// CheckKey reports why a key is not one that every Store can hold, and nil when it is: see Store for the
// rules.
func CheckKey(key string) error {
	switch {
	case key == "":
		return badKey(key, "is empty")
	case key[0] == '/':
		return badKey(key, "begins with a slash")
	case len(key) > maxKeyBytes:
		return badKey(key, fmt.Sprintf("has %d bytes, more than %d", len(key), maxKeyBytes))
	case strings.IndexByte(key, 0) >= 0:
		return badKey(key, "holds a NUL byte")
	case !utf8.ValidString(key):
		return badKey(key, "is not UTF-8")
	}
	for part := range strings.SplitSeq(key, "/") {
		switch part {
		case "":
			return badKey(key, "has an empty part between slashes or ends with one")
		case ".", "..":
			return badKey(key, fmt.Sprintf("has the part %q", part))
		}
	}
	return nil
}

func badKey(key, why string) error {
	return fmt.Errorf("object key %q %s", key, why)
}

// outOfReach reports whether no key can both begin with prefix and be greater than after.
func outOfReach(prefix, after string) bool {
	return after > prefix && !strings.HasPrefix(after, prefix)
}
