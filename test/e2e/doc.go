// Package e2e runs the built binary as a whole over real ports. It has no code of its own outside of tests.
package e2e
