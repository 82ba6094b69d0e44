package lake

import (
	"slices"
)

// ChangeLogOptions are the options of the change logs of tables with these options: append-only tables that get every
// change as the source sent it, old images too, with ChangeTypeColumn, all change columns and, in "_unsent", the names of
// the columns that an update did not send.
func ChangeLogOptions(of *TargetOptions) *TargetOptions {
	if of == nil {
		of = &TargetOptions{}
	}
	return &TargetOptions{
		Mode:          Append,
		ChangeColumns: slices.Concat([]string{ChangeTypeColumn}, ChangeColumns(), []string{unsentColumn}),
		ManyOrigins:   of.ManyOrigins, FixedSchema: of.FixedSchema, TargetFileBytes: of.TargetFileBytes,
		MemoryBytes: of.MemoryBytes, EngineInfo: of.EngineInfo, Retry: of.Retry, Recovered: of.Recovered,
		Upkeep: of.Upkeep, Park: of.Park,
	}
}
