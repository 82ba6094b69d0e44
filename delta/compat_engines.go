package delta

// engines are the others than Spark. What is called measured was found with tables of every feature, read by these very
// versions; the rest is what their documents promise.
var engines = []engine{
	{
		name: "delta-rs", version: "deltalake 1.6.6", source: "measured; crates/core/src/kernel/transaction/protocol.rs",
		reads: words("columnMapping deletionVectors timestampNtz v2Checkpoint variantType variantType-preview"),
		writes: words("appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping timestampNtz " +
			"deletionVectors v2Checkpoint"),
	},
	{
		name: "delta-kernel-rs", version: "0.30.0 in Polars", source: "reading measured; kernel/src/table_features",
		reads: words("columnMapping deletionVectors timestampNtz typeWidening typeWidening-preview v2Checkpoint " +
			"vacuumProtocolCheck variantType variantType-preview catalogManaged"),
		writes: words("appendOnly invariants changeDataFeed columnMapping deletionVectors domainMetadata " +
			"inCommitTimestamp timestampNtz v2Checkpoint vacuumProtocolCheck rowTracking clustering " +
			"materializePartitionColumns"),
		stumbles: []stumble{{widenedDecimalsOrDates, "Polars, which reads the files, does not widen decimals and dates"}},
	},
	{
		name: "DuckDB", version: "1.4.4", source: "measured",
		reads: words("columnMapping deletionVectors timestampNtz typeWidening typeWidening-preview v2Checkpoint " +
			"vacuumProtocolCheck"),
		cannotWrite: "the paths and sizes that it commits are not those of its files, so that nobody can read them",
		stumbles: []stumble{
			{mappedPartitions, "it finds null in every partition column whose name is mapped"},
			{isVoid, "it does not know columns of type void"},
			{mappedInReader2, "it refuses column mapping as a named feature with reader version 2"},
		},
	},
	{
		name: "Trino", version: "current", source: "trino.io/docs/current/connector/delta-lake.html",
		reads: words("columnMapping deletionVectors timestampNtz typeWidening v2Checkpoint vacuumProtocolCheck variantType"),
		writes: words("appendOnly invariants checkConstraints changeDataFeed columnMapping deletionVectors timestampNtz " +
			"vacuumProtocolCheck"),
	},
	{
		name: "Amazon Athena", version: "engine 3", source: "docs.aws.amazon.com/athena, delta-lake-tables",
		reads:  words("columnMapping timestampNtz"),
		unsure: words("deletionVectors v2Checkpoint vacuumProtocolCheck typeWidening"),
	},
	{
		name: "Amazon Redshift Spectrum", version: "symlink manifests",
		source: "docs.delta.io, redshift-spectrum-integration; freshet table manifest",
		stumbles: []stumble{
			{oldVectors, "symlink manifests cannot tell of deleted rows"},
			{beyondVersion1, "symlink manifests know reader version 1 only"},
		},
	},
	{
		name: "Microsoft Fabric, Direct Lake and SQL endpoint", version: "2026",
		source: "learn.microsoft.com/fabric, delta-lake-interoperability",
		reads:  words("columnMapping deletionVectors"), unsure: words("v2Checkpoint vacuumProtocolCheck typeWidening"),
		stumbles: []stumble{{func(s *Snapshot) bool { return s.Property(propColumnMapping) == "id" },
			"it maps columns by name only, not by id"}},
	},
	{
		name: "Google BigQuery", version: "BigLake", source: "docs.delta.io, bigquery-integration",
		reads: words("columnMapping deletionVectors"), unsure: words("timestampNtz v2Checkpoint vacuumProtocolCheck typeWidening"),
	},
	{
		name: "Snowflake", version: "since 2026-03-02", source: "docs.snowflake.com, release notes 2026-03-02",
		reads: words("columnMapping deletionVectors"), unsure: words("timestampNtz v2Checkpoint vacuumProtocolCheck typeWidening"),
	},
	{
		name: "Freshet", version: "this one", source: "this program", reads: append(words("timestampWithoutTimezone"), readable...),
		writes: writable,
	},
}
