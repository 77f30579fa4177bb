//go:build chaos

package chaos_test

// kills is how often the executor is killed in the long test.
const kills = 20
