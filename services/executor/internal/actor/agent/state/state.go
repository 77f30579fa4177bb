// Package state holds what an agent remembers: one item for each round, and the results of a round's actions.
// It owns their JSON forms. It is pure: it must not know where items are stored.
package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
)

// Item is what is kept of one round.
type Item struct {
	Brief
	// Round counts the rounds of one run, from 1.
	Round int `json:"round"`
	// ReasonerInput is the prompt that the reasoner got. In the tools form it is what was told before the
	// messages of the thread, and the state of the first round has it.
	ReasonerInput string `json:"reasoner_input,omitempty"`
	// Sent is what the reasoner was told of the thread.
	Sent *Sent `json:"sent,omitempty"`
	// RawResponse is what the reasoner gave, whatever it was.
	RawResponse json.RawMessage `json:"raw_response,omitempty"`
	Response    Response        `json:"response"`
	// ActionResults is what became of the round's actions, or nil if there were none.
	ActionResults Results `json:"action_results,omitempty"`
	// Refused says why nothing of the response was done.
	Refused string `json:"refused,omitempty"`
	// Answer is a person's answer to the question of a Pending round: the user input of the next round.
	Answer json.RawMessage `json:"answer,omitempty"`
	// Given are the action results that the round began with, if the next round gets them again.
	Given Results `json:"given,omitempty"`
	// Fingerprint is the same for rounds that did the same with the same result, and Repeats how many such
	// rounds there were in a row.
	Fingerprint string `json:"fingerprint,omitempty"`
	Repeats     int    `json:"repeats,omitempty"`
}

// Span are items of a thread, by sequences.
type Span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Sent says what a reasoner was told of a thread, by sequences. In the tools form it was told in this order:
// the ReasonerInput of About, the Summary, the Input, and the messages from First to Last.
type Sent struct {
	// First and Last are the messages, and the states in the prompt form. They are 0 if there was none.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Input are the messages with the newest user input that come before First.
	Input *Span `json:"input,omitempty"`
	// Summary is the item that stood for what came before First.
	Summary int64 `json:"summary,omitempty"`
	// About is the state whose ReasonerInput was told; in the first round it is the state itself, and 0.
	About int64 `json:"about,omitempty"`
	// Cut is to how many bytes each answer to the last calls was shortened, if they did not fit.
	Cut int `json:"cut,omitempty"`
	// Messages, Tokens, Above and Keep are the policy: the history of the agent's definition.
	Messages int   `json:"messages"`
	Tokens   int64 `json:"tokens"`
	Above    int64 `json:"above,omitempty"`
	Keep     int64 `json:"keep,omitempty"`
	// Failed says why there is no newer summary.
	Failed string `json:"failed,omitempty"`
}

// Next are the action results that the next round begins with.
func (it *Item) Next() Results {
	return append(it.Given[:len(it.Given):len(it.Given)], it.ActionResults...)
}

// Brief is the part of an item that prompts show.
type Brief struct {
	NewTask             bool            `json:"new_task"`
	Status              response.Status `json:"task_status"`
	Description         string          `json:"task_status_description,omitempty"`
	DescriptionExtended string          `json:"task_status_description_extended,omitempty"`
	UserInput           string          `json:"user_input,omitempty"`
	InstantResponse     string          `json:"instant_response,omitempty"`
}

// Response is a response in the form in which it is kept. At most one of NextActions and Graph is set.
type Response struct {
	InstantResponse string              `json:"instant_response,omitempty"`
	NextActions     [][]response.Action `json:"next_actions,omitempty"`
	// Graph is a graph in place of next actions: of actions, or of the problems of a plan.
	Graph            json.RawMessage     `json:"graph,omitempty"`
	InstantLearnings []response.Learning `json:"instant_learnings,omitempty"`
	// Signals are the names of the signals that ended the turn.
	Signals []string `json:"signals,omitempty"`
}

