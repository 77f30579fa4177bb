//go:build !race

package plan_test

// underRace reports whether the race detector is on.
const underRace = false
