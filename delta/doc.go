// Package delta reads and writes Delta Lake tables in any store.Store: it is a library of its own, which needs no Spark
// and no other part of Freshet. Its files are the headings of Delta's PROTOCOL.md.
//
//	_delta_log/*.json, checkpoints ──load──▶ Snapshot ──Files──▶ adds ──Scan──▶ record batches
//	                 └──Changes──▶ rows inserted, updated and deleted, version by version
//	record batches ──Writer──▶ data files ──▶ Transaction ──Commit──▶ the next version, put if absent
//
// Guarantees:
//   - A version is written by one writer, whole or not at all. A commit that lost the race is built upon the winners if
//     they have nothing to do with each other, and is a *ConflictError otherwise.
//   - Transaction.ExpectTxn is compare-and-set: a commit lands only if the progress of an application is exactly what
//     its writer believed, on the first try and after every lost race. This is what makes writing exactly once.
//   - A put whose answer is lost is put again until its fate is known; if time runs out first, the error says so
//     (store.ErrAmbiguous), and the files must be left alone.
//   - Opening a table reads neither its list of files nor its whole log; a later look reads the new commits. A list of
//     files streams: memory follows the commits since the last checkpoint, not the table.
//   - A broken or missing checkpoint, or a wrong _last_checkpoint, costs time and never rows.
//   - Tables get the lowest protocol that their schema and properties need. What a table uses and this package does
//     not know is an *UnsupportedError that names it, never a guess.
//   - Numbers stay exact: no decimal and no 64-bit integer passes through a float.
//   - Rows that a transaction deletes are deleted once, whoever else deletes or rewrites in the same files meanwhile; rows
//     that it read and that changed are a conflict, others are not.
//   - Delete, Update, Merge and Write change rows by deletion vectors where the table has them, else by rewriting files.
//     Before they commit they count: what left the files is what was deleted and updated, what was written is what was
//     inserted, updated and copied. After a lost race that concerns their rows they run again.
//
// What a table asks of its rows (NOT NULL, CHECK constraints, invariants, generated and identity columns, defaults) the
// Writer keeps to: expressions are Spark's SQL (expr.ParseSpark), and one that is not understood keeps the table from
// being written, with an error that names it.
//
// Non-goals, in this version: writing variants, tables whose commits a catalog arbitrates, Spark's DynamoDB protocol on
// S3.
//
// Append to a table, as the writer of partition 3 of a topic whose last offset in the table is 41:
//
//	table, err := delta.Open(ctx, st, nil)
//	snap, err := table.Snapshot(ctx)
//	w, err := delta.NewWriter(st, snap.Metadata(), snap.Protocol(), nil)
//	err = w.Write(ctx, rows)
//	files, err := w.Close(ctx)
//	tx := table.Begin(snap, nil)
//	tx.Add(files...)
//	tx.ExpectTxn("orders-3", 41, true)
//	tx.AddTxn("orders-3", 142)
//	tx.BlindAppend(true)
//	result, err := tx.Commit(ctx)
package delta
