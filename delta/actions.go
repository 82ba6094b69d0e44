package delta

import "maps"

// The actions of a Delta log, one struct for each. Field names and meanings are those of PROTOCOL.md,
// "Actions". Unknown actions and unknown fields are ignored when read.

// Add is a file that belongs to the table from its commit on. Spec: "Add File and Remove File".
type Add struct {
	Path             string             // as in the log: URI-encoded, relative to the table or absolute
	PartitionValues  map[string]*string // by (physical) column name; nil is null
	Size             int64              // bytes
	ModificationTime int64              // ms since the epoch
	DataChange       bool
	Stats            string // JSON; "" when the writer left none
	Tags             map[string]*string
	DeletionVector   *DeletionVector
	BaseRowID        *int64
	// DefaultRowCommitVersion is the version in which the file's rows were first committed; row tracking
	// only.
	DefaultRowCommitVersion *int64
	ClusteringProvider      string
}

// Remove is the action that takes this very file out of the table, with what readers of the log want to know of it
// and without its statistics.
func (a *Add) Remove() Remove {
	extended, size := true, a.Size
	values := maps.Clone(a.PartitionValues)
	if values == nil {
		values = map[string]*string{}
	}
	return Remove{Path: a.Path, DataChange: true, ExtendedFileMetadata: &extended, PartitionValues: values,
		Size: &size, Tags: a.Tags, DeletionVector: a.DeletionVector, BaseRowID: a.BaseRowID,
		DefaultRowCommitVersion: a.DefaultRowCommitVersion}
}

// Remove takes a file out of the table. Spec: "Add File and Remove File".
type Remove struct {
	Path                    string
	DeletionTimestamp       *int64 // ms since the epoch
	DataChange              bool
	ExtendedFileMetadata    *bool
	PartitionValues         map[string]*string
	Size                    *int64
	Stats                   string
	Tags                    map[string]*string
	DeletionVector          *DeletionVector
	BaseRowID               *int64
	DefaultRowCommitVersion *int64
}

// DeletionVector describes where the positions of a file's deleted rows are kept. Spec: "Deletion Vectors".
type DeletionVector struct {
	StorageType    string // "u" relative, "i" inline, "p" absolute
	PathOrInlineDv string
	Offset         *int32
	SizeInBytes    int32
	Cardinality    int64
}

// CDC is a file of row changes. Spec: "Add CDC File".
type CDC struct {
	Path            string
	PartitionValues map[string]*string
	Size            int64
	DataChange      bool
	Tags            map[string]*string
}

// Metadata is the table's schema, partitioning and properties. Spec: "Change Metadata".
type Metadata struct {
	ID               string
	Name             string
	Description      string
	Provider         string // of format; "parquet"
	FormatOptions    map[string]string
	SchemaString     string // Spark's JSON of the schema
	PartitionColumns []string
	Configuration    map[string]string
	CreatedTime      *int64 // ms since the epoch
}

// Protocol is the least that readers and writers must understand. Spec: "Protocol Evolution".
type Protocol struct {
	MinReaderVersion int
	MinWriterVersion int
	ReaderFeatures   []string // nil unless MinReaderVersion is 3
	WriterFeatures   []string // nil unless MinWriterVersion is 7
}

// Txn is the progress of one application in this table. Spec: "Transaction Identifiers".
type Txn struct {
	AppID       string
	Version     int64
	LastUpdated *int64 // ms since the epoch
}

// DomainMetadata is a named configuration of the table. Spec: "Domain Metadata".
type DomainMetadata struct {
	Domain        string
	Configuration string
	Removed       bool
}

// CommitInfo tells what a commit did, in Spark's words. Spec: "Commit Provenance Information".
type CommitInfo struct {
	Timestamp           int64 // ms since the epoch
	InCommitTimestamp   *int64
	Operation           string            // "WRITE", "STREAMING UPDATE", "CREATE TABLE" …
	OperationParameters map[string]string // written as JSON strings; a list is its JSON as a text: "[]"
	OperationMetrics    map[string]string
	ReadVersion         *int64
	IsolationLevel      string
	IsBlindAppend       *bool
	EngineInfo          string
	TxnID               string // a UUID of this attempt: tells whether an ambiguous put landed
	UserMetadata        string
	UserID, UserName    string
	Tags                map[string]string
}

// Action is one line of a commit: exactly one field is set.
type Action struct {
	CommitInfo         *CommitInfo
	Protocol           *Protocol
	Metadata           *Metadata
	Txn                *Txn
	DomainMetadata     *DomainMetadata
	Add                *Add
	Remove             *Remove
	CDC                *CDC
	CheckpointMetadata *CheckpointMetadata
	Sidecar            *Sidecar
}

// CheckpointMetadata opens a V2 checkpoint. Spec: "Checkpoint Metadata".
type CheckpointMetadata struct {
	Version int64
	Tags    map[string]string
}

// Sidecar names a file that holds part of a V2 checkpoint. Spec: "Sidecar Files".
type Sidecar struct {
	Path             string
	SizeInBytes      int64
	ModificationTime int64
	Tags             map[string]string
}
