package team

import (
	"encoding/json"
	"slices"
	"time"
)

// State is where a team stands. The zero value is a team that has not begun. It is plain data: keep it
// as JSON.
type State struct {
	// Seq is the sequence of the last message of the log. A caller that keeps other things between them
	// may raise it.
	Seq int64 `json:"seq"`
	// Heard is the last message that was in the log when a member was called.
	Heard map[string]int64 `json:"heard,omitempty"`
	// Missed are the messages up to Heard that a member was not given, though it was called. They are kept
	// for those who share its thread and have not been called since.
	Missed map[string][]Span `json:"missed,omitempty"`
	// Queues are the inboxes of members that speak as messages come.
	Queues map[string][]Queued `json:"queues,omitempty"`
	// Ready are those who speak next, in order, and Speaking those who speak now.
	Ready    []string  `json:"ready,omitempty"`
	Speaking []Speaker `json:"speaking,omitempty"`
	// Arrived are the transitions, by their place, that have come to a member that waits for more.
	Arrived map[string][]int `json:"arrived,omitempty"`
	// Last is who spoke last, and Before who spoke before.
	Last   string `json:"last,omitempty"`
	Before string `json:"before,omitempty"`
	// Lost is somebody who is no member and to whom the last speaker handed over.
	Lost string `json:"lost,omitempty"`
	// Values is the team's state.
	Values map[string]json.RawMessage `json:"values,omitempty"`
	// Choosing is set while a model is asked who speaks next.
	Choosing *Question `json:"choosing,omitempty"`
	// Over is set when the team has ended.
	Over *Stopped `json:"over,omitempty"`

	// What follows is of the present run: Begin sets it back.

	Began    time.Time `json:"began"`
	Turns    int       `json:"turns"`
	Messages int       `json:"messages"`
	// Fired are the parts of conditions that have held, with their reasons.
	Fired map[string]Stopped `json:"fired,omitempty"`
	// Raised is how often a limit was passed after a pause.
	Raised map[string]int `json:"raised,omitempty"`
}

// Span are the messages of the log after one, up to another one.
type Span struct {
	After int64 `json:"after"`
	Last  int64 `json:"last"`
}

// Queued is a message that waits in an inbox.
type Queued struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	// Known says that it is in the member's thread already, by somebody who shares it.
	Known bool `json:"known,omitempty"`
	// Past says that it belongs to a request in whose place another one came: the member hears it with the
	// next message, and is not called by it.
	Past bool `json:"past,omitempty"`
}

// Speaker is somebody who speaks now.
type Speaker struct {
	Name string `json:"name"`
	// After and Last are the messages of the log that were said since it was called before.
	After int64 `json:"after"`
	Last  int64 `json:"last"`
	// Took are the messages that called it, if it speaks as messages come.
	Took []Queued `json:"took,omitempty"`
	// Missed is the last of these messages that it was not given; those after it are in its thread. It is
	// kept for members that share a thread.
	Missed int64 `json:"missed,omitempty"`
}

// clone is a copy that shares nothing that is changed.
func (st *State) clone() *State {
	c := *st
	c.Heard, c.Arrived, c.Values = cloneMap(st.Heard), cloneMap(st.Arrived), cloneMap(st.Values)
	c.Queues, c.Fired, c.Raised = cloneMap(st.Queues), cloneMap(st.Fired), cloneMap(st.Raised)
	c.Missed = cloneMap(st.Missed)
	for k, q := range c.Queues {
		c.Queues[k] = slices.Clone(q)
	}
	c.Ready, c.Speaking = slices.Clone(st.Ready), slices.Clone(st.Speaking)
	return &c
}

// cloneMap is a copy that is never nil.
func cloneMap[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
