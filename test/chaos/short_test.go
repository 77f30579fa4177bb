//go:build !chaos

package chaos_test

import "time"

// How often executors are killed when all tests run.
const (
	kills            = 2
	plans            = 30
	stormKills       = 14
	stormKillsSQLite = 5
	// agentWhole says that an executor is killed at every visit of an agent, and agentLanes how many are at
	// once on each store.
	agentWhole    = false
	agentLanes    = 1
	scheduleKills = 3
	zombies       = 1
	restarts      = 2
	// hookKills are the kills between the end of a run and its webhook, hookHolds those during the delivery.
	hookKills = 1
	hookHolds = 1
	// soakTime is how long one tenant attacks another, soakTimeDev the same on SQLite; soakStrict says that
	// nothing else runs on the machine.
	soakTime    = 30 * time.Second
	soakTimeDev = 0
	soakStrict  = false
	// gap is the time between two starts of the load.
	gap = 200 * time.Millisecond
)

// killed are the stores on which a whole server is killed. It is built with the race detector as the tests
// are, which SQLite bears badly.
func killed() []string { return []string{"postgres"} }
