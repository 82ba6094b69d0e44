package delta

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// mapping is how the columns of files are found for the columns of the table. Spec: "Column Mapping".
type mapping uint8

const (
	byName     mapping = iota // by the column's name, its case ignored
	byPhysical                // by the physical name that the column was given
	byID                      // by the id that the column was given
)

func mappingOf(properties map[string]string) mapping {
	switch strings.ToLower(properties["delta.columnMapping.mode"]) {
	case "name":
		return byPhysical
	case "id":
		return byID
	}
	return byName
}

// physicalName is the field's name in files, partition values and statistics.
func (m mapping) physicalName(f *Field) string {
	if m == byName || len(f.Metadata) == 0 {
		return f.Name
	}
	var meta struct {
		Name string `json:"delta.columnMapping.physicalName"`
	}
	if json.Unmarshal(f.Metadata, &meta) != nil || meta.Name == "" {
		return f.Name
	}
	return meta.Name
}

// find returns the place of the table's field f among the fields of a file, -1 when the file lacks it.
func (m mapping) find(fields []arrow.Field, f *Field) int {
	if m == byID {
		if id := fieldID(f.Metadata); id != 0 {
			return findID(fields, strconv.Itoa(int(id)))
		}
	}
	name := m.physicalName(f)
	for i := range fields {
		if fields[i].Name == name {
			return i
		}
	}
	for i := range fields {
		if strings.EqualFold(fields[i].Name, name) {
			return i
		}
	}
	return -1
}

func findID(fields []arrow.Field, id string) int {
	for i := range fields {
		if v, ok := fields[i].Metadata.GetValue("PARQUET:field_id"); ok && v == id {
			return i
		}
	}
	return -1
}
