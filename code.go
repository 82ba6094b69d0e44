package freshet

// The codes, by range: 1xxx what a person wrote (files, flags, expressions), 2xxx sources, 3xxx rows that cannot be taken,
// 4xxx tables, 5xxx stores and the network. A code keeps its meaning for ever; docs/codes has a page on each.
const (
	CodeUsage         Code = "FRE-1001" // flags or arguments of a command
	CodeSyntax        Code = "FRE-1002" // a file is not YAML, or not of the form wanted
	CodeUnknownKey    Code = "FRE-1003" // a key that the pipeline file does not have
	CodeBadValue      Code = "FRE-1004" // a value of the wrong type, unit or range
	CodeMissing       Code = "FRE-1005" // a required key or variable is missing
	CodeExpression    Code = "FRE-1201" // an expression does not parse
	CodeExprType      Code = "FRE-1202" // an expression's types do not fit
	CodeUnknownColumn Code = "FRE-1204" // a column that is not there
	CodeUnavailable   Code = "FRE-1401" // asked for a part that this version does not have

	CodeSourceUnreachable Code = "FRE-2001" // the origin does not answer
	CodeSourceRefused     Code = "FRE-2002" // the origin refuses credentials or rights
	CodeNoTopic           Code = "FRE-2003" // no such topic
	CodeGap               Code = "FRE-2101" // the origin no longer has what we need next
	CodeOriginChanged     Code = "FRE-2102" // the origin was deleted and made again
	CodeForgotten         Code = "FRE-2103" // the origin's group knows a lane that the table does not
	CodeTableChanged      Code = "FRE-2104" // the origin's table was changed, and its policy is to stop
	CodeUndecodable       Code = "FRE-2105" // the origin fails to read its own log, each time at the same place
	CodeSlotLost          Code = "FRE-2106" // the origin's slot is gone, or of no use any more
	CodeSlotMoved         Code = "FRE-2107" // the origin's slot begins behind what a table holds
	CodeTimeline          Code = "FRE-2108" // the server that answers has not what was read already
	CodeTooManyRejects    Code = "FRE-2201" // quarantine takes more than the set share

	CodeEmptyPayload   Code = "FRE-3001" // nothing to decode
	CodeMalformed      Code = "FRE-3002" // not of the format: truncated, trailing data, bad escape
	CodeBadUTF8        Code = "FRE-3003" // invalid UTF-8
	CodeWrongType      Code = "FRE-3004" // a value of another type than the column's
	CodeOutOfRange     Code = "FRE-3005" // a value that the column's type cannot hold
	CodeNull           Code = "FRE-3006" // null or missing where the column allows none
	CodeDuplicateKey   Code = "FRE-3007" // a key twice in one object
	CodeTooDeep        Code = "FRE-3008" // nested deeper than the limit
	CodeTooLarge       Code = "FRE-3009" // larger than the limit
	CodeNewField       Code = "FRE-3010" // a new field where new_fields is fail
	CodeCompression    Code = "FRE-3011" // the payload's compression is broken
	CodeConstraint     Code = "FRE-3012" // a row that breaks a constraint of the table
	CodeSequenceTie    Code = "FRE-3013" // two changes of a key that nothing orders
	CodePartialRow     Code = "FRE-3014" // a row without some columns, whose key the table has not
	CodeBadChange      Code = "FRE-3015" // a record that does not say what happened to which row
	CodeTruncated      Code = "FRE-3016" // the origin's table was emptied at once
	CodeDeletesChanged Code = "FRE-3020" // another policy for deletes than the table's
	CodeModeChanged    Code = "FRE-3021" // another mode, key or order than the table's
	CodeBesideGone     Code = "FRE-3022" // a table beside the table is gone that cannot be made anew
	CodeMaskChanged    Code = "FRE-3023" // a column has values, or other hashes, than it is to get
	CodeFilledColumn   Code = "FRE-3030" // the source has a column that the target is to fill
	CodePlanChanged    Code = "FRE-3040" // another plan than that of the newest cut, while tables are not level
	CodeStepFault      Code = "FRE-3101" // an expression failed on the row

	CodeNoTable        Code = "FRE-4001" // the path is no Delta table
	CodeSchemaMismatch Code = "FRE-4002" // the schema does not match the table
	CodeUnsupported    Code = "FRE-4003" // the table needs a feature that we do not have
	CodeCorrupt        Code = "FRE-4004" // the table's log or data is damaged
	CodeTxnRetention   Code = "FRE-4005" // the table would forget our progress
	CodeConflict       Code = "FRE-4006" // other writers kept winning
	CodeNoVersion      Code = "FRE-4007" // the version or time is not there (any more)
	CodeMissingFile    Code = "FRE-4008" // a file that the table's log names is not there
	CodeBehind         Code = "FRE-4009" // the table does not come to the position at which it is compared

	CodeStoreUnavailable Code = "FRE-5001" // the store does not answer
	CodeStoreRefused     Code = "FRE-5002" // the store refuses credentials or rights
	CodeStoreFull        Code = "FRE-5003" // no space left
	CodeStoreUnsafe      Code = "FRE-5004" // the store ignores conditional writes
	CodeInternal         Code = "FRE-9001" // a broken invariant of our own
)
