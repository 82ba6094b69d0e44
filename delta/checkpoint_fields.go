package delta

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// The leaf columns of a checkpoint that are known, by their paths, and what their values mean. A column that
// opens an action, or a part of one, comes before the others of it; the others find what it made.
var (
	textFields = map[string]func(*Action, string){
		"add.path":                             func(a *Action, v string) { a.Add.Path = v },
		"add.stats":                            func(a *Action, v string) { a.Add.Stats = v },
		"add.clusteringProvider":               func(a *Action, v string) { a.Add.ClusteringProvider = v },
		"add.deletionVector.storageType":       func(a *Action, v string) { a.Add.DeletionVector = vector(v) },
		"add.deletionVector.pathOrInlineDv":    func(a *Action, v string) { a.Add.DeletionVector.path(v) },
		"remove.path":                          func(a *Action, v string) { a.Remove = &Remove{Path: v} },
		"remove.stats":                         func(a *Action, v string) { a.Remove.Stats = v },
		"remove.deletionVector.storageType":    func(a *Action, v string) { a.Remove.DeletionVector = vector(v) },
		"remove.deletionVector.pathOrInlineDv": func(a *Action, v string) { a.Remove.DeletionVector.path(v) },
		"metaData.id":                          func(a *Action, v string) { a.Metadata = &Metadata{ID: v} },
		"metaData.name":                        func(a *Action, v string) { a.Metadata.Name = v },
		"metaData.description":                 func(a *Action, v string) { a.Metadata.Description = v },
		"metaData.format.provider":             func(a *Action, v string) { a.Metadata.Provider = v },
		"metaData.schemaString":                func(a *Action, v string) { a.Metadata.SchemaString = v },
		"txn.appId":                            func(a *Action, v string) { a.Txn = &Txn{AppID: v} },
		"domainMetadata.domain":                func(a *Action, v string) { a.DomainMetadata = newDomain(v) },
		"domainMetadata.configuration":         func(a *Action, v string) { a.DomainMetadata.Configuration = v },
		"sidecar.path":                         func(a *Action, v string) { a.Sidecar = &Sidecar{Path: v} },
	}
	intFields = map[string]func(*Action, int64){
		"add.size":                          func(a *Action, v int64) { a.Add.Size = v },
		"add.modificationTime":              func(a *Action, v int64) { a.Add.ModificationTime = v },
		"add.baseRowId":                     func(a *Action, v int64) { a.Add.BaseRowID = &v },
		"add.defaultRowCommitVersion":       func(a *Action, v int64) { a.Add.DefaultRowCommitVersion = &v },
		"add.deletionVector.offset":         func(a *Action, v int64) { a.Add.DeletionVector.setOffset(v) },
		"add.deletionVector.sizeInBytes":    func(a *Action, v int64) { a.Add.DeletionVector.size(v) },
		"add.deletionVector.cardinality":    func(a *Action, v int64) { a.Add.DeletionVector.Cardinality = v },
		"remove.deletionTimestamp":          func(a *Action, v int64) { a.Remove.DeletionTimestamp = &v },
		"remove.size":                       func(a *Action, v int64) { a.Remove.Size = &v },
		"remove.baseRowId":                  func(a *Action, v int64) { a.Remove.BaseRowID = &v },
		"remove.defaultRowCommitVersion":    func(a *Action, v int64) { a.Remove.DefaultRowCommitVersion = &v },
		"remove.deletionVector.offset":      func(a *Action, v int64) { a.Remove.DeletionVector.setOffset(v) },
		"remove.deletionVector.sizeInBytes": func(a *Action, v int64) { a.Remove.DeletionVector.size(v) },
		"remove.deletionVector.cardinality": func(a *Action, v int64) { a.Remove.DeletionVector.Cardinality = v },
		"metaData.createdTime":              func(a *Action, v int64) { a.Metadata.CreatedTime = &v },
		"protocol.minReaderVersion":         func(a *Action, v int64) { a.Protocol = newProtocol(v) },
		"protocol.minWriterVersion":         func(a *Action, v int64) { a.Protocol.MinWriterVersion = int(v) },
		"txn.version":                       func(a *Action, v int64) { a.Txn.Version = v },
		"txn.lastUpdated":                   func(a *Action, v int64) { a.Txn.LastUpdated = &v },
		"checkpointMetadata.version":        func(a *Action, v int64) { a.CheckpointMetadata = newMarker(v) },
		"sidecar.sizeInBytes":               func(a *Action, v int64) { a.Sidecar.SizeInBytes = v },
		"sidecar.modificationTime":          func(a *Action, v int64) { a.Sidecar.ModificationTime = v },
	}
	boolFields = map[string]func(*Action, bool){
		"add.dataChange":              func(a *Action, v bool) { a.Add.DataChange = v },
		"remove.dataChange":           func(a *Action, v bool) { a.Remove.DataChange = v },
		"remove.extendedFileMetadata": func(a *Action, v bool) { a.Remove.ExtendedFileMetadata = &v },
		"domainMetadata.removed":      func(a *Action, v bool) { a.DomainMetadata.Removed = v },
	}
	mapFields = map[string]func(*Action, map[string]*string){
		"add.partitionValues":     func(a *Action, v map[string]*string) { a.Add.PartitionValues = v },
		"add.tags":                func(a *Action, v map[string]*string) { a.Add.Tags = v },
		"remove.partitionValues":  func(a *Action, v map[string]*string) { a.Remove.PartitionValues = v },
		"remove.tags":             func(a *Action, v map[string]*string) { a.Remove.Tags = v },
		"metaData.format.options": func(a *Action, v map[string]*string) { a.Metadata.FormatOptions = solid(v) },
		"metaData.configuration":  func(a *Action, v map[string]*string) { a.Metadata.Configuration = solid(v) },
		"checkpointMetadata.tags": func(a *Action, v map[string]*string) { a.CheckpointMetadata.Tags = solid(v) },
		"sidecar.tags":            func(a *Action, v map[string]*string) { a.Sidecar.Tags = solid(v) },
	}
	listFields = map[string]func(*Action, []string){
		"metaData.partitionColumns": func(a *Action, v []string) { a.Metadata.PartitionColumns = v },
		"protocol.readerFeatures":   func(a *Action, v []string) { a.Protocol.ReaderFeatures = v },
		"protocol.writerFeatures":   func(a *Action, v []string) { a.Protocol.WriterFeatures = v },
	}
	// openers are the columns that make what the others fill in: without a value there is no action in the
	// row, or no deletion vector in the action.
	openers = map[kinds]string{
		kindAdd: "add.path", kindRemove: "remove.path", kindMetadata: "metaData.id",
		kindProtocol: "protocol.minReaderVersion", kindTxn: "txn.appId", kindDomain: "domainMetadata.domain",
		kindCheckpoint: "checkpointMetadata.version", kindSidecar: "sidecar.path",
	}
)

