package delta

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
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

// kindOf is the kind of the action of a name; none when it is not known.
func kindOf(name string) kinds {
	switch name {
	case "add":
		return kindAdd
	case "remove":
		return kindRemove
	case "cdc":
		return kindCDC
	case "commitInfo":
		return kindCommitInfo
	case "protocol":
		return kindProtocol
	case "metaData":
		return kindMetadata
	case "txn":
		return kindTxn
	case "domainMetadata":
		return kindDomain
	case "checkpointMetadata":
		return kindCheckpoint
	case "sidecar":
		return kindSidecar
	}
	return 0
}

// parseLog yields the actions of a commit, or of a checkpoint in JSON, that are of the wanted kinds, in their
// order. name is what errors call the file. The texts of actions do not alias data. Objects may span lines,
// and unknown actions and fields are passed over, as readers must. Errors: ErrCorrupt, with the line.
func parseLog(name string, data []byte, want kinds) iter.Seq2[Action, error] {
	return newLogReader(data, want, nil).actions(name)
}

// logReader is parseLog as it goes on.
type logReader struct {
	jsonReader
	want  kinds
	sieve *statsSieve // nil: none
	adds  []Add       // room for those to come
	stats []byte      // of an add, for the sieve
	// ruledOut says that the sieve rejects the add that came last, whose statistics are left out then.
	ruledOut         bool
	inAction, inFile spelling
}

func newLogReader(data []byte, want kinds, sieve *statsSieve) *logReader {
	r := &logReader{want: want, sieve: sieve}
	r.data, r.texts.most = data, len(data)
	return r
}

func (r *logReader) actions(name string) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		for !r.end() {
			start := r.pos
			a, found, err := r.action()
			if err != nil {
				line := 1 + bytes.Count(r.data[:min(r.pos, len(r.data))], []byte("\n"))
				if r.pos >= len(r.data) {
					line = 1 + bytes.Count(r.data[:start], []byte("\n"))
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

func (r *logReader) action() (a Action, found bool, err error) {
	if r.peek() != '{' {
		return a, false, r.fail("an object")
	}
	err = r.spelled(&r.inAction, func(key []byte) error {
		kind := kindOf(string(key)) & r.want
		if kind == 0 {
			return r.skipAction()
		}
		if r.null() {
			return nil
		}
		found = true
		if err := a.parse(r, kind); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	return a, found, err
}

func (a *Action) parse(r *logReader, kind kinds) (err error) {
	switch kind {
	case kindCommitInfo:
		a.CommitInfo = &CommitInfo{}
		err = a.CommitInfo.parse(&r.jsonReader)
	case kindProtocol:
		a.Protocol = &Protocol{}
		err = a.Protocol.parse(&r.jsonReader)
	case kindMetadata:
		a.Metadata = &Metadata{}
		err = a.Metadata.parse(&r.jsonReader)
	case kindTxn:
		a.Txn = &Txn{}
		err = a.Txn.parse(&r.jsonReader)
	case kindDomain:
		a.DomainMetadata = &DomainMetadata{}
		err = a.DomainMetadata.parse(&r.jsonReader)
	case kindAdd:
		a.Add = r.newAdd()
		err = a.Add.parseFile(r, nil)
	case kindRemove:
		a.Remove = &Remove{}
		err = a.Remove.parse(r)
	case kindCDC:
		a.CDC = &CDC{}
		err = a.CDC.parse(&r.jsonReader)
	case kindCheckpoint:
		a.CheckpointMetadata = &CheckpointMetadata{}
		err = a.CheckpointMetadata.parse(&r.jsonReader)
	case kindSidecar:
		a.Sidecar = &Sidecar{}
		err = a.Sidecar.parse(&r.jsonReader)
	}
	return err
}

// newAdd returns an empty add action, of which a few are made at once if there may be many.
func (r *logReader) newAdd() *Add {
	const perFile = 256 // bytes
	if len(r.adds) == 0 {
		r.adds = make([]Add, min(addsAtOnce, 1+(len(r.data)-r.pos)/perFile))
	}
	a := &r.adds[0]
	r.adds, r.ruledOut = r.adds[1:], false
	return a
}

func (a *Remove) parse(r *logReader) error {
	var f Add
	var own removal
	err := f.parseFile(r, &own)
	*a = Remove{Path: f.Path, DeletionTimestamp: own.at, DataChange: f.DataChange,
		ExtendedFileMetadata: own.extended, PartitionValues: f.PartitionValues, Size: own.size, Stats: f.Stats,
		Tags: f.Tags, DeletionVector: f.DeletionVector, BaseRowID: f.BaseRowID,
		DefaultRowCommitVersion: f.DefaultRowCommitVersion}
	return err
}

// removal is what a remove has otherwise than an add.
type removal struct {
	at, size *int64
	extended *bool
}

// parseFile takes an add, or, where of is there, a remove.
func (a *Add) parseFile(r *logReader, of *removal) error {
	err := r.spelled(&r.inFile, func(key []byte) (err error) {
		switch string(key) {
		case "path":
			a.Path, err = r.packed()
		case "partitionValues":
			a.PartitionValues, err = r.stringMap()
		case "size":
			if of != nil {
				of.size, err = r.optional()
			} else {
				a.Size, err = r.int()
			}
		case "modificationTime":
			a.ModificationTime, err = r.int()
		case "dataChange":
			a.DataChange, err = r.bool()
		case "stats":
			a.Stats, err = r.fileStats(of == nil)
		case "tags":
			a.Tags, err = r.stringMap()
		case "deletionVector":
			a.DeletionVector, err = parseDeletionVector(&r.jsonReader)
		case "baseRowId":
			a.BaseRowID, err = r.optional()
		case "defaultRowCommitVersion":
			a.DefaultRowCommitVersion, err = r.optional()
		case "clusteringProvider":
			a.ClusteringProvider, err = r.str()
		default:
			err = of.parse(&r.jsonReader, key)
		}
		return err
	})
	if err == nil && a.Path == "" {
		err = errNoPath
	}
	return err
}

// parse takes the value of a field that adds do not have; one that is not known is passed over.
func (m *removal) parse(r *jsonReader, key []byte) (err error) {
	switch {
	case m != nil && string(key) == "deletionTimestamp":
		m.at, err = r.optional()
	case m != nil && string(key) == "extendedFileMetadata":
		if r.null() {
			return nil
		}
		var v bool
		v, err = r.bool()
		m.extended = &v
	default:
		err = r.skip()
	}
	return err
}

// fileStats consumes the statistics of a file, a JSON text, and returns them if they are wanted. A writer that
// put an object in the place of its text is understood. Of an add the sieve sees them first.
func (r *logReader) fileStats(ofAdd bool) (string, error) {
	switch {
	case r.want&kindStats == 0:
		return "", r.skip()
	case r.peek() != '"':
		return r.loose()
	case r.sieve == nil || !ofAdd:
		return r.packed()
	}
	body, plain, err := r.plain()
	if err == nil && !plain {
		r.stats, err = r.unescape(slices.Grow(r.stats[:0], r.unescapeRoom()))
		body = r.stats
	}
	if err != nil {
		return "", err
	}
	if r.ruledOut = r.sieve.rejects(body); r.ruledOut {
		return "", nil
	}
	return r.texts.of(body), nil
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
