//go:build chaos && unix

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// armed is read once: it never changes while a process runs.
var armed = sync.OnceValue(func() map[Point]*atomic.Int64 {
	m := map[Point]*atomic.Int64{}
	for spec := range strings.SplitSeq(os.Getenv(Env), ",") { //nolint:forbidigo // only binaries for chaos tests read it, and they have no settings of their own
		name, times, _ := strings.Cut(spec, "=")
		if n, err := strconv.ParseInt(times, 10, 64); err == nil && n > 0 {
			m[Point(name)] = &atomic.Int64{}
			m[Point(name)].Store(n)
		}
	}
	return m
})

// Hit kills this process as kill -9 does if the point is armed and this is its time.
func Hit(p Point) {
	if left := armed()[p]; left != nil && left.Add(-1) == 0 {
		// The kill runs no deferred function of this process.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {}
	}
}
