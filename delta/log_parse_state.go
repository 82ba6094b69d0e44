package delta

import "errors"

var errNoPath = errors.New("it has no path")

func (m *Metadata) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "id":
			m.ID, err = r.str()
		case "name":
			m.Name, err = r.str()
		case "description":
			m.Description, err = r.str()
		case "format":
			err = m.parseFormat(r)
		case "schemaString":
			m.SchemaString, err = r.str()
		case "partitionColumns":
			m.PartitionColumns, err = r.strings()
		case "configuration":
			m.Configuration, err = r.looseMap()
		case "createdTime":
			m.CreatedTime, err = r.optional()
		default:
			err = r.skip()
		}
		return err
	})
}

func (m *Metadata) parseFormat(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "provider":
			m.Provider, err = r.str()
		case "options":
			m.FormatOptions, err = r.looseMap()
		default:
			err = r.skip()
		}
		return err
	})
}

func (p *Protocol) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		var n int64
		switch string(key) {
		case "minReaderVersion":
			n, err = r.int()
			p.MinReaderVersion = int(n)
		case "minWriterVersion":
			n, err = r.int()
			p.MinWriterVersion = int(n)
		case "readerFeatures":
			p.ReaderFeatures, err = r.strings()
		case "writerFeatures":
			p.WriterFeatures, err = r.strings()
		default:
			err = r.skip()
		}
		return err
	})
}

func (t *Txn) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "appId":
			t.AppID, err = r.str()
		case "version":
			t.Version, err = r.int()
		case "lastUpdated":
			t.LastUpdated, err = r.optional()
		default:
			err = r.skip()
		}
		return err
	})
}

func (d *DomainMetadata) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "domain":
			d.Domain, err = r.str()
		case "configuration":
			d.Configuration, err = r.str()
		case "removed":
			d.Removed, err = r.bool()
		default:
			err = r.skip()
		}
		return err
	})
}

func (c *CheckpointMetadata) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "version":
			c.Version, err = r.int()
		case "tags":
			c.Tags, err = r.looseMap()
		default:
			err = r.skip()
		}
		return err
	})
}

func (s *Sidecar) parse(r *jsonReader) error {
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "path":
			s.Path, err = r.str()
		case "sizeInBytes":
			s.SizeInBytes, err = r.int()
		case "modificationTime":
			s.ModificationTime, err = r.int()
		case "tags":
			s.Tags, err = r.looseMap()
		default:
			err = r.skip()
		}
		return err
	})
	if err == nil && s.Path == "" {
		err = errNoPath
	}
	return err
}

// parse is lenient: provenance has no fixed form, so what does not have the usual type is passed over.
func (c *CommitInfo) parse(r *jsonReader) error {
	return r.object(func(key []byte) (err error) {
		switch string(key) {
		case "timestamp":
			if ts := r.looseInt(); ts != nil {
				c.Timestamp = *ts
			}
		case "inCommitTimestamp":
			c.InCommitTimestamp, err = r.optional()
		case "operation":
			c.Operation, err = r.loose()
		case "operationParameters":
			c.OperationParameters, err = r.looseObject()
		case "operationMetrics":
			c.OperationMetrics, err = r.looseObject()
		case "readVersion":
			c.ReadVersion = r.looseInt()
		case "isolationLevel":
			c.IsolationLevel, err = r.loose()
		case "isBlindAppend":
			if v := r.peek(); v == 't' || v == 'f' {
				var blind bool
				blind, err = r.bool()
				c.IsBlindAppend = &blind
				return err
			}
			err = r.skip()
		case "engineInfo":
			c.EngineInfo, err = r.loose()
		case "txnId":
			c.TxnID, err = r.loose()
		case "userMetadata":
			c.UserMetadata, err = r.loose()
		case "userId":
			c.UserID, err = r.loose()
		case "userName":
			c.UserName, err = r.loose()
		case "tags":
			c.Tags, err = r.looseObject()
		default:
			err = r.skip()
		}
		return err
	})
}

// looseInt consumes any value and returns it if it is an integer.
func (r *jsonReader) looseInt() *int64 {
	if c := r.peek(); c == '-' || '0' <= c && c <= '9' {
		before := r.pos
		if v, err := r.int(); err == nil {
			return &v
		}
		r.pos = before
	}
	_ = r.skip() // what is broken here fails at the next token
	return nil
}

// maxProvenance is how many parameters, metrics or tags of a commit are kept; writers have some tens.
const maxProvenance = 10_000

// looseObject consumes any value and returns its fields, but for those beyond maxProvenance, if it is an object.
func (r *jsonReader) looseObject() (map[string]string, error) {
	if r.peek() == '{' {
		return r.looseFields(maxProvenance)
	}
	return nil, r.skip()
}
