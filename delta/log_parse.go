package delta

import (
	"bytes"
	"fmt"
	"iter"
)

// kinds is a set of kinds of actions.
type kinds uint16

const (
	kindCommitInfo kinds = 1 << iota
	kindProtocol
	kindMetadata
	kindTxn
	kindDomain
	kindAdd
	kindRemove
	kindCDC
	kindCheckpoint
	kindSidecar
	kindStats     // of adds and removes
	refuseUnknown // no kind: a checkpoint with columns that are not known is an error

	kindState = kindProtocol | kindMetadata | kindTxn | kindDomain // what a snapshot holds in memory
	kindFiles = kindAdd | kindRemove
)

var kindOf = map[string]kinds{
	"commitInfo": kindCommitInfo, "protocol": kindProtocol, "metaData": kindMetadata, "txn": kindTxn,
	"domainMetadata": kindDomain, "add": kindAdd, "remove": kindRemove, "cdc": kindCDC,
	"checkpointMetadata": kindCheckpoint, "sidecar": kindSidecar,
}

// parseLog yields the actions of a commit, or of a checkpoint in JSON, that are of the wanted kinds, in their
// order. name is what errors call the file. The texts of actions do not alias data. Objects may span lines,
// and unknown actions and fields are passed over, as readers must. Errors: ErrCorrupt, with the line.
func parseLog(name string, data []byte, want kinds) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		r := &jsonReader{data: data}
		r.texts.most = len(data)
		for r.peek() != 0 {
			start := r.pos
			a, found, err := parseAction(r, want)
			if err != nil {
				line := 1 + bytes.Count(data[:min(r.pos, len(data))], []byte("\n"))
				if r.pos >= len(data) {
					line = 1 + bytes.Count(data[:start], []byte("\n"))
				}
				yield(Action{}, corrupt("%s:%d: %v", name, line, err))
				return
			}
			if found && !yield(a, nil) {
				return
			}
		}
	}
}

