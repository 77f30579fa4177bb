// Package memlimit knows how much memory Go may use in this process. All bounds that depend on it ask here,
// so that one place says what no limit is. It knows nothing else of the suite and is below all of it.
package memlimit

import (
	"math"
	"runtime/debug"

	cgroup "github.com/KimMachineGun/automemlimit/memlimit"
)

// Settings are the memory settings of the runtime.
type Settings struct {
	// Limit is Go's memory limit in bytes, 0 if there is none.
	Limit int64
	// From says where it comes from: "GOMEMLIMIT", "container" or "none".
	From string
	// GC is the percentage by which the heap may exceed its live part before the next collection, -1 if only
	// the limit bounds it.
	GC int
}

const (
	// limitShare is how much of the container's limit Go may use: the rest is for what the runtime does not
	// count, such as the memory of SQLite and of the kernel, and for what it takes beyond the limit for a
	// moment.
	limitShare = 0.8
	// roomyGC is the percentage with a known limit: Go collects less often while there is room, and more
	// often near the limit.
	roomyGC = 400
)

// Bytes is Go's memory limit, 0 if there is none.
func Bytes() int64 {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return 0
}

// Respect makes Go respect the memory limit of the container that the process runs in, and collect less often
// while it is far from it. GOMEMLIMIT and GOGC in env take precedence. Call it before anything asks for the
// limit.
func Respect(env func(string) string) Settings { return respect(env, cgroup.FromCgroup) }

func respect(env func(string) string, container func() (uint64, error)) Settings {
	m := Settings{From: "GOMEMLIMIT", GC: 100}
	if env("GOMEMLIMIT") == "" {
		m.From = "none"
		// An error means that there is no limit, or no readable one: then Go has none either.
		if n, err := container(); err == nil && n > 0 && n < math.MaxInt64/2 {
			debug.SetMemoryLimit(int64(float64(n) * limitShare))
			m.From = "container"
		}
	}
	if m.Limit = Bytes(); m.Limit == 0 {
		m.From = "none"
	}
	if m.Limit > 0 && env("GOGC") == "" {
		debug.SetGCPercent(roomyGC)
	}
	m.GC = debug.SetGCPercent(100)
	debug.SetGCPercent(m.GC)
	return m
}
