//go:build race

package plan_test

import "flag"

// underRace tells that the detector of races makes all of this about ten times as slow: then fewer texts
// are read.
const underRace = true

func init() {
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
}