func parseAction(r *jsonReader, want kinds) (a Action, found bool, err error) {
	if r.peek() != '{' {
		return a, false, r.fail("an object")
	}
	err = r.object(func(key []byte) error {
		kind := kindOf[string(key)] & want
		if kind == 0 {
			return r.skipAction()
		}
		if r.null() {
			return nil
		}
		found = true
		if err := a.parse(r, kind, want); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	return a, found, err
}

func (a *Action) parse(r *jsonReader, kind, want kinds) (err error) {
	switch kind {
	case kindCommitInfo:
		a.CommitInfo = &CommitInfo{}
		err = a.CommitInfo.parse(r)
	case kindProtocol:
		a.Protocol = &Protocol{}
		err = a.Protocol.parse(r)
	case kindMetadata:
		a.Metadata = &Metadata{}
		err = a.Metadata.parse(r)
	case kindTxn:
		a.Txn = &Txn{}
		err = a.Txn.parse(r)
	case kindDomain:
		a.DomainMetadata = &DomainMetadata{}
		err = a.DomainMetadata.parse(r)
	case kindAdd:
		a.Add = &Add{}
		err = a.Add.parse(r, want&kindStats != 0)
	case kindRemove:
		a.Remove = &Remove{}
		err = a.Remove.parse(r, want&kindStats != 0)
	case kindCDC:
		a.CDC = &CDC{}
		err = a.CDC.parse(r)
	case kindCheckpoint:
		a.CheckpointMetadata = &CheckpointMetadata{}
		err = a.CheckpointMetadata.parse(r)
	case kindSidecar:
		a.Sidecar = &Sidecar{}
		err = a.Sidecar.parse(r)
	}
	return err
}

func (a *Add) parse(r *jsonReader, stats bool) error {
	f := fileFields{path: &a.Path, dataChange: &a.DataChange, partitionValues: &a.PartitionValues, tags: &a.Tags,
		vector: &a.DeletionVector, baseRowID: &a.BaseRowID, rowVersion: &a.DefaultRowCommitVersion}
	if stats {
		f.stats = &a.Stats
	}
	return f.parse(r, func(key []byte) (err error) {
		switch string(key) {
		case "size":
			a.Size, err = r.int()
		case "modificationTime":
			a.ModificationTime, err = r.int()
		case "clusteringProvider":
			a.ClusteringProvider, err = r.str()
		default:
			err = r.skip()
		}
		return err
	})
}

func (a *Remove) parse(r *jsonReader, stats bool) error {
	f := fileFields{path: &a.Path, dataChange: &a.DataChange, partitionValues: &a.PartitionValues, tags: &a.Tags,
		vector: &a.DeletionVector, baseRowID: &a.BaseRowID, rowVersion: &a.DefaultRowCommitVersion}
	if stats {
		f.stats = &a.Stats
	}
	return f.parse(r, func(key []byte) (err error) {
		switch string(key) {
		case "deletionTimestamp":
			a.DeletionTimestamp, err = r.optional()
		case "extendedFileMetadata":
			var v bool
			if !r.null() {
				v, err = r.bool()
				a.ExtendedFileMetadata = &v
			}
		case "size":
			a.Size, err = r.optional()
		default:
			err = r.skip()
		}
		return err
	})
}

// fileFields are the fields that adds and removes have in common; stats is nil when statistics are not
// wanted. Long texts are packed.
type fileFields struct {
	path                  *string
	dataChange            *bool
	partitionValues, tags *map[string]*string
	stats                 *string
	vector                **DeletionVector
	baseRowID, rowVersion **int64
}

// parse takes an object; other takes the values of fields that are not in common.
func (f *fileFields) parse(r *jsonReader, other func(key []byte) error) error {
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "path":
			*f.path, err = r.packed()
		case "partitionValues":
			*f.partitionValues, err = r.stringMap()
		case "dataChange":
			*f.dataChange, err = r.bool()
		case "stats":
			if f.stats == nil {
				return r.skip()
			}
			if r.peek() == '"' {
				*f.stats, err = r.packed()
			} else { // a writer that put an object in place of its text is understood
				*f.stats, err = r.loose()
			}
		case "tags":
			*f.tags, err = r.stringMap()
		case "deletionVector":
			*f.vector, err = parseDeletionVector(r)
		case "baseRowId":
			*f.baseRowID, err = r.optional()
		case "defaultRowCommitVersion":
			*f.rowVersion, err = r.optional()
		default:
			err = other(key)
		}
		return err
	})
	if err == nil && *f.path == "" {
		err = errNoPath
	}
	return err
}

func parseDeletionVector(r *jsonReader) (*DeletionVector, error) {
	if r.null() {
		return nil, nil
	}
	v := &DeletionVector{}
	return v, r.object(func(key []byte) (err error) {
		switch string(key) {
		case "storageType":
			v.StorageType, err = r.str()
		case "pathOrInlineDv":
			v.PathOrInlineDv, err = r.str()
		case "offset":
			v.Offset, err = parseInt32(r)
		case "sizeInBytes":
			var n *int32
			if n, err = parseInt32(r); n != nil {
				v.SizeInBytes = *n
			}
		case "cardinality":
			v.Cardinality, err = r.int()
		default:
			err = r.skip()
		}
		return err
	})
}

func parseInt32(r *jsonReader) (*int32, error) {
	v, err := r.optional()
	if v == nil || err != nil {
		return nil, err
	}
	if int64(int32(*v)) != *v {
		return nil, fmt.Errorf("%d does not fit 32 bits", *v)
	}
	n := int32(*v)
	return &n, nil
}

func (c *CDC) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "path":
			c.Path, err = r.str()
		case "partitionValues":
			c.PartitionValues, err = r.stringMap()
		case "size":
			c.Size, err = r.int()
		case "dataChange":
			c.DataChange, err = r.bool()
		case "tags":
			c.Tags, err = r.stringMap()
		default:
			err = r.skip()
		}
		return err
	})
}
