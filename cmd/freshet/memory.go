package main

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryTarget is the soft limit of the Go heap and stacks unless GOMEMLIMIT or the container says otherwise.
const memoryTarget = 180 << 20

// tuneMemory sets the soft memory limit: to nine tenths of the container's limit where that is less than the
// target. The garbage collector runs oftener near the limit instead of letting memory grow. GOMEMLIMIT and
// GOGC, when they are set, are left alone.
func tuneMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(min(memoryTarget, containerLimit()/10*9))
}

// containerLimit is the memory limit of the control group in bytes, MaxInt64 when there is none.
func containerLimit() int64 {
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return math.MaxInt64
}
