// Package freshet is the pipe: changes come from a Source lane by lane, pass Steps, and end in a Target, which
// commits them together with its progress, so that each change is there exactly once.
//
//	p := &freshet.Pipeline{Name: "bronze.clicks", Source: src, Steps: steps, Target: dst}
//	err := p.Run(ctx)
//
// Guarantees: what a Target holds of a lane is always a prefix of it; a change is committed in the very commit that
// moves the lane's progress past it; memory is bounded by Options. What the package does not do: it knows neither a
// broker nor a Delta table. Connectors (package kafka, package lake) implement Source and Target.
package freshet

import "fmt"

// Lane is an ordered, replayable sequence inside a source: a topic partition, a database's log. It is comparable.
type Lane struct {
	Origin   string // what the lane is part of: the topic's name
	OriginID string // the origin's identity for good: the topic's id; another id is another origin
	Name     string // the lane within its origin: the partition's number
}

// String is how people read it: "orders[3]".
func (l Lane) String() string { return fmt.Sprintf("%s[%s]", l.Origin, l.Name) }

// Position is lane and seq as people read them: "orders[3]@1042".
func (l Lane) Position(seq int64) string { return fmt.Sprintf("%s@%d", l, seq) }

// Progress is, for one table, the last seq it holds of each lane. A lane that is absent was never started.
type Progress map[Lane]int64
