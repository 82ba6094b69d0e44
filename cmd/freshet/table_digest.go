package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/internal/canonical"
)

// printDigests prints the digest of each table's batches, which scan gives to take: a line a table, or as output says.
func (c *cli) printDigests(output string, tables []string, scan func(table string, take func(arrow.RecordBatch) error) error) error {
	if err := checkOutput(output); err != nil {
		return err
	}
	var records []record
	for _, table := range tables {
		sum, rows, err := digestOf(func(take func(arrow.RecordBatch) error) error { return scan(table, take) })
		if err != nil {
			return err
		}
		if output != "" {
			records = append(records, record{{name: "table", value: table}, {name: "rows", value: rows, right: true},
				{name: "sha256", value: sum}})
			continue
		}
		if _, err := fmt.Fprintf(c.out, "%s  %d  %s\n", sum, rows, table); err != nil {
			return err
		}
	}
	if output == "" {
		return nil
	}
	return c.list(output, records)
}

// digestOf is the digest of the batches that scan gives to take, and how many rows they have.
func digestOf(scan func(take func(arrow.RecordBatch) error) error) (sum string, rows int64, err error) {
	var d canonical.Digest
	var enc *canonical.Encoder
	var line []byte
	err = scan(func(b arrow.RecordBatch) error {
		if enc == nil {
			enc = canonical.NewEncoder(b.Schema())
		}
		for i := range int(b.NumRows()) {
			var err error
			if line, err = enc.AppendRow(line[:0], b, i); err != nil {
				return err
			}
			if err := d.Add(line); err != nil {
				return err
			}
		}
		return nil
	})
	sum, rows, ended := d.Sum()
	if err == nil {
		err = ended
	}
	return sum, rows, err
}
