package delta

import (
	"maps"
	"slices"
	"strconv"
)

// appendLog appends the actions as lines of a commit, keys in the order that Spark writes them.
func appendLog(b []byte, actions []Action) []byte {
	for i := range actions {
		b = append(appendAction(b, &actions[i]), '\n')
	}
	return b
}

func appendAction(b []byte, a *Action) []byte {
	o := &objectWriter{b: b}
	switch {
	case a.CommitInfo != nil:
		o.object("commitInfo", a.CommitInfo.write)
	case a.Protocol != nil:
		o.object("protocol", a.Protocol.write)
	case a.Metadata != nil:
		o.object("metaData", a.Metadata.write)
	case a.Txn != nil:
		o.object("txn", a.Txn.write)
	case a.DomainMetadata != nil:
		o.object("domainMetadata", a.DomainMetadata.write)
	case a.Add != nil:
		o.object("add", a.Add.write)
	case a.Remove != nil:
		o.object("remove", a.Remove.write)
	case a.CDC != nil:
		o.object("cdc", a.CDC.write)
	case a.CheckpointMetadata != nil:
		o.object("checkpointMetadata", a.CheckpointMetadata.write)
	case a.Sidecar != nil:
		o.object("sidecar", a.Sidecar.write)
	}
	return o.end()
}

// objectWriter writes the fields of one JSON object after another. Absent values are left out.
type objectWriter struct {
	b    []byte
	open bool // the brace of this object is written
}

func (o *objectWriter) key(name string) {
	c := byte(',')
	if !o.open {
		c, o.open = '{', true
	}
	o.b = append(appendJSONString(append(o.b, c), name), ':')
}

func (o *objectWriter) end() []byte {
	if !o.open {
		o.b = append(o.b, '{')
	}
	return append(o.b, '}')
}

func (o *objectWriter) object(name string, fields func(*objectWriter)) {
	o.key(name)
	inner := &objectWriter{b: o.b}
	fields(inner)
	o.b = inner.end()
}

// str writes a string, also an empty one.
func (o *objectWriter) str(name, v string) {
	o.key(name)
	o.b = appendJSONString(o.b, v)
}

func (o *objectWriter) strIfSet(name, v string) {
	if v != "" {
		o.str(name, v)
	}
}

func (o *objectWriter) int(name string, v int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *objectWriter) optional(name string, v *int64) {
	if v != nil {
		o.int(name, *v)
	}
}

func (o *objectWriter) bool(name string, v bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, v)
}

func (o *objectWriter) strings(name string, list []string) {
	o.key(name)
	o.b = append(o.b, jsonList(list)...)
}

// objects writes a list of n objects.
func (o *objectWriter) objects(name string, n int, fields func(i int, o *objectWriter)) {
	o.key(name)
	o.b = append(o.b, '[')
	for i := range n {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		inner := &objectWriter{b: o.b}
		fields(i, inner)
		o.b = inner.end()
	}
	o.b = append(o.b, ']')
}

// texts writes a map whose values are strings, in the order of its keys.
func (o *objectWriter) texts(name string, m map[string]string) {
	o.object(name, func(o *objectWriter) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			o.str(k, m[k])
		}
	})
}

// values writes a map whose values are strings and nulls, in the order of its keys.
func (o *objectWriter) values(name string, m map[string]*string) {
	o.object(name, func(o *objectWriter) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if v := m[k]; v != nil {
				o.str(k, *v)
				continue
			}
			o.key(k)
			o.b = append(o.b, "null"...)
		}
	})
}

func (c *CommitInfo) write(o *objectWriter) {
	o.optional("inCommitTimestamp", c.InCommitTimestamp)
	o.int("timestamp", c.Timestamp)
	o.strIfSet("userId", c.UserID)
	o.strIfSet("userName", c.UserName)
	o.str("operation", c.Operation)
	o.texts("operationParameters", c.OperationParameters)
	o.optional("readVersion", c.ReadVersion)
	o.strIfSet("isolationLevel", c.IsolationLevel)
	if c.IsBlindAppend != nil {
		o.bool("isBlindAppend", *c.IsBlindAppend)
	}
	o.texts("operationMetrics", c.OperationMetrics)
	o.strIfSet("userMetadata", c.UserMetadata)
	if len(c.Tags) > 0 {
		o.texts("tags", c.Tags)
	}
	o.strIfSet("engineInfo", c.EngineInfo)
	o.strIfSet("txnId", c.TxnID)
}

