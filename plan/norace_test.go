//go:build !race

package plan_test

// underRace tells that the detector of races is on.
const underRace = false
