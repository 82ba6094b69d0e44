package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
)

// one is a scalar: parse takes its text, or says what is wanted instead.
type one struct {
	parse  func(text string) (wanted string, ok bool)
	json   map[string]any
	secret bool
	keep   *node // set: takes the place of the value
}

func (o one) read(r *reader, n *node) {
	if n.open {
		return
	}
	if o.secret {
		n.quiet = true
		if len(n.text) > 2 {
			r.secrets = append(r.secrets, n.text)
		}
	}
	if n.kind != scalar {
		wanted, _ := o.parse("")
		if wanted == "" {
			wanted = "one value"
		}
		r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted %s", r.found(n), wanted)
		return
	}
	if o.keep != nil {
		*o.keep = *n
	}
	if wanted, ok := o.parse(n.text); !ok {
		r.add(n.where, freshet.CodeBadValue, "", "found %s, wanted %s", r.found(n), wanted)
	}
}

// schema is a copy, since descriptions are added to it.
func (o one) schema() map[string]any {
	s := map[string]any{}
	for k, v := range o.json {
		s[k] = v
	}
	return s
}

var scalarTypes = []string{"string", "number", "boolean"}

// text is any text that is not empty.
func text(into *string) shape {
	return one{json: map[string]any{"type": scalarTypes}, parse: func(s string) (string, bool) {
		*into = s
		return "a text", s != ""
	}}
}

// secret is a text that is never shown.
func secret(into *Secret) shape {
	return one{secret: true, json: map[string]any{"type": scalarTypes}, parse: func(s string) (string, bool) {
		into.text = s
		return "a text", s != ""
	}}
}

// word is one of a few words.
func word(into *string, words ...string) shape { return laterWord(into, nil, words...) }

// laterWord is one of a few words; others belong to parts that this version does not have.
func laterWord(into *string, later []string, words ...string) shape {
	return wordShape{into, later, words}
}

type wordShape struct {
	into  *string
	later []string
	words []string
}

func (w wordShape) read(r *reader, n *node) {
	switch {
	case n.open:
	case n.kind == scalar && slices.Contains(w.words, n.text):
		*w.into = n.text
	case n.kind == scalar && slices.Contains(w.later, n.text):
		r.add(n.where, freshet.CodeUnavailable, "this version has "+join(w.words),
			"%q: this version does not have it", n.text)
	default:
		fix := ""
		if near := nearest(n.text, w.words); n.kind == scalar && len(near) > 0 {
			fix = fmt.Sprintf("did you mean %q?", near[0])
		}
		r.add(n.where, freshet.CodeBadValue, fix, "found %s, wanted %s", r.found(n), strings.Join(w.words, " or "))
	}
}

func (w wordShape) schema() map[string]any { return map[string]any{"enum": w.words} }

// flag is true or false.
func flag(into *bool) shape {
	return one{json: map[string]any{"type": "boolean"}, parse: func(s string) (string, bool) {
		*into = s == "true"
		return "true or false", s == "true" || s == "false"
	}}
}

// whole is a whole number of at least low; underscores may group its digits.
func whole(into *int64, low int64) shape {
	return one{json: map[string]any{"type": "integer", "minimum": low}, parse: func(s string) (string, bool) {
		v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
		*into = v
		return fmt.Sprintf("a whole number of at least %d", low), err == nil && v >= low
	}}
}

// duration is a time with its unit, longer than nothing.
func duration(into *time.Duration) shape {
	return one{json: map[string]any{"type": "string", "pattern": `^([0-9.]+(ms|s|m|h|d))+$`,
		"examples": []string{"30s", "5m"}},
		parse: func(s string) (string, bool) {
			d, ok := parseDuration(s)
			*into = d
			return "a time with a unit, such as 500ms, 30s, 5m, 2h or 7d", ok && d > 0
		}}
}

func parseDuration(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(24*time.Hour)), err == nil && n < 36500
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// size is a number of bytes with its unit, at least one.
func size(into *int64) shape { return sizeFrom(into, 1, "1B") }

// sizeFrom is a size of at least so many bytes.
func sizeFrom(into *int64, least int64, text string) shape {
	wanted := "a size with a unit, such as 64KiB, 128MiB or 1GB"
	if least > 1 {
		wanted += ", of at least " + text
	}
	return one{json: map[string]any{"type": "string", "pattern": `^[0-9.]+ ?([kMGT]i?)?B$`,
		"examples": []string{"128MiB", "1GB"}},
		parse: func(s string) (string, bool) {
			v, ok := parseSize(s)
			*into = v
			return wanted, ok && v >= least
		}}
}

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"kiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a size with a unit, such as 64KiB, 128MiB or 1GB.
func ParseSize(s string) (int64, error) {
	v, ok := parseSize(s)
	if !ok || v <= 0 {
		return 0, fmt.Errorf("found %q, wanted a size with a unit, such as 64KiB, 128MiB or 1GB", s)
	}
	return v, nil
}

func parseSize(s string) (int64, bool) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		return int64(v * u.bytes), err == nil && v*u.bytes < math.MaxInt64/2
	}
	return 0, false
}

// Share is a part of all records over some time: "1%", "1% per 5m".
type Share struct {
	Part   float64 // 0 to 1
	Window time.Duration
}

func share(into *Share) shape {
	return one{json: map[string]any{"type": "string", "pattern": `^[0-9.]+ ?%( per [0-9]+(s|m|h|d))?$`,
		"examples": []string{"1%", "1% per 5m"}},
		parse: func(s string) (string, bool) {
			const wanted = "a percentage, such as 1% or 1% per 5m"
			part, window, timed := strings.Cut(s, " per ")
			number, percent := strings.CutSuffix(strings.TrimSpace(part), "%")
			v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			into.Part = v / 100
			if !percent || err != nil || !(v >= 0 && v <= 100) { // also NaN
				return wanted, false
			}
			if timed {
				d, ok := parseDuration(strings.TrimSpace(window))
				into.Window = d
				return wanted, ok && d > 0
			}
			return wanted, true
		}}
}

// ParseTime reads a moment as people write it: RFC 3339, or a shorter form of it, which then means UTC.
func ParseTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02T15:04",
		"2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("found %q, wanted a time such as 2026-01-31T12:00:00Z", s)
}

// Text is a text that knows its place, for messages.
type Text struct {
	Value string
	at    *node
}

// String is the text.
func (t Text) String() string { return t.Value }

// placed is a text whose place is kept.
func placed(into *Text) shape {
	into.at = new(node)
	return one{keep: into.at, json: map[string]any{"type": scalarTypes}, parse: func(s string) (string, bool) {
		into.Value = s
		return "a text", s != ""
	}}
}