func (p *Protocol) write(o *objectWriter) {
	o.int("minReaderVersion", int64(p.MinReaderVersion))
	o.int("minWriterVersion", int64(p.MinWriterVersion))
	if p.MinReaderVersion >= featureReaderVersion {
		o.strings("readerFeatures", p.ReaderFeatures)
	}
	if p.MinWriterVersion >= featureWriterVersion {
		o.strings("writerFeatures", p.WriterFeatures)
	}
}

func (m *Metadata) write(o *objectWriter) {
	o.str("id", m.ID)
	o.strIfSet("name", m.Name)
	o.strIfSet("description", m.Description)
	o.object("format", func(o *objectWriter) {
		o.str("provider", m.Provider)
		o.texts("options", m.FormatOptions)
	})
	o.str("schemaString", m.SchemaString)
	o.strings("partitionColumns", m.PartitionColumns)
	o.texts("configuration", m.Configuration)
	o.optional("createdTime", m.CreatedTime)
}

func (t *Txn) write(o *objectWriter) {
	o.str("appId", t.AppID)
	o.int("version", t.Version)
	o.optional("lastUpdated", t.LastUpdated)
}

func (d *DomainMetadata) write(o *objectWriter) {
	o.str("domain", d.Domain)
	o.str("configuration", d.Configuration)
	o.bool("removed", d.Removed)
}

func (a *Add) write(o *objectWriter) {
	o.str("path", a.Path)
	o.values("partitionValues", a.PartitionValues)
	o.int("size", a.Size)
	o.int("modificationTime", a.ModificationTime)
	o.bool("dataChange", a.DataChange)
	o.fileFields(a.Stats, a.Tags, a.DeletionVector, a.BaseRowID, a.DefaultRowCommitVersion)
	o.strIfSet("clusteringProvider", a.ClusteringProvider)
}

func (a *Remove) write(o *objectWriter) {
	o.str("path", a.Path)
	o.optional("deletionTimestamp", a.DeletionTimestamp)
	o.bool("dataChange", a.DataChange)
	if a.ExtendedFileMetadata != nil {
		o.bool("extendedFileMetadata", *a.ExtendedFileMetadata)
	}
	if a.PartitionValues != nil {
		o.values("partitionValues", a.PartitionValues)
	}
	o.optional("size", a.Size)
	o.fileFields(a.Stats, a.Tags, a.DeletionVector, a.BaseRowID, a.DefaultRowCommitVersion)
}

// fileFields writes what adds and removes have in common at their end.
func (o *objectWriter) fileFields(stats string, tags map[string]*string, v *DeletionVector,
	baseRowID, rowVersion *int64,
) {
	o.strIfSet("stats", stats)
	if tags != nil {
		o.values("tags", tags)
	}
	v.write(o)
	o.optional("baseRowId", baseRowID)
	o.optional("defaultRowCommitVersion", rowVersion)
}

func (v *DeletionVector) write(o *objectWriter) {
	if v == nil {
		return
	}
	o.object("deletionVector", func(o *objectWriter) {
		o.str("storageType", v.StorageType)
		o.str("pathOrInlineDv", v.PathOrInlineDv)
		if v.Offset != nil {
			o.int("offset", int64(*v.Offset))
		}
		o.int("sizeInBytes", int64(v.SizeInBytes))
		o.int("cardinality", v.Cardinality)
	})
}

func (c *CDC) write(o *objectWriter) {
	o.str("path", c.Path)
	o.values("partitionValues", c.PartitionValues)
	o.int("size", c.Size)
	o.bool("dataChange", c.DataChange)
	if c.Tags != nil {
		o.values("tags", c.Tags)
	}
}

func (c *CheckpointMetadata) write(o *objectWriter) {
	o.int("version", c.Version)
	if c.Tags != nil {
		o.texts("tags", c.Tags)
	}
}

func (s *Sidecar) write(o *objectWriter) {
	o.str("path", s.Path)
	o.int("sizeInBytes", s.SizeInBytes)
	o.int("modificationTime", s.ModificationTime)
	if s.Tags != nil {
		o.texts("tags", s.Tags)
	}
}
