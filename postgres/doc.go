// Package postgres reads tables of a PostgreSQL database: what the catalog says of them, their rows, and the log of their
// changes.
//
// The log is read by logical replication with the plugin pgoutput: one lane a database and slot, the seq is where in the
// log a transaction ends. All changes of a transaction share that seq.
package postgres
