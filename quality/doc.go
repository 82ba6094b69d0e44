// Package quality compares tables with where their rows come from: row by row, while both change.
//
//	result, err := quality.Verify(ctx, origin, table, &quality.Options{Share: 0.05})
//
// Guarantees:
//
//   - No false alarm: a row is called wrong only when it is proven that the table was wrong at a moment of the source's. How is
//     in docs/decisions/verify-while-both-change.md.
//   - A row that is wrong and stays so is found, if its key is among those that are compared.
//   - Nothing is written to either side, but what Options.Mend does. What does not fit in memory is in temporary files that have no name, so that nothing is left of
//     a process that is killed.
//
// Non-goals: it does not say why a row is wrong, and writes no row itself: it has the source send what is wrong again (mend.go).
package quality
