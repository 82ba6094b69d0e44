package delta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The properties of a table that the log itself obeys, with their defaults. Spec: delta.io, "Table
// properties".
const (
	propCheckpointInterval   = "delta.checkpointInterval"
	propLogRetention         = "delta.logRetentionDuration"
	propFileRetention        = "delta.deletedFileRetentionDuration"
	propTxnRetention         = "delta.setTransactionRetentionDuration"
	propCleanup              = "delta.enableExpiredLogCleanup"
	propStatsAsJSON          = "delta.checkpoint.writeStatsAsJson"
	propStatsAsStruct        = "delta.checkpoint.writeStatsAsStruct"
	propAppendOnly           = "delta.appendOnly"
	propTypeWidening         = "delta.enableTypeWidening"
	propConstraint           = "delta.constraints."
	propDeletionVectors      = "delta.enableDeletionVectors"
	propCheckpointPolicy     = "delta.checkpointPolicy"
	propIsolationLevel       = "delta.isolationLevel"
	propColumnMapping        = "delta.columnMapping.mode"
	propMaxColumnID          = "delta.columnMapping.maxColumnId"
	propRowTracking          = "delta.enableRowTracking"
	propInCommitTimestamps   = "delta.enableInCommitTimestamps"
	propICTVersion           = "delta.inCommitTimestampEnablementVersion"
	propRowTrackingSuspended = "delta.rowTrackingSuspended"
	propCodec                = "delta.parquet.compression.codec"
	propICTTimestamp         = "delta.inCommitTimestampEnablementTimestamp"
	propStatsColumns         = "delta.dataSkippingStatsColumns"
	propStatsCount           = "delta.dataSkippingNumIndexedCols"
	propStatsPrefix          = "delta.dataSkippingStringPrefixLength"

	defaultLogRetention  = 30 * 24 * time.Hour
	defaultFileRetention = 7 * 24 * time.Hour
)

// What the metadata of a field says of its values. Spec: "Column Invariants", "Generated Columns", "Identity Columns",
// "Default Columns", "Type Widening".
const (
	metaInvariants    = "delta.invariants"
	metaGeneration    = "delta.generationExpression"
	metaIdentityStart = "delta.identity.start"
	metaIdentityStep  = "delta.identity.step"
	metaIdentityMark  = "delta.identity.highWaterMark"
	metaIdentityGiven = "delta.identity.allowExplicitInsert"
	metaDefault       = "CURRENT_DEFAULT"
	metaTypeChanges   = "delta.typeChanges"
)

// boolean is a property that is true or false; what is neither counts as not set.
func (m *Metadata) boolean(name string, otherwise bool) bool {
	v, err := strconv.ParseBool(strings.ToLower(m.Configuration[name]))
	if err != nil {
		return otherwise
	}
	return v
}

// duration is a property that is an interval. A value that cannot be read is an error, since what it asks to
// keep must not be lost to a default.
func (m *Metadata) duration(name string, otherwise time.Duration) (time.Duration, error) {
	text, set := m.Configuration[name]
	if !set {
		return otherwise, nil
	}
	d, err := parseInterval(text)
	if err != nil {
		return 0, fmt.Errorf("table property %s: found %q, %w", name, text, err)
	}
	return d, nil
}

// int is a property that is a positive number; ok is false when it is not set or is none.
func (m *Metadata) int(name string) (v int64, ok bool) {
	v, err := strconv.ParseInt(m.Configuration[name], 10, 64)
	return v, err == nil && v > 0
}

var intervalUnits = map[string]time.Duration{
	"week": 7 * 24 * time.Hour, "day": 24 * time.Hour, "hour": time.Hour, "minute": time.Minute,
	"second": time.Second, "millisecond": time.Millisecond, "microsecond": time.Microsecond,
}

// parseInterval reads Spark's form of a length of time: "interval 1 week 2 days", the first word optional.
// Months and years have no length and are refused, as Spark does.
func parseInterval(text string) (time.Duration, error) {
	const wanted = `wanted an interval like "interval 30 days"`
	words := strings.Fields(strings.ToLower(text))
	if len(words) > 0 && words[0] == "interval" {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, errors.New(wanted)
	}
	var total time.Duration
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit, known := intervalUnits[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || !known {
			return 0, errors.New(wanted)
		}
		if part := time.Duration(n) * unit; n != 0 && part/unit != time.Duration(n) {
			return 0, errors.New("which is too long")
		} else if total += part; total < 0 {
			return 0, errors.New("which is negative or too long")
		}
	}
	return total, nil
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Clone returns a copy of the metadata that can be changed.
func (m *Metadata) Clone() *Metadata {
	c := *m
	c.FormatOptions = maps.Clone(m.FormatOptions)
	c.PartitionColumns = slices.Clone(m.PartitionColumns)
	c.Configuration = maps.Clone(m.Configuration)
	if c.Configuration == nil {
		c.Configuration = map[string]string{}
	}
	return &c
}

// inCommitTimestamps reports whether commits carry their time of commit. Spec: "In-Commit Timestamps".
func inCommitTimestamps(p *Protocol, m *Metadata) bool {
	return p.Supports("inCommitTimestamp") && m.boolean(propInCommitTimestamps, false)
}
