// Package chaos kills real executor processes in the middle of running plans. Then it counts, in the
// databases and in a log of the actors' effects, whether anything was lost or done twice. It has no code
// outside of tests.
package chaos
