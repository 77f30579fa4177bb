//go:build race

package plan_test

import "flag"

// underRace reports whether the race detector is on. Tests read fewer texts then, because it makes them about
// ten times as slow.
const underRace = true

func init() {
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
}
