package expr

import (
	"fmt"
	"strings"
)

// suggest returns a hint that names the candidates that were perhaps meant, "" when none is near.
func suggest(found string, candidates []string) string {
	found = strings.ToLower(found)
	limit := max(1, len(found)/3)
	best, nearest := limit+1, []string(nil)
	for _, c := range candidates {
		d := editDistance(found, strings.ToLower(c), limit)
		if d < best {
			best, nearest = d, nil
		}
		if d == best && d <= limit && len(nearest) < 3 {
			nearest = append(nearest, fmt.Sprintf("%q", c))
		}
	}
	if len(nearest) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(nearest, " or ") + "?"
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours; beyond limit it may say
// limit+1.
func editDistance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > limit || len(y)-len(x) > limit {
		return limit + 1
	}
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
			replace := rows[i-1][j-1]
			if x[i-1] != y[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
