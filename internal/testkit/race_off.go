//go:build !race

package testkit

// Slower is about how much longer everything takes than without the race detector.
const Slower = 1