const (
	statsColumn       = "add.stats"
	parsedStats       = "add.stats_parsed."
	parsedPartitions  = "add.partitionValues_parsed."
	addVectorPrefix   = "add.deletionVector."
	removeVectorOpen  = "remove.deletionVector.storageType"
	removeVectorStart = "remove.deletionVector."
	addVectorOpen     = "add.deletionVector.storageType"
)

func (v *DeletionVector) path(path string) { v.PathOrInlineDv = path }

func (v *DeletionVector) size(bytes int64) { v.SizeInBytes = int32(bytes) }

func (v *DeletionVector) setOffset(n int64) {
	offset := int32(n)
	v.Offset = &offset
}

func vector(storage string) *DeletionVector { return &DeletionVector{StorageType: storage} }

func newDomain(name string) *DomainMetadata { return &DomainMetadata{Domain: name} }

func newProtocol(reader int64) *Protocol { return &Protocol{MinReaderVersion: int(reader)} }

func newMarker(version int64) *CheckpointMetadata { return &CheckpointMetadata{Version: version} }

// solid is the map without its nulls.
func solid(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		if v != nil {
			out[k] = *v
		}
	}
	return out
}

// fieldRead takes a column's part of the rows of a batch.
type fieldRead func(rows []Action) error

// takes reports whether a row has what the columns of this path fill in.
func takes(path string) func(a *Action) bool {
	switch top := topOf(path); {
	case path == openers[kindAdd]:
		return openAdds()
	case path == openers[kindOf(top)]:
		return func(*Action) bool { return true }
	case path == addVectorOpen || path == removeVectorOpen:
		return func(a *Action) bool { return a.Add != nil || a.Remove != nil }
	case strings.HasPrefix(path, addVectorPrefix):
		return func(a *Action) bool { return a.Add != nil && a.Add.DeletionVector != nil }
	case strings.HasPrefix(path, removeVectorStart):
		return func(a *Action) bool { return a.Remove != nil && a.Remove.DeletionVector != nil }
	case top == "add":
		return func(a *Action) bool { return a.Add != nil }
	default:
		kind := kindOf(top)
		return func(a *Action) bool { return a.kinds()&kind != 0 }
	}
}

// openAdds returns what makes a row an add action.
func openAdds() func(a *Action) bool {
	var made []Add
	return func(a *Action) bool {
		if len(made) == 0 {
			made = make([]Add, rowsAtOnce) // whose texts share memory, too
		}
		a.Add, made = &made[0], made[1:]
		return true
	}
}

