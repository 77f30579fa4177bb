//go:build !chaos

package chaos_test

// kills is how often the executor is killed when all tests run.
const kills = 3
