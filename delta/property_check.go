package delta

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// propertyRule tells whether a value is one that a property can have; wanted is what a person reads if it is not.
type propertyRule struct {
	wanted string
	ok     func(value string) bool
}

var (
	isBoolean = propertyRule{"true or false", func(v string) bool {
		return strings.EqualFold(v, "true") || strings.EqualFold(v, "false")
	}}
	isInterval = propertyRule{`an interval like "interval 30 days"`, func(v string) bool {
		_, err := parseInterval(v)
		return err == nil
	}}
	isCodec = propertyRule{"zstd, snappy, gzip or none", func(v string) bool {
		_, err := codecOf(map[string]string{propCodec: v})
		return err == nil
	}}
	isNone = propertyRule{"no such property: the protocol follows from the features, which delta.feature.NAME = supported " +
		"asks for", func(string) bool { return false }}
)

// wholeFrom is a whole number of at least low, and of at most high.
func wholeFrom(low, high int64) propertyRule {
	wanted := fmt.Sprintf("a number from %d to %d", low, high)
	if high == math.MaxInt64 {
		wanted = fmt.Sprintf("a number of at least %d", low)
	}
	return propertyRule{wanted, func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= low && n <= high
	}}
}

func oneOf(words ...string) propertyRule {
	last := len(words) - 1
	return propertyRule{strings.Join(words[:last], ", ") + " or " + words[last], func(v string) bool {
		return slices.Contains(words, v)
	}}
}

// propertyRules are the properties whose values mean something to writers. Spec: delta.io, "Table properties".
var propertyRules = map[string]propertyRule{
	propAppendOnly:                     isBoolean,
	propCleanup:                        isBoolean,
	propStatsAsJSON:                    isBoolean,
	propStatsAsStruct:                  isBoolean,
	propTypeWidening:                   isBoolean,
	propDeletionVectors:                isBoolean,
	propRowTracking:                    isBoolean,
	propInCommitTimestamps:             isBoolean,
	propChangeDataFeed:                 isBoolean,
	"delta.randomizeFilePrefixes":      isBoolean,
	propLogRetention:                   isInterval,
	propFileRetention:                  isInterval,
	propTxnRetention:                   isInterval,
	propCheckpointInterval:             wholeFrom(1, math.MaxInt64),
	"delta.randomPrefixLength":         wholeFrom(1, 32),
	"delta.dataSkippingNumIndexedCols": wholeFrom(-1, math.MaxInt64),
	propCheckpointPolicy:               oneOf("classic", "v2"),
	propIsolationLevel:                 oneOf(serializable, writeSerializable),
	propColumnMapping:                  oneOf("none", "name", "id"),
	propCodec:                          isCodec,
	"delta.minReaderVersion":           isNone,
	"delta.minWriterVersion":           isNone,
}

// CheckProperty finds a value that a table property cannot have: engines would refuse the table, or take it for
// another one. Properties that are not known may have any value. The error names the property, the value found and what
// was wanted.
func CheckProperty(name, value string) error {
	rule, known := propertyRules[name]
	if !known || rule.ok(value) {
		return nil
	}
	return fmt.Errorf("property %s: found %q, wanted %s", name, value, rule.wanted)
}
