// Package floor owns the benchmarks of what the databases themselves can do on the
// machine at hand: bare commits and batched inserts of rows shaped like those of a
// run's journal. A figure of the journal means something only beside these, taken
// in the same run. It must not know any service.
package floor
