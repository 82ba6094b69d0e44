package delta

// Columns that are no columns of the table: what scans, change feeds and writers say of rows beside their values.
const (
	// RowIDColumn is int64: the row's id, which stays with it when it is moved or updated. Spec: "Row Tracking".
	RowIDColumn = "_row_id"
	// RowCommitVersionColumn is int64: the version that last inserted or updated the row. Spec: "Row Tracking".
	RowCommitVersionColumn = "_row_commit_version"
	// ChangeTypeColumn is a string: insert, delete, update_preimage or update_postimage. Spec: "Add CDC File".
	ChangeTypeColumn = "_change_type"
	// CommitVersionColumn is int64: the version that made the change. Spec: "Add CDC File".
	CommitVersionColumn = "_commit_version"
	// CommitTimestampColumn is a timestamp, µs UTC: when that version was committed. Spec: "Add CDC File".
	CommitTimestampColumn = "_commit_timestamp"
)

// Where the metadata names the columns of data files that keep row ids and row commit versions of rows that were moved.
// Spec: "Row Tracking", "Reader Requirements for Row Tracking".
const (
	materializedRowID            = "delta.rowTracking.materializedRowIdColumnName"
	materializedRowCommitVersion = "delta.rowTracking.materializedRowCommitVersionColumnName"
)
