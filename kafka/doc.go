// Package kafka reads topics of a Kafka broker as a freshet.Source: one lane a partition, the seq is the
// record's offset.
//
//	src, err := kafka.NewSource([]string{"localhost:9092"}, kafka.Topics{Names: []string{"orders"}},
//		kafka.RouteTo("bronze.orders"), jsonFormat, &kafka.Options{Group: "prod.orders"})
//	p := &freshet.Pipeline{Name: "prod.orders", Source: src, Target: dst}
//
// Guarantees:
//
//   - Where a partition goes on is asked from downstream, before its first fetch. The consumer group decides
//     who reads which partition and nothing else: its offsets are written for lag tools (Ack) and never read
//     to resume.
//   - The start of a partition is recorded downstream before anything of it is delivered. Partitions that the
//     table does not know, of a topic it knows, start at their beginning. A partition that the group knows
//     and the table does not is an error (CodeForgotten).
//   - Every offset is accounted for: rows, a reject, or dropped for good (a tombstone, a transaction marker,
//     an aborted record, a hole that compaction left). Batches of a lane adjoin.
//   - Only committed records are delivered, unless Options.ReadUncommitted.
//   - Nothing is jumped over. Retention that has passed our offset, a log that is shorter than what we have
//     read (CodeGap), a topic that was made again under its name (CodeOriginChanged) end the run with an
//     error that names it.
//   - When a partition goes to another process, what was read of it is committed first (Downstream.Release).
//   - Outages of the broker are waited out, with one warning an outage.
//   - Memory is bounded by Options.FetchMemory, whatever the topic's compression.
//
// How a record travels:
//
//	reader goroutine           workers              the caller's goroutine
//	poll, cut into jobs ──┬──▶ decode a job ──┐
//	of one lane           └──▶ the queue, in order ──▶ Next waits for the job at its head
//
// The queue keeps the order of the polls, so each lane's order, while jobs are decoded in parallel.
//
// Non-goals: it does not produce, it does not decode (a freshet.Format does), and it keeps nothing on disk.
package kafka
