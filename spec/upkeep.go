package spec

import (
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/lake"
)

// Upkeep is how the tables of a pipeline are looked after beside the stream. Zero fields mean the defaults of lake.
type Upkeep struct {
	Word        string  // "off": they are not; "on" or ""
	CPU         float64 // share of the processors' time
	Memory      int64
	Deleted     float64 // share of deleted rows
	SmallFiles  int64
	ClosedAfter time.Duration
	Retention   time.Duration // negative: no vacuum
}

func (u *Upkeep) shape() shape {
	return choice{scalar: word(&u.Word, "on", "off"), wanted: "on, off or a mapping", mapping: upkeepShape{u,
		object{keys: []key{
			{name: "cpu", doc: "The share of the time of all processors that upkeep may work. Default: 10%.",
				is: percentage(&u.CPU)},
			{name: "memory", doc: "What a file that is rewritten may hold in memory. Default: 64MiB.", is: sizeFrom(&u.Memory, 1<<20, "1MiB")},
			{name: "deleted", doc: "The share of deleted rows in a partition above which files are written without them. " +
				"Default: 5%.", is: percentage(&u.Deleted)},
			{name: "small_files", doc: "How many small files of about one size a partition may have to which rows come. " +
				"Default: 64; 32 in a table with a key.", is: whole(&u.SmallFiles, 2)},
			{name: "closed_after", doc: "How long after its last rows a partition counts as closed, so that it is packed into " +
				"as few files as its size asks for. Default: 1h.", is: duration(&u.ClosedAfter)},
			{name: "vacuum", doc: "For how long files stay that no version needs any more, at least 7d; off: for good. " +
				"Default: the table's delta.deletedFileRetentionDuration, and at least 7d.", is: retention(&u.Retention)},
		}}}}
}

// upkeepShape is the mapping, which says that upkeep is on.
type upkeepShape struct {
	into *Upkeep
	object
}

func (s upkeepShape) read(r *reader, n *node) {
	s.into.Word = "on"
	s.object.read(r, n)
}

// percentage is a share of more than nothing and up to all, as 10%.
func percentage(into *float64) shape {
	return one{json: map[string]any{"type": "string", "pattern": `^[0-9.]+ ?%$`, "examples": []string{"10%"}},
		parse: func(s string) (string, bool) {
			number, ok := strings.CutSuffix(s, "%")
			v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			*into = v / 100
			return "a percentage above 0% and up to 100%, such as 10%", ok && err == nil && v > 0 && v <= 100
		}}
}

// retention is a time of at least a week, or off, which is less than none.
func retention(into *time.Duration) shape {
	return one{json: map[string]any{"type": "string", "pattern": `^(off|([0-9.]+(s|m|h|d))+)$`,
		"examples": []string{"7d", "off"}},
		parse: func(s string) (string, bool) {
			const wanted = "a time of 7d or more, or off"
			if s == "off" {
				*into = -1
				return wanted, true
			}
			d, ok := parseDuration(s)
			*into = d
			return wanted, ok && d >= 7*24*time.Hour
		}}
}

// fallBack takes from the project what the pipeline leaves out.
func (u *Upkeep) fallBack(d *Upkeep) {
	fallback(&u.Word, d.Word)
	fallback(&u.CPU, d.CPU)
	fallback(&u.Memory, d.Memory)
	fallback(&u.Deleted, d.Deleted)
	fallback(&u.SmallFiles, d.SmallFiles)
	fallback(&u.ClosedAfter, d.ClosedAfter)
	fallback(&u.Retention, d.Retention)
}

// options are those of the target; nil: no upkeep.
func (u *Upkeep) options() *lake.UpkeepOptions {
	if u.Word == "off" {
		return nil
	}
	return &lake.UpkeepOptions{Share: u.CPU, MemoryBytes: u.Memory, Deleted: u.Deleted, SmallFiles: int(u.SmallFiles),
		ClosedAfter: u.ClosedAfter, Retention: u.Retention}
}
