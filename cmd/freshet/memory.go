package main

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryTarget is the soft limit of the Go heap and stacks unless GOMEMLIMIT or the container says otherwise, or pipelines gather
// more than gatheredWithin.
const (
	memoryTarget   = 180 << 20
	gatheredWithin = 24 << 20
)

// tuneMemory sets the soft memory limit for pipelines that gather so many bytes each: to nine tenths of the container's limit where that
// is less than what is wanted. The garbage collector runs oftener near the limit instead of letting memory grow; what lives must
// have room below it, else it runs all the time. GOMEMLIMIT and GOGC, when they are set, are left alone.
func tuneMemory(gathered ...int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	wanted := int64(memoryTarget)
	for _, bytes := range gathered {
		wanted += max(bytes-gatheredWithin, 0)
	}
	debug.SetMemoryLimit(min(wanted, containerLimit()/10*9))
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
