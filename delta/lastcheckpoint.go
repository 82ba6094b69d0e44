package delta

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet-io/freshet/store"
)

// lastCheckpoint is the content of _last_checkpoint: a hint where the newest checkpoint is. Spec: "Last
// Checkpoint File".
type lastCheckpoint struct {
	Version       int64
	Size          int64 // actions
	SizeInBytes   int64
	NumOfAddFiles int64

	file *store.Object // of a V2 checkpoint that is written; what is read does not have it
}

// readLastCheckpoint returns the hint; ok is false when there is none that can be trusted.
func (t *Table) readLastCheckpoint(ctx context.Context) (c lastCheckpoint, ok bool, err error) {
	data, err := t.st.Get(ctx, lastCheckpointKey)
	if errors.Is(err, store.ErrNotFound) {
		return c, false, nil
	}
	if err != nil {
		return c, false, fmt.Errorf("read %s: %w", lastCheckpointKey, err)
	}
	c, ok = parseLastCheckpoint(data)
	return c, ok, nil
}

// parseLastCheckpoint reads the hint. One that is malformed, or whose checksum is wrong, is no hint.
func parseLastCheckpoint(data []byte) (c lastCheckpoint, ok bool) {
	r := &jsonReader{data: data}
	c.Version = -1
	checksum := ""
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "version":
			c.Version, err = r.int()
		case "size":
			c.Size, err = r.int()
		case "sizeInBytes":
			c.SizeInBytes, err = r.int()
		case "numOfAddFiles":
			c.NumOfAddFiles, err = r.int()
		case "checksum":
			checksum, err = r.str()
		default:
			err = r.skip()
		}
		return err
	})
	if err != nil || !r.end() || c.Version < 0 {
		return c, false
	}
	if checksum != "" {
		sum, err := checksumJSON(data)
		if err != nil || sum != checksum {
			return c, false
		}
	}
	return c, true
}

// text is the file's content.
func (c lastCheckpoint) text() ([]byte, error) {
	o := &objectWriter{}
	o.int("version", c.Version)
	o.int("size", c.Size)
	o.int("sizeInBytes", c.SizeInBytes)
	o.int("numOfAddFiles", c.NumOfAddFiles)
	if c.file != nil { // as Spark does, who would else look for a classic one
		o.object("v2Checkpoint", func(o *objectWriter) {
			o.str("path", strings.TrimPrefix(c.file.Key, logDir))
			o.int("sizeInBytes", c.file.Size)
			o.int("modificationTime", c.file.Modified.UnixMilli())
		})
	}
	sum, err := checksumJSON(append(slices.Clone(o.b), '}'))
	if err != nil {
		return nil, err
	}
	o.str("checksum", sum)
	return o.end(), nil
}

// checksumJSON is the MD5 of the canonical form of a JSON object, without its field "checksum": one
// "path=value" for each leaf, sorted. Spec: "JSON checksum".
func checksumJSON(data []byte) (string, error) {
	c := canonicalJSON{r: &jsonReader{data: data}}
	if err := c.value(""); err != nil {
		return "", err
	}
	slices.Sort(c.leaves)
	sum := md5.Sum([]byte(strings.Join(c.leaves, ",")))
	return hex.EncodeToString(sum[:]), nil
}

type canonicalJSON struct {
	r      *jsonReader
	leaves []string
}

// value takes the value at a path whose parts are joined by "+".
func (c *canonicalJSON) value(path string) error {
	switch c.r.peek() {
	case '{':
		return c.r.object(func(key []byte) error {
			if path == "" && string(key) == "checksum" {
				return c.r.skip()
			}
			return c.value(joinCanonical(path, quoteCanonical(key)))
		})
	case '[':
		i := 0
		return c.r.array(func() error {
			i++
			return c.value(joinCanonical(path, strconv.Itoa(i-1)))
		})
	case '"':
		text, err := c.r.text()
		c.leaves = append(c.leaves, path+"="+quoteCanonical(text))
		return err
	}
	raw, err := c.r.raw()
	c.leaves = append(c.leaves, path+"="+string(raw))
	return err
}

func joinCanonical(path, part string) string {
	if path == "" {
		return part
	}
	return path + "+" + part
}

// quoteCanonical is a string in quotes, all bytes escaped but letters, digits and "-._~".
func quoteCanonical(s []byte) string {
	const digits = "0123456789ABCDEF"
	b := []byte{'"'}
	for _, c := range s {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b = append(b, c)
		default:
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(append(b, '"'))
}
