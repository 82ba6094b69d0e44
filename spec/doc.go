// Package spec reads pipeline files and project files, finds everything that is wrong with them, and builds
// the pipelines that they describe. It is the one place that knows the list of connectors, steps and stores.
//
//	project, err := spec.OpenProject(".", "", false)
//	p, err := spec.Load(project, "pipelines/orders.yaml", nil)   // Findings: file:line:col, code, remedy
//	b := spec.NewBuilder(nil)
//	defer b.Close()
//	pipe, err := b.Build(ctx, p)
//	err = pipe.Run(ctx)
//
// Guarantees: a key that is not known is a fault, and so is one of a part that this version does not have;
// nothing is ignored. All faults of a file are found at once. Variables are replaced after parsing and in
// values only, so that they cannot change the file's structure. Secrets are in no message. The keys that are
// read, the faults that are found and the JSON Schema come from one description of the format (the shapes),
// so that they cannot differ.
//
// Non-goals: it reaches no broker and no table; what only they can tell is found when the pipeline runs.
package spec