// Results are what became of the actions of a round: one entry for each group, in order.
type Results []Result

// Result is one entry. Exactly one of Value, OK, Error, Skipped, Abstained and Group is set; Action names the
// action in all but Value and Group.
type Result struct {
	Action string `json:"action,omitempty"`
	// Call is the id of the tool call that asked for the action.
	Call string `json:"call,omitempty"`
	// OK is the result of an action, Value one that no action gave.
	OK        json.RawMessage `json:"ok,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	Error     *Failure        `json:"error,omitempty"`
	Skipped   string          `json:"skipped,omitempty"`
	Abstained bool            `json:"abstained,omitempty"`
	// Group are the results of a parallel group.
	Group Results `json:"group,omitempty"`
	// Cut is how many bytes the value had, if only its beginning is kept, as a text.
	Cut int `json:"cut,omitempty"`
}

// Failure is the error of an action.
type Failure struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// reasonRefused is the reason of an entry that says why a response was not carried out.
const reasonRefused = "REFUSED"

// Refusal is the entry of a response of which nothing was done.
func Refusal(why string) Result {
	return Result{Error: &Failure{Type: "NOT_PERFORMED", Reason: reasonRefused, Message: why}}
}

// Refused reports whether the entry is a Refusal.
func (r *Result) Refused() bool {
	return r.Action == "" && r.Error != nil && r.Error.Reason == reasonRefused
}

// Text is what became of an action in words: its result, or why there is none.
func (r *Result) Text() string {
	switch {
	case r.Error != nil:
		return r.Error.Reason + ": " + r.Error.Message
	case r.Skipped != "":
		return r.Skipped
	case r.Abstained:
		return "it gave no result"
	}
	return actor.AsText(r.OK)
}

// Count is how many results there are, those within groups included.
func (r Results) Count() int {
	n := 0
	for i := range r {
		if n++; len(r[i].Group) > 0 {
			n += r[i].Group.Count() - 1
		}
	}
	return n
}

// Each calls f for every result, those within groups included.
func (r Results) Each(f func(*Result)) {
	for i := range r {
		if len(r[i].Group) > 0 {
			r[i].Group.Each(f)
			continue
		}
		f(&r[i])
	}
}

// Cut is the results with the longest values shortened, as texts, so that all values together have at most so
// many bytes, but for two bytes of each.
func (r Results) Cut(most int) Results {
	var sizes []int
	r.Each(func(one *Result) { sizes = append(sizes, len(one.OK)+len(one.Value)) })
	slices.Sort(sizes)
	for i, n := range sizes {
		if others := len(sizes) - i; n*others > most {
			return r.cut(max(0, most/others))
		}
		most -= n
	}
	return r
}

// cut shortens the values that have more bytes than that.
func (r Results) cut(most int) Results {
	out := slices.Clone(r)
	for i := range out {
		out[i].Group = out[i].Group.cut(most)
		for _, v := range []*json.RawMessage{&out[i].OK, &out[i].Value} {
			if len(*v) > most {
				out[i].Cut, *v = max(out[i].Cut, len(*v)), beginning(*v, most)
			}
		}
	}
	return out
}

// beginning is the beginning of a value as a text that has at most so many bytes with its quotes.
func beginning(raw json.RawMessage, most int) json.RawMessage {
	text, err := actor.Encode(Clip(string(raw), most))
	if err != nil || len(text) > most {
		return json.RawMessage(`""`)
	}
	return text
}

// Clip shortens a text so that it has at most so many bytes in JSON, with its quotes, and marks the cut with
// an ellipsis. Less than the five bytes of an ellipsis are not enough for any text but an empty one.
func Clip(s string, most int) string {
	for n := most; ; {
		cut := errs.Clip(s, n)
		text, err := actor.Encode(cut)
		if err != nil || len(text) <= most || n <= 0 {
			return cut
		}
		n = max(0, n/2, n-(len(text)-most)) // quotes and what must be escaped take more
	}
}

// Bytes is how many bytes the values have together.
func (r Results) Bytes() int {
	n := 0
	r.Each(func(one *Result) { n += len(one.OK) + len(one.Value) })
	return n
}

// Given are action results that a caller states. A member of a list with exactly the fields type and result
// is the result of an action, anything else a value. A type is a text of maxType bytes at most.
func Given(raw json.RawMessage) Results {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if one, ok := typed(raw); ok {
		return Results{one}
	}
	var out Results
	some := false
	members, _ := Members(raw, MaxMembers)
	for _, m := range members {
		one, ok := typed(m)
		if !ok {
			one = Result{Value: m}
		}
		some = some || ok
		out = append(out, one)
	}
	if some {
		return out
	}
	return Results{{Value: raw}}
}

// MaxMembers is how many members a list of results may have. A longer one is a single value.
const MaxMembers = 1000

// Members are the members of a list. ok is false for any other value, and for a list of more than so many
// members. It takes no more memory than they do, whatever the value is.
func Members(raw json.RawMessage, most int) (list []json.RawMessage, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('[') {
		return nil, false
	}
	for dec.More() {
		var one json.RawMessage
		if len(list) == most || dec.Decode(&one) != nil {
			return nil, false
		}
		list = append(list, one)
	}
	return list, true
}

// maxType bounds the type of a result that a caller states, in bytes.
const maxType = 256

func typed(raw json.RawMessage) (Result, bool) {
	var m map[string]json.RawMessage
	var name string
	if json.Unmarshal(raw, &m) != nil || len(m) != 2 || len(m["result"]) == 0 || json.Unmarshal(m["type"], &name) != nil || name == "" || len(name) > maxType {
		return Result{}, false
	}
	return Result{Action: name, OK: m["result"]}, true
}

// Plain is the results as other actions and callers see them: the result of each action, a parallel group as
// one list. A round of one group is its result. A Refusal is no result, and a result that was cut is an error
// of ReasonCut. ok is false if there are no results.
func (r Results) Plain() (raw json.RawMessage, ok bool) {
	var all []json.RawMessage
	n := 0
	for i := range r {
		if r[i].Refused() {
			continue
		}
		n++
		if v, ok := r[i].plain(); ok {
			all = append(all, v)
		}
	}
	switch {
	case len(all) == 0:
		return nil, false
	case n == 1:
		return all[0], true
	}
	return actor.List(all), true
}

// WithoutRefusals are the results that actions gave: why an earlier response was refused is told once.
func (r Results) WithoutRefusals() Results {
	return slices.DeleteFunc(slices.Clone(r), func(one Result) bool { return one.Refused() })
}

// ReasonCut is the reason of a result that was too large for the state of its round.
const ReasonCut = "RESULT_TOO_LARGE"

// WasCut reports whether only the beginning of a result is kept.
func (r Results) WasCut() (cut bool) {
	r.Each(func(one *Result) { cut = cut || one.Cut > 0 })
	return cut
}

func (r *Result) plain() (json.RawMessage, bool) {
	switch {
	case r.Cut > 0:
		raw, err := json.Marshal(map[string]*Failure{"error": {Type: "PERMANENT", Reason: ReasonCut,
			Message: fmt.Sprintf("the result has %d bytes, too many for a state to keep: keep it elsewhere and give a reference", r.Cut)}})
		return raw, err == nil
	case len(r.Value) > 0:
		return r.Value, true
	case len(r.OK) > 0:
		return r.OK, true
	case r.Error != nil:
		raw, err := json.Marshal(map[string]*Failure{"error": r.Error})
		return raw, err == nil
	case len(r.Group) > 0:
		all := []json.RawMessage{}
		for i := range r.Group {
			if v, ok := r.Group[i].plain(); ok {
				all = append(all, v)
			}
		}
		return actor.List(all), true
	}
	return nil, false
}
