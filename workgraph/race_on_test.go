//go:build race

package workgraph

// slower is about how much longer everything takes under the race detector.
const slower = 10
