//go:build chaos

package chaos_test

// How often executors are killed in the long tests.
const (
	kills            = 20
	stormKills       = 700
	stormKillsSQLite = 300
)
