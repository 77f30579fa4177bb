package thread

import (
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/conf"
)

const (
	// DefaultMaxThreads is how many threads a namespace may have where nothing else is said.
	DefaultMaxThreads = 1_000_000
	// DefaultMaxBytes is how many bytes of items and messages they may have together.
	DefaultMaxBytes = 16 << 30
)

// Config bounds what threads take. DefaultConfig fits most installations.
type Config struct {
	// MaxQueued is how many turns of one thread may wait.
	MaxQueued int `help:"maximum number of messages that wait for the agent of one thread"`
	// MaxThreads and MaxBytes bound the threads of one namespace together.
	MaxThreads int64      `help:"maximum number of threads of one namespace"`
	MaxBytes   conf.Bytes `help:"maximum size of the items and messages of all threads of one namespace"`
	// EphemeralAge is how long an ephemeral thread is kept after its last use.
	EphemeralAge time.Duration `help:"retention of ephemeral threads after their last use"`
	// Cache is the memory for items of threads that were read lately.
	Cache conf.Bytes `help:"memory for items of threads that were read lately"`
}

// DefaultConfig keeps 100 messages, an hour, and a million threads of 16 GiB.
func DefaultConfig() Config {
	return Config{MaxQueued: 100, MaxThreads: DefaultMaxThreads, MaxBytes: DefaultMaxBytes, EphemeralAge: time.Hour, Cache: DefaultCacheBytes}
}

// Room is what a namespace may have.
func (c Config) Room() Room { return Room{Threads: c.MaxThreads, Bytes: int64(c.MaxBytes)} }

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.MaxQueued <= 0 {
		faults = append(faults, fmt.Errorf("max_queued must be positive, got %d", c.MaxQueued))
	}
	if c.MaxThreads <= 0 {
		faults = append(faults, fmt.Errorf("max_threads must be positive, got %d", c.MaxThreads))
	}
	if c.MaxBytes <= 0 {
		faults = append(faults, errors.New("max_bytes must be positive"))
	}
	if c.EphemeralAge < time.Minute {
		faults = append(faults, fmt.Errorf("ephemeral_age must be at least 1m, got %s", c.EphemeralAge))
	}
	if c.Cache <= 0 {
		faults = append(faults, errors.New("cache must be positive"))
	}
	return errors.Join(faults...)
}

// Bounds are those of a turn to be queued.
func (c Config) Bounds() Bounds { return Bounds{Queued: c.MaxQueued, Room: c.Room()} }
