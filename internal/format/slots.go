package format

// slot is a place for a value that tells of a record.
type slot uint8

// The slots. Those from slotConnector on are of the source of a change.
const (
	slotOp slot = iota
	slotBefore
	slotAfter
	slotSentAt
	slotStatus
	slotDDL
	slotTxID
	slotTxOrder
	slotDeleted
	slotIgnored

	slotConnector
	slotDB
	slotSchema
	slotTable
	slotMillis
	slotMicros
	slotNanos
	slotTx
	slotGTID
	slotLSN
	slotFile
	slotPos
	slotRow
	slotSCN
	slotCommitSCN
	slotChangeLSN
	slotCommitLSN
	slotSerial
	slotSnapshot

	slotCount
)

// part is a field of a record and where its value is kept.
type part struct {
	name string
	slot slot
}

// sourceParts are the fields of a change's source, of all connectors, in the order that they mostly have.
var sourceParts = []part{
	{"version", slotIgnored}, {"connector", slotConnector}, {"name", slotIgnored}, {"ts_ms", slotMillis},
	{"snapshot", slotSnapshot}, {"db", slotDB}, {"sequence", slotIgnored}, {"ts_us", slotMicros},
	{"ts_ns", slotNanos}, {"schema", slotSchema}, {"table", slotTable}, {"txId", slotTx}, {"lsn", slotLSN},
	{"xmin", slotIgnored}, {"server_id", slotIgnored}, {"gtid", slotGTID}, {"file", slotFile}, {"pos", slotPos},
	{"row", slotRow}, {"thread", slotIgnored}, {"query", slotIgnored}, {"collection", slotTable},
	{"change_lsn", slotChangeLSN}, {"commit_lsn", slotCommitLSN}, {"event_serial_no", slotSerial},
	{"scn", slotSCN}, {"commit_scn", slotCommitSCN},
}

// envelopeParts are the fields of a change beside its images, its source and its transaction.
var envelopeParts = []part{
	{"op", slotOp}, {"ts_ms", slotSentAt}, {"ts_us", slotIgnored}, {"ts_ns", slotIgnored},
	{"status", slotStatus}, {"ddl", slotDDL}, {"tableChanges", slotDDL}, {"updateDescription", slotIgnored},
	{"message", slotIgnored}, {"serverName", slotIgnored},
}

// flattenedParts are the fields that Debezium's transform ExtractNewRecordState adds to a row when it is told
// to, and those of its names that others use.
var flattenedParts = []part{
	{"__op", slotOp}, {"__deleted", slotDeleted}, {"__ts_ms", slotSentAt}, {"__connector", slotConnector},
	{"__db", slotDB}, {"__schema", slotSchema}, {"__table", slotTable}, {"__lsn", slotLSN},
	{"__txId", slotTx}, {"__gtid", slotGTID}, {"__file", slotFile}, {"__pos", slotPos}, {"__row", slotRow},
	{"__snapshot", slotSnapshot}, {"__transaction_id", slotTxID}, {"__transaction_total_order", slotTxOrder},
}

// flattened returns all fields of flattened rows that are no columns. The transform writes a field of the
// source with or without the word source.
func flattened() []part {
	parts := append([]part(nil), flattenedParts...)
	for _, p := range sourceParts {
		parts = append(parts, part{"__source_" + p.name, p.slot})
	}
	return parts
}

// planEnvelope plans a change: of its images, the one before is only read as a row if it can be trusted.
func planEnvelope(trustBefore bool) *node {
	capture := func(s slot) *node {
		return &node{kind: kindCapture, plain: kindCapture, nullable: true, store: nowhere{}, slot: s}
	}
	image := func(s slot) *node {
		return &node{kind: kindImage, plain: kindImage, nullable: true, store: nowhere{}, slot: s, typeName: "a row"}
	}
	all := newRecordPart()
	before := image(slotBefore)
	if !trustBefore {
		before = capture(slotBefore)
	}
	source, transaction := newRecordPart(), newRecordPart()
	for _, p := range sourceParts {
		source.fields.add(p.name, capture(p.slot))
	}
	for _, p := range []part{{"id", slotTxID}, {"total_order", slotTxOrder}, {"data_collection_order", slotIgnored}} {
		transaction.fields.add(p.name, capture(p.slot))
	}
	all.fields.add("before", before)
	all.fields.add("after", image(slotAfter))
	all.fields.add("source", source)
	all.fields.add("transaction", transaction)
	for _, p := range envelopeParts {
		all.fields.add(p.name, capture(p.slot))
	}
	return all
}
