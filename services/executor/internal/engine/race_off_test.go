//go:build !race

package engine_test

// raced says that the race detector is on.
const raced = false
