//go:build race

package e2e_test

// As scripts/test has them, so that what is built for the tests is not built again.
var buildFlags = []string{"-race", "-gcflags=modernc.org/...=-race=false", "-ldflags=-w"}
