//go:build race

package testkit

// Slower is about how much longer everything takes under the race detector: attacks that are measured by what
// they allocate or count are so much smaller there.
const Slower = 10
