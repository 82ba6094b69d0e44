// Package docs carries the pages that the command shows offline: one on each error code. The guides beside them are for
// reading where they are.
//
//	text, ok := docs.Code("FRE-1003")
package docs

import (
	"embed"
	"slices"
	"strings"
)

//go:embed codes/*.md
var pages embed.FS

// Code returns the page on an error code, as Markdown; ok is false when there is none.
func Code(code string) (text string, ok bool) {
	b, err := pages.ReadFile("codes/" + code + ".md")
	return string(b), err == nil
}

// Codes lists the codes that have a page, in ascending order.
func Codes() []string {
	entries, err := pages.ReadDir("codes")
	if err != nil {
		return nil // the folder is part of the binary
	}
	codes := make([]string, len(entries))
	for i, e := range entries {
		codes[i] = strings.TrimSuffix(e.Name(), ".md")
	}
	slices.Sort(codes)
	return codes
}
