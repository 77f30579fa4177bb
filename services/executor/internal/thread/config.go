package thread

import (
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
)

// Config bounds what threads take. DefaultConfig fits most installations.
type Config struct {
	// MaxQueued is how many turns of one thread may wait.
	MaxQueued int `help:"maximum number of messages that wait for the agent of one thread"`
	// EphemeralAge is how long an ephemeral thread is kept after its last use.
	EphemeralAge time.Duration `help:"retention of ephemeral threads after their last use"`
	// Cache is the memory for items of threads that were read lately.
	Cache conf.Bytes `help:"memory for items of threads that were read lately"`
}

// DefaultConfig keeps 100 messages and an hour.
func DefaultConfig() Config {
	return Config{MaxQueued: 100, EphemeralAge: time.Hour, Cache: DefaultCacheBytes}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.MaxQueued <= 0 {
		faults = append(faults, fmt.Errorf("max_queued must be positive, got %d", c.MaxQueued))
	}
	if c.EphemeralAge < time.Minute {
		faults = append(faults, fmt.Errorf("ephemeral_age must be at least 1m, got %s", c.EphemeralAge))
	}
	if c.Cache <= 0 {
		faults = append(faults, errors.New("cache must be positive"))
	}
	return errors.Join(faults...)
}
