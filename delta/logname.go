package delta

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	logDir            = "_delta_log/"
	sidecarDir        = logDir + "_sidecars/"
	lastCheckpointKey = logDir + "_last_checkpoint"
	versionDigits     = 20
)

// logFile is what the name of a file in the log says.
type logFile struct {
	version int64
	kind    logKind
	part    int    // of a multi-part checkpoint, from 1
	parts   int    // of a multi-part checkpoint, else 0
	unique  string // what sets a V2 checkpoint apart from others of its version
	json    bool   // of a V2 checkpoint: JSON, not Parquet
	last    int64  // of a compacted file: the last version it stands for
}

type logKind uint8

const (
	logOther logKind = iota
	logCommit
	logCheckpoint
	logChecksum  // N.crc
	logCompacted // N.M.compacted.json
)

func commitKey(version int64) string { return versionPrefix(version) + ".json" }

func checkpointKey(version int64) string { return versionPrefix(version) + ".checkpoint.parquet" }

// versionPrefix begins the keys of all files of a version. It is less than all of them, and greater than
// those of lower versions, so that a listing can start after it.
func versionPrefix(version int64) string {
	return fmt.Sprintf("%s%0*d", logDir, versionDigits, version)
}

// parseLogKey reads a key of the log's folder. Files of other forms, which others leave there, are logOther.
func parseLogKey(key string) logFile {
	name := strings.TrimPrefix(key, logDir)
	if len(name) <= versionDigits || name[versionDigits] != '.' {
		return logFile{}
	}
	version, ok := parseVersion(name[:versionDigits])
	if !ok {
		return logFile{}
	}
	f := logFile{version: version}
	parts := strings.Split(name[versionDigits+1:], ".")
	switch {
	case len(parts) == 1 && parts[0] == "json":
		f.kind = logCommit
	case len(parts) == 1 && parts[0] == "crc":
		f.kind = logChecksum
	case len(parts) == 3 && parts[1] == "compacted" && parts[2] == "json":
		if f.last, ok = parseVersion(parts[0]); ok && len(parts[0]) == versionDigits && f.last >= version {
			f.kind = logCompacted
		}
	case parts[0] == "checkpoint":
		return f.checkpoint(parts[1:])
	}
	return f
}

// checkpoint reads what follows "checkpoint.": "parquet", "0000000001.0000000003.parquet" or
// "<uuid>.json|parquet".
func (f logFile) checkpoint(parts []string) logFile {
	last := parts[len(parts)-1:]
	switch {
	case len(parts) == 1 && last[0] == "parquet":
		f.kind = logCheckpoint
	case len(parts) == 2 && (last[0] == "parquet" || last[0] == "json") && parts[0] != "":
		f.kind, f.unique, f.json = logCheckpoint, parts[0], last[0] == "json"
	case len(parts) == 3 && last[0] == "parquet":
		part, err1 := strconv.ParseUint(parts[0], 10, 31)
		of, err2 := strconv.ParseUint(parts[1], 10, 31)
		if err1 == nil && err2 == nil && 1 <= part && part <= of {
			f.kind, f.part, f.parts = logCheckpoint, int(part), int(of)
		}
	}
	return f
}

func parseVersion(digits string) (int64, bool) {
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	return v, err == nil
}
