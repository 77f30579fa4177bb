//go:build chaos

package chaos_test

import "time"

// How often executors are killed in the long tests.
const (
	kills            = 20
	plans            = 200
	stormKills       = 850
	stormKillsSQLite = 150
	failovers        = 50
	scheduleKills    = 30
	zombies          = 5
	restarts         = 6
	// gap is the time between two starts of the load.
	gap = 60 * time.Millisecond
	// strict holds every single figure to its promise; a machine that does much else at the same time cannot.
	strict = true
)

// killed are the stores on which a whole server is killed.
func killed() []string { return []string{"sqlite", "postgres"} }
