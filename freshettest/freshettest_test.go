package freshettest_test

import (
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

func TestSource_Suite_Holds(t *testing.T) {
	freshettest.RunSource(t, func(t *testing.T) freshettest.SourceHarness {
		o := freshettest.NewOrigin(3)
		for i, l := range o.Lanes() {
			for n := range 10 * i {
				o.Append(l, int64(n%3), freshettest.RecordKind(max(0, n%5-2)))
			}
		}
		rows, rejects := o.Want()
		return freshettest.SourceHarness{
			New: func(*testing.T) freshet.Source {
				return freshettest.NewSource(o, freshettest.SourceOptions{Seed: 1, Bounded: true})
			},
			Rows: rows, Rejects: rejects,
		}
	})
}

func TestTarget_Suite_Holds(t *testing.T) {
	freshettest.RunTarget(t, func(*testing.T) freshettest.TargetHarness {
		tables := freshettest.NewTables()
		return freshettest.TargetHarness{
			New:     func(*testing.T) freshet.Target { return freshettest.NewTarget(tables, nil) },
			Rows:    func(_ *testing.T, table string) []freshettest.Row { return tables.Rows(table) },
			Rejects: func(_ *testing.T, table string) []freshettest.Row { return tables.Rejects(table) },
		}
	})
}
