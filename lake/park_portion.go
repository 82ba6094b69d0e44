package lake

import (
	"fmt"

	freshet "github.com/freshet-io/freshet"
)

// What is parked is taken up in the order in which it came, over all lanes: a row of a lane may stand behind one of another. It is
// cut into commits where the table could have been committed as it came:
//
//	lane A   │ 11 ─ 12 ─      15, part 0 ─ part 1 │ 16 ─ 17 of a transaction │
//	lane B   │         40 ─ 41                    │         42 of it         │

// portion is how many of the parked batches are taken up at once: about so many bytes of them, one at least.
func portion(all []parked, bytes int64) int {
	whole := make([]bool, len(all)+1) // whether the table may be committed behind the first so many
	whole[len(all)] = true
	broken, next := 0, map[freshet.Lane]bool{} // lanes whose next batch is not the first of its seq
	for i := len(all) - 1; i > 0; i-- {
		b := &all[i]
		if was, is := next[b.lane], b.part > 0; was != is {
			next[b.lane] = is
			broken += map[bool]int{true: 1, false: -1}[is]
		}
		whole[i] = broken == 0 && !all[i-1].partial
	}
	n := 0
	for sum := all[0].bytes; n == 0 || n < len(all) && (sum <= bytes || !whole[n]); {
		if n++; n < len(all) {
			sum += all[n].bytes
		}
	}
	return n
}

// within are those of the parked batches that the drainer is to take up; one that reaches further is shortened.
func (d *drainer) within(all []parked) []parked {
	if d.upto == nil {
		return all
	}
	var some []parked
	for _, b := range all {
		end := d.upto[b.lane]
		if b.after >= end && b.last > end {
			continue
		}
		if b.last > end {
			b.last = end
		}
		some = append(some, b)
	}
	return some
}

// checkBeside fails when the table, which stands at, has come further in a lane beside one of the batches than what was parked: a commit
// of a process that is gone has landed since, and shows less than what was left out. It cannot be read again from an
// origin that has forgotten what is parked.
func checkBeside(table string, some []parked, at freshet.Progress) error {
	for _, b := range some {
		for _, beside := range b.beside {
			if have, known := at[beside.Lane]; known && have > beside.Seq {
				return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: table,
					Msg: fmt.Sprintf("while changes of it were parked, a process that was gone has brought %s to %d, wanted at most %d: "+
						"what was parked of %s behind %d leaves out changes for rows that were read before them",
						beside.Lane, have, beside.Seq, b.lane, b.after),
					Fix: "load the table again: freshet pipeline resync … --table " + table}
			}
		}
	}
	return nil
}
