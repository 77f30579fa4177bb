//go:build chaos

package chaos_test

// How often executors are killed in the long tests.
const (
	kills            = 20
	stormKills       = 850
	stormKillsSQLite = 150
	failovers        = 50
	zombies          = 5
	restarts         = 6
	// strict holds every single figure to its promise; a machine that does much else at the same time cannot.
	strict = true
)
