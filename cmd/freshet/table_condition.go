package main

import (
	"fmt"
	"strings"

	"github.com/freshet-io/freshet/lake"
)

// shownNeeds bounds how many needs are listed for people.
const shownNeeds = 10

// need is one thing that upkeep would do, for machines.
type need struct {
	Kind      string `json:"kind"`
	Partition string `json:"partition"`
	Files     int    `json:"files"`
	Bytes     int64  `json:"bytes"`
	Why       string `json:"why"`
}

// conditionFields tell how the files of a table stand, and what upkeep would do.
func conditionFields(c *lake.Condition) record {
	share := 0.0
	if c.Rows > 0 {
		share = float64(c.DeletedRows) / float64(c.Rows)
	}
	needs, lines := []need{}, []string{}
	for _, n := range c.Needs {
		needs = append(needs, need{string(n.Kind), n.Partition, n.Files, n.Bytes, n.Why})
		if len(lines) < shownNeeds {
			lines = append(lines, needText(n))
		}
	}
	if more := len(needs) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %s more", number(int64(more))))
	}
	if len(lines) == 0 {
		lines = append(lines, "nothing to do")
	}
	if c.Clustered {
		lines = append(lines, "its rows are laid out by columns: `freshet table optimize` does that")
	}
	return record{
		{name: "files", value: c.Files, text: number(c.Files)},
		{name: "size", value: c.Bytes, text: bytesText(c.Bytes)},
		{name: "small_files", value: c.SmallFiles, text: fmt.Sprintf("%s below %s", number(c.SmallFiles),
			bytesText(c.TargetFileBytes/2))},
		{name: "deleted_share", value: share, text: fmt.Sprintf("%.1f %% of %s", 100*share, plural(c.Rows, "row"))},
		{name: "upkeep", value: needs, text: strings.Join(lines, "\n")},
	}
}

func needText(n lake.Need) string {
	text := string(n.Kind)
	if n.Partition != "" {
		text += " " + n.Partition
	}
	if n.Files > 0 {
		text += fmt.Sprintf(", %s of %s", plural(int64(n.Files), "file"), bytesText(n.Bytes))
	}
	return text + ": " + n.Why
}