// kinds is the set of kinds that the action holds.
func (a *Action) kinds() (k kinds) {
	switch {
	case a.Add != nil:
		return kindAdd
	case a.Remove != nil:
		return kindRemove
	case a.Txn != nil:
		return kindTxn
	case a.Metadata != nil:
		return kindMetadata
	case a.Protocol != nil:
		return kindProtocol
	case a.DomainMetadata != nil:
		return kindDomain
	case a.Sidecar != nil:
		return kindSidecar
	case a.CheckpointMetadata != nil:
		return kindCheckpoint
	case a.CommitInfo != nil:
		return kindCommitInfo
	case a.CDC != nil:
		return kindCDC
	}
	return 0
}

// scalar returns the reader of a column without repetition; nil when the column is not known.
func (l *leaf) scalar(path string) fieldRead {
	if set, ok := textFields[path]; ok {
		if kindOf(topOf(path))&kindFiles != 0 {
			return l.fill(path, func(a *Action, value int) error {
				v, err := l.text(value)
				set(a, unsafe.String(unsafe.SliceData(v), len(v))) // of the batch, which has a few dozen
				return err
			})
		}
		return l.fill(path, func(a *Action, value int) error {
			v, err := l.text(value)
			set(a, string(v))
			return err
		})
	}
	if set, ok := intFields[path]; ok {
		return l.fill(path, func(a *Action, value int) error {
			v, err := l.int(value)
			set(a, v)
			return err
		})
	}
	if set, ok := boolFields[path]; ok {
		return l.fill(path, func(a *Action, value int) error {
			v, err := l.bool(value)
			set(a, v)
			return err
		})
	}
	return nil
}

// fill returns what takes the next entry of each row, and sets the values of rows that take one.
func (l *leaf) fill(path string, set func(a *Action, value int) error) fieldRead {
	takes := takes(path)
	return func(rows []Action) error {
		for i := range rows {
			value := l.next()
			if value < 0 || !takes(&rows[i]) {
				continue
			}
			if err := set(&rows[i], value); err != nil {
				return err
			}
		}
		return nil
	}
}

// list returns the reader of a column of strings.
func (l *leaf) list(path string, set func(*Action, []string)) fieldRead {
	takes := takes(path)
	return func(rows []Action) error {
		for i := range rows {
			var list []string
			err := l.record(func(value int) error {
				if value < 0 {
					return nil
				}
				v, err := l.text(value)
				list = append(list, string(v))
				return err
			})
			if err != nil {
				return err
			}
			if takes(&rows[i]) {
				set(&rows[i], list)
			}
		}
		return nil
	}
}

// maxInterned bounds the distinct strings of maps that are shared between rows.
const maxInterned = 4096

// interner shares equal strings, of which the maps of a checkpoint are full.
type interner map[string]*string

func (n interner) of(b []byte) *string {
	if p, ok := n[string(b)]; ok {
		return p
	}
	s := string(b)
	if len(n) < maxInterned {
		n[s] = &s
	}
	return &s
}

// mapOf returns the reader of a map of strings, which is two columns.
func mapOf(path string, keys, values *leaf, set func(*Action, map[string]*string)) fieldRead {
	takes := takes(path)
	r := mapReader{keys: keys, values: values, shared: interner{}}
	return func(rows []Action) error {
		for i := range rows {
			m, err := r.next()
			if err != nil {
				return fmt.Errorf("column %s: %w", path, err)
			}
			if m != nil && takes(&rows[i]) {
				set(&rows[i], m)
			}
		}
		return nil
	}
}

type mapReader struct {
	keys, values *leaf
	shared       interner
	names        []*string // of the row
}

var errFewValues = errors.New("it has fewer values than keys")

// next is the map of the next row; nil when it is empty.
func (r *mapReader) next() (m map[string]*string, err error) {
	r.names = r.names[:0]
	err = r.keys.record(func(value int) error {
		if value < 0 {
			return nil
		}
		v, err := r.keys.text(value)
		r.names = append(r.names, r.shared.of(v))
		return err
	})
	if err != nil {
		return nil, err
	}
	at := 0
	err = r.values.record(func(value int) error {
		if at >= len(r.names) {
			return nil // the one entry of an empty or absent map
		}
		if m == nil {
			m = make(map[string]*string, len(r.names))
		}
		name := *r.names[at]
		at++
		m[name] = nil
		if value < 0 {
			return nil
		}
		v, err := r.values.text(value)
		m[name] = r.shared.of(v)
		return err
	})
	if err == nil && at < len(r.names) {
		err = errFewValues
	}
	return m, err
}
