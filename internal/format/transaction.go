package format

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Transaction is a record of the topic PREFIX.transaction that Debezium writes when told to: a transaction of
// the origin begins, or has ended. Records of its changes are in other topics.
type Transaction struct {
	// ID is Debezium's name of it. Of PostgreSQL it is "transaction:position", and only the part before the
	// colon is the same for the beginning, the end and the changes.
	ID        string
	Ended     bool
	Committed int64              // when, in microseconds since 1970; 0 unknown
	Events    int64              // how many changes it has; -1 while it has not ended
	Tables    []TransactionTable // nil while it has not ended
}

// Name is what the stamps of the transaction's changes have for it, Stamp.Tx: of PostgreSQL its number alone.
func (t *Transaction) Name() string {
	number, position, two := strings.Cut(t.ID, ":")
	if two && isDigits(number) && isDigits(position) {
		return number
	}
	return t.ID
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// TransactionTable is how many changes a transaction has in one table.
type TransactionTable struct {
	Name   string // "public.orders"
	Events int64
}

// ParseTransaction reads such a record, with or without its schema. Errors: it is none.
func ParseTransaction(value []byte) (Transaction, error) {
	type payload struct {
		Status string `json:"status"`
		ID     string `json:"id"`
		Millis int64  `json:"ts_ms"`
		Events *int64 `json:"event_count"`
		Tables []struct {
			Name   string `json:"data_collection"`
			Events int64  `json:"event_count"`
		} `json:"data_collections"`
	}
	var record struct {
		payload
		Payload *payload `json:"payload"`
	}
	if err := json.Unmarshal(value, &record); err != nil {
		return Transaction{}, fmt.Errorf("record of a transaction: %w", err)
	}
	p := record.payload
	if record.Payload != nil {
		p = *record.Payload
	}
	if p.Status != "BEGIN" && p.Status != "END" || p.ID == "" {
		return Transaction{}, fmt.Errorf("record of a transaction: found the status %q of %q, wanted BEGIN or END and an id",
			clip(p.Status), clip(p.ID))
	}
	t := Transaction{ID: p.ID, Ended: p.Status == "END", Committed: p.Millis * 1000, Events: -1}
	if !t.Ended {
		return t, nil
	}
	if p.Events == nil || *p.Events < 0 {
		return Transaction{}, fmt.Errorf("record of the end of transaction %s: found no count of its changes, wanted one",
			clip(p.ID))
	}
	t.Events = *p.Events
	for _, table := range p.Tables {
		t.Tables = append(t.Tables, TransactionTable{table.Name, table.Events})
	}
	return t, nil
}
