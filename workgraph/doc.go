// Package workgraph owns the WorkGraph: its model, its validation, the pure state machine that runs it and a
// small in-memory runner. The machine has no clock, no goroutine and no I/O. Commands bring time and outcomes
// in as values; events for the journal and the work that may start come out. The package must not know how
// events are stored, how actors are reached, or any wire format but the JSON of its own types.
package workgraph
