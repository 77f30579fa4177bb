// Package sleep waits for a time that a context may cut short. The few loops that try again compute their
// pauses in one line each: a backoff library would bring its own loop and its own idea of what may be tried
// again.
package sleep

import (
	"context"
	"time"
)

// For waits for d, and reports whether it did: false if ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
