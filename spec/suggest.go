package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// suggest is the remedy for a name that is not there: the nearest of those that are.
func suggest(name string, names []string) string {
	near := nearest(name, names)
	switch {
	case len(near) > 0:
		return fmt.Sprintf("did you mean %q?", near[0])
	case len(names) == 0:
		return ""
	case len(names) == 1:
		return "there is " + names[0]
	}
	return "there are " + join(names)
}

// Nearest are the names that a mistyped one may have meant, the likeliest first, at most three; empty when
// none is near.
func Nearest(name string, names []string) []string { return nearest(name, names) }

// nearest are the names that a mistyped one may have meant, the likeliest first.
func nearest(name string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	var near []candidate
	for _, n := range names {
		far := distance(strings.ToLower(name), strings.ToLower(n))
		if far <= max(1, (len(name)+1)/3) {
			near = append(near, candidate{n, far})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.far, b.far) })
	var out []string
	for _, c := range near[:min(3, len(near))] {
		out = append(out, c.name)
	}
	return out
}

// distance is the least number of characters to insert, delete, replace or swap with a neighbour.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			differs := 1
			if x[i-1] == y[j-1] {
				differs = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differs)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}
