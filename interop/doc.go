// Package interop holds the suites that need real servers and other engines: a Kafka broker, an S3 server, Spark,
// delta-rs, delta-kernel and DuckDB. What is needed is announced by the environment (README.md); what is missing is
// said, and its tests are skipped. The package itself has no code.
package interop
