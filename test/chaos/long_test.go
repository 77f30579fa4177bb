//go:build chaos

package chaos_test

import "time"

// How often executors are killed in the long tests.
const (
	kills            = 20
	plans            = 200
	stormKills       = 700
	stormKillsSQLite = 120
	failovers        = 50
	// agentWhole says that an executor is killed at every visit of an agent, and agentLanes how many are at
	// once on each store.
	agentWhole    = true
	agentLanes    = 2
	scheduleKills = 30
	zombies       = 5
	restarts      = 6
	hookKills     = 10
	hookHolds     = 5
	// soakTime is how long one tenant attacks another, soakTimeDev the same on SQLite; soakStrict says that
	// nothing else runs on the machine.
	soakTime    = 10 * time.Minute
	soakTimeDev = 2 * time.Minute
	soakStrict  = true
	// gap is the time between two starts of the load.
	gap = 60 * time.Millisecond
)

// killed are the stores on which a whole server is killed.
func killed() []string { return []string{"sqlite", "postgres"} }
