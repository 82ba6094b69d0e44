package lake_test

import (
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

func TestAppend_TargetSuite_Holds(t *testing.T) {
	for name, opts := range map[string]*lake.TargetOptions{
		"one origin": nil, "many origins": {ManyOrigins: true}, "partitioned": {PartitionBy: []string{"lane"}},
	} {
		t.Run(name, func(t *testing.T) {
			freshettest.RunTarget(t, func(*testing.T) freshettest.TargetHarness {
				w := newWorld()
				return freshettest.TargetHarness{
					New:     func(*testing.T) freshet.Target { return w.target(opts) },
					Rows:    w.rows,
					Rejects: w.rejects,
				}
			})
		})
	}
}
