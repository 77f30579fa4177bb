package journal

import (
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// CeilMicros rounds a bound up to what can be stored, so that comparing with it means the same as
// comparing with the exact time. Drivers only.
func CeilMicros(t time.Time) time.Time {
	c := dbkit.Micros(t)
	if c.Before(t) {
		c = c.Add(time.Microsecond)
	}
	return c
}
