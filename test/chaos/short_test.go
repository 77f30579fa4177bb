//go:build !chaos

package chaos_test

// How often executors are killed when all tests run.
const (
	kills            = 3
	stormKills       = 24
	stormKillsSQLite = 10
)
