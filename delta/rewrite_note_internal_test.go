package delta

import (
	"math/rand/v2"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// TestRewriteNote_RandomFiles_PlacesAreWhereRowsWent cuts the rows of random files into new ones, and asks of every row
// where it went.
func TestRewriteNote_RandomFiles_PlacesAreWhereRowsWent(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r Rewrite
		var unread []*roaring64.Bitmap
		type place struct{ file, row int }
		var live []place // in the order in which they are written
		for f := range 1 + rng.IntN(4) {
			r.Removed = append(r.Removed, Add{Path: string(rune('a' + f))})
			unread = append(unread, roaring64.New())
			for row := range rng.IntN(12) {
				if rng.IntN(3) == 0 {
					unread[f].Add(uint64(row))
				} else {
					live = append(live, place{f, row})
				}
			}
		}
		went := map[place]place{}
		for left := live; len(left) > 0; {
			n := 1 + rng.IntN(len(left))
			var runs origins
			for i, p := range left[:n] {
				runs.run(p.file, int64(p.row), 1)
				went[p] = place{len(r.Added), i}
			}
			r.Added = append(r.Added, Add{Path: string(rune('x' + len(r.Added)))})
			r.Origins = append(r.Origins, runs)
			left = left[n:]
		}
		n := r.note()
		if r.Origins == nil {
			continue
		}
		for from, file := range n.From {
			f := int(file.Path[0] - 'a')
			for p, want := range went {
				if p.file != f {
					continue
				}
				places := n.place(from, unread[f], roaring64.BitmapOf(uint64(p.row)))
				for j, rows := range places {
					if got := rows.Contains(uint64(want.row)); got != (j == want.file) {
						t.Fatalf("seed %d: row %d of file %d is in %v of file %d, want it at %d of file %d", seed, p.row, f,
							rows, j, want.row, want.file)
					}
				}
			}
		}
	}
}

func TestRewriteNote_RowsOutOfOrder_None(t *testing.T) {
	for name, runs := range map[string][]Origin{
		"files by turns": {{File: 0, Rows: 2}, {File: 1, Rows: 2}, {File: 0, First: 2, Rows: 2}},
		"rows backwards": {{File: 0, First: 2, Rows: 2}, {File: 0, Rows: 2}},
	} {
		r := Rewrite{Removed: make([]Add, 2), Added: make([]Add, 1), Origins: [][]Origin{runs}}
		if n := r.note(); n != nil {
			t.Errorf("%s: got %+v, want none", name, n)
		}
	}
}

func FuzzRewriteNotes(f *testing.F) {
	f.Add([]byte(`{"rewrites":[{"from":[{"path":"a","rows":2,"deletionVector":{"storageType":"u","pathOrInlineDv":"ab",` +
		`"offset":1,"sizeInBytes":36,"cardinality":1}},{"path":"b","rows":1}],"to":[{"path":"c","rows":3}]}]}`))
	f.Add([]byte(`{"rewrites":[{"from":[{"path":"a","rows":9223372036854775807},{"rows":1}],"to":[{"rows":-1}]}]}`))
	f.Fuzz(func(t *testing.T, tag []byte) {
		rows, unread := roaring64.BitmapOf(0, 1, 1<<40), roaring64.BitmapOf(2)
		for _, n := range parseRewriteNotes(string(tag)) {
			if !n.fits(map[string]*fileChange{"a": {remove: &Remove{}}, "c": {add: &Add{Stats: `{"numRecords":3}`}}}) {
				continue
			}
			for i := range n.From {
				if places := n.place(i, unread, rows); places != nil && len(places) != len(n.To) {
					t.Fatalf("got places in %d files, want %d", len(places), len(n.To))
				}
			}
		}
	})
}
