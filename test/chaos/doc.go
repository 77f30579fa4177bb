// Package chaos kills real executor processes in the middle of running plans and then counts, in the databases and in a log of
// what actors did, whether anything was lost or done twice. It has no code of its own outside of tests.
package chaos
