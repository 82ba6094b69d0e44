// Package docs holds the pages on error codes, for `freshet explain`.
//
//	page, ok := docs.Page("FRE-2101")
//
// Each code has one page, codes/CODE.md, whose first line is "# CODE title". The other documents of the
// folder are for people, and are not part of the package.
package docs

import (
	"embed"
	"strings"
)

//go:embed codes/*.md
var pages embed.FS

// Page returns the page on a code, as Markdown; ok is false when there is none.
func Page(code string) (page string, ok bool) {
	data, err := pages.ReadFile("codes/" + code + ".md")
	return string(data), err == nil
}

// Codes returns the codes that have a page, in order.
func Codes() []string {
	entries, err := pages.ReadDir("codes")
	if err != nil { // it is part of the binary
		panic(err)
	}
	var codes []string
	for _, e := range entries {
		codes = append(codes, strings.TrimSuffix(e.Name(), ".md"))
	}
	return codes
}
