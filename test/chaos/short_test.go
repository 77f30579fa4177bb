//go:build !chaos

package chaos_test

// How often executors are killed when all tests run.
const (
	kills            = 3
	stormKills       = 16
	stormKillsSQLite = 6
	failovers        = 3
	zombies          = 1
	restarts         = 2
	// strict holds every single figure to its promise; a machine that does much else at the same time cannot.
	strict = false
)
