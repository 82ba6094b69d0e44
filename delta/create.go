package delta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
)

// CreateOptions describe a new table. The zero value of each field means its default.
type CreateOptions struct {
	Schema      *Schema // required
	PartitionBy []string
	ClusterBy   []string // paths of the columns by which OPTIMIZE clusters the table, at most 4; default none
	// Properties are the table's properties. "delta.feature.X" = "supported" asks for a table feature.
	Properties  map[string]string
	Name        string
	Description string
	EngineInfo  string // default DefaultEngineInfo
	Txns        []Txn  // recorded in the first commit
}

// Create makes a table at the root of st, with the lowest protocol that its schema and properties need: (1,
// 2) for most. Errors: ErrTableExists, also when another creator won the race; *UnsupportedError;
// store.ErrAmbiguous as for Commit.
func Create(ctx context.Context, st store.Store, opts *CreateOptions) (*Table, error) {
	t := newTable(st, &OpenOptions{EngineInfo: opts.EngineInfo})
	if _, err := t.load(ctx, latest); err == nil {
		return nil, fmt.Errorf("%w at %s", ErrTableExists, st.URL())
	} else if !errors.Is(err, ErrNoTable) {
		return nil, err
	}
	tx, err := t.creation(opts)
	if err != nil {
		return nil, fmt.Errorf("create table at %s: %w", st.URL(), err)
	}
	c := &committer{tx: tx, deadline: time.Now().Add(tx.opts.Deadline)}
	if err := c.create(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// creation is the transaction that makes version 0.
func (t *Table) creation(opts *CreateOptions) (*Transaction, error) {
	if opts.Schema == nil || len(opts.Schema.Fields) == 0 {
		return nil, errors.New("a table needs at least one column")
	}
	if err := opts.Schema.validate(mappingOf(opts.Properties)); err != nil {
		return nil, err
	}
	if err := checkPartitionColumns(opts.Schema, opts.PartitionBy); err != nil {
		return nil, err
	}
	now := time.Now().UnixMilli()
	meta := &Metadata{ID: uuid.NewString(), Name: opts.Name, Description: opts.Description, Provider: "parquet",
		SchemaString: opts.Schema.String(), PartitionColumns: opts.PartitionBy, CreatedTime: &now,
		Configuration: map[string]string{}}
	for _, key := range sortedNames(opts.Properties) {
		if err := CheckProperty(key, opts.Properties[key]); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(key, propFeature) {
			meta.Configuration[key] = opts.Properties[key]
		}
	}
	proto := lowestProtocol(needs(opts.Schema, opts.Properties))
	if err := meta.startMapping(opts.Schema); err != nil {
		return nil, err
	}
	if len(opts.ClusterBy) > 0 {
		proto = proto.with("clustering")
	}
	schema, err := meta.Schema()
	if err != nil {
		return nil, err
	}
	if err := meta.checkRules(proto, schema); err != nil {
		return nil, err
	}
	empty := &Snapshot{table: t, version: -1, schema: schema, state: tableState{proto: proto, meta: meta}}
	tx := t.Begin(empty, nil)
	tx.proto, tx.meta = proto, meta
	if len(opts.ClusterBy) > 0 {
		domain, err := clusteringOf(schema, meta, opts.ClusterBy)
		if err != nil {
			return nil, err
		}
		tx.SetDomainMetadata(domain)
	}
	for _, txn := range opts.Txns {
		tx.AddTxn(txn.AppID, txn.Version)
	}
	tx.BlindAppend(true)
	tx.Operation("CREATE TABLE", map[string]string{
		"isManaged": "false", "description": opts.Description,
		"partitionBy": jsonList(opts.PartitionBy), "clusterBy": jsonList(opts.ClusterBy),
		"properties": jsonObject(meta.Configuration)}, nil)
	return tx, tx.validate()
}

// jsonList is a list of strings as JSON.
func jsonList(list []string) string {
	b := []byte{'['}
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONString(b, s)
	}
	return string(append(b, ']'))
}

// jsonObject is a map of strings as JSON.
func jsonObject(m map[string]string) string {
	o := &objectWriter{}
	for _, k := range sortedNames(m) {
		o.str(k, m[k])
	}
	return string(o.end())
}

// create puts version 0, whose base is a table that is not there.
func (c *committer) create(ctx context.Context) error {
	c.base = c.tx.base
	if err := c.resolve(ctx); err != nil {
		return err
	}
	snap, body, err := c.tx.build(ctx, c.base)
	if err != nil {
		return err
	}
	won, err := c.put(ctx, 0, body)
	if err != nil {
		return c.fail(0, err)
	}
	if !won {
		w, _, err := c.winner(ctx, 0)
		if err != nil {
			return err
		}
		if w.info.TxnID != c.tx.id {
			return fmt.Errorf("%w at %s: another writer has just created it", ErrTableExists, c.tx.table.st.URL())
		}
	}
	snap.writeChecksum(ctx, c.tx.id)
	c.tx.table.remember(snap)
	return nil
}
