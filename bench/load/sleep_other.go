//go:build !linux

package load

import "time"

// Sleep pauses the goroutine for d, as exactly as the system can.
func Sleep(d time.Duration) { time.Sleep(d) }
