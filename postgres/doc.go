// Package postgres reads tables of a PostgreSQL database: what the catalog says of them, their rows, and the log of their
// changes.
//
// Source is a freshet.Source of the log, which it reads by logical replication with the plugin pgoutput: one lane a database,
// the seq is where in the log a transaction ends. All changes of a transaction share that seq. The rows that a table has
// already are a lane of their own, whose seqs are the chunks that are done.
//
//	src, err := postgres.NewSource("postgres://freshet@db/shop", &postgres.Options{Slot: "shop"})
//	p := &freshet.Pipeline{Name: "prod.shop", Source: src, Target: dst}
//
// Guarantees:
//
//   - The server may forget its log up to what every table holds, never more: Ack. Where a table goes on is asked from
//     downstream, and a slot that begins behind that is a gap (CodeGap), as a missing or invalid one is.
//   - Nothing of a transaction is delivered before its commit has arrived; of one that is larger than a batch, the parts follow
//     each other (freshet.Batch.Unfinished). What savepoints undid is never delivered.
//   - The server hears of us in time, whatever downstream does.
//   - Memory is bounded by Options.MemoryBytes, whatever the size and number of transactions: the largest go to disk.
//   - Of a table's rows and their changes none is returned twice and none is missing, whatever ends the process in between, if
//     what is returned is committed together as freshet.Batch.Unfinished says.
//   - Changes of tables are in order with the rows, and what follows is chosen: Options.DDL. What a column cannot hold since its type
//     was changed goes to quarantine.
//   - Values that the log leaves out are marked as not sent, and never null.
//
// How a change travels:
//
//	stream.go                        source.go, feed.go
//	receive ─▶ assemble ─▶ arrivals ─▶ decode into the columns of its table ─▶ batches of all tables up to one place
//	history.go                         ▲ each waits for the chunks that do not show it
//	plan ─▶ open ─▶ read chunks ───────┴─▶ batches of the table's history
//
// Non-goals: it does not take part in two-phase commits.
package postgres
