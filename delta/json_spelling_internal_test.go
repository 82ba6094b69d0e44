package delta

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// What a reader remembers of the actions before must not change what it makes of the next.
func TestParseLog_ActionsSpelledInManyWays_AreReadAsIfAlone(t *testing.T) {
	fields := []string{`"path":"p%d"`, `"size": %d`, `"modificationTime" :%d`, `"stats":"{\"numRecords\":%d}"`, `"dataChange":true`,
		`"partitionValues":{"a":"%d"}`, `"\u0074ags":{"a":"%d"}`, `"baseRowId":%d`, `"not known":[%d]`, `"":%d`,
		`"a key of so many bytes that none keeps it in mind":%d`}
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var all strings.Builder
		var want []Action
		order := rnd.Perm(len(fields))
		for i := range 20 {
			if rnd.IntN(3) == 0 {
				order = rnd.Perm(len(fields))
			}
			var body []string
			for _, f := range order[:4+rnd.IntN(2)] {
				text := fields[f]
				if strings.Contains(text, "%d") {
					text = fmt.Sprintf(text, i)
				}
				body = append(body, text)
			}
			kind := []string{"add", "remove", " add"}[rnd.IntN(3)]
			action := fmt.Sprintf("{\"%s\":{\"path\":\"x\",%s}}\n", kind, strings.Join(body, []string{",", " , "}[rnd.IntN(2)]))
			alone, err := parseAll(action)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, alone...)
			all.WriteString(action)
		}
		got, err := parseAll(all.String())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: got %+v, %v, want %+v of\n%s", seed, got, err, want, all.String())
		}
	}
}
