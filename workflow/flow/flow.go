// Package flow has the actors behind the steps of workflows that no other actor stands for: those that
// hand out the items of a list, collect what a loop gave, hold a loop at its limit, find the best of
// some attempts, set the state, and tell the user. They are pure, so the executor and programs that run
// graphs in memory have the same ones. The package knows calls and outcomes only.
package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The names of the actors.
const (
	ItemsActor   = "flow/items"
	EachActor    = "flow/each"
	CollectActor = "flow/collect"
	LimitActor   = "flow/limit"
	SetActor     = "flow/set"
	UserActor    = "flow/user"
	BallotActor  = "flow/ballot"
	BestActor    = "flow/best"
	ReplyActor   = "flow/reply"
)

// Reasons of failed calls.
const (
	// ReasonArguments is the reason of a call whose arguments cannot be used.
	ReasonArguments = "FLOW_ARGUMENTS"
	// ReasonNotList is the reason when what is to be gone through is no list.
	ReasonNotList = "NOT_A_LIST"
	// ReasonTooLong is the reason when a list has more items than the step allows.
	ReasonTooLong = "LIST_TOO_LONG"
	// ReasonLimit is the reason of a loop that may not go on, and of the pause of one that may after a
	// resume.
	ReasonLimit = "MAX_ITERATIONS"
	// ReasonType is the reason when a value is of another type than its key of the state.
	ReasonType = "STATE_TYPE"
)

// Actors are all of them by name.
func Actors() workgraph.Actors {
	return workgraph.Actors{ItemsActor: workgraph.ActorFunc(Items), EachActor: workgraph.ActorFunc(Each), CollectActor: workgraph.ActorFunc(Collect),
		LimitActor: workgraph.ActorFunc(Limit), SetActor: workgraph.ActorFunc(Set), UserActor: workgraph.ActorFunc(User),
		BallotActor: workgraph.ActorFunc(Ballot), BestActor: workgraph.ActorFunc(Best),
		ReplyActor: workgraph.ActorFunc(Reply)}
}

// Reply gives the value that it is given. Where there is a chat, it is said there besides.
func Reply(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	v := c.Named[ReplyValue]
	if len(v) == 0 {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "%s is missing: it is what is said", ReplyValue)
	}
	return workgraph.Outcome{Values: []json.RawMessage{v}}, nil
}

// ReplyValue is the argument that has what is said.
const ReplyValue = "value"

// own reads the node's own arguments. Others may come from the caller of the run.
func own(c *workgraph.Call, v any) error {
	for _, raw := range c.Own {
		if len(raw) > maxOwn {
			return workgraph.Errorf(workgraph.Permanent, ReasonArguments, "an argument has more than %d bytes", maxOwn)
		}
	}
	raw, err := json.Marshal(c.Own)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return workgraph.Errorf(workgraph.Permanent, ReasonArguments, "%v", err)
	}
	return nil
}

// maxOwn bounds an argument of a node's own, in bytes.
const maxOwn = 16 << 20

// value is an outcome with one value.
func value(v any) (workgraph.Outcome, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "%v", err)
	}
	return workgraph.Outcome{Values: []json.RawMessage{bytes.TrimSpace(b.Bytes())}}, nil
}

// Items gives the list `over`, which has `max` items at most. A text that is a list as JSON counts as
// that list. With `as` each item becomes the input of a run: {named: {AS: item, index: …}}, with what
// `with` has besides.
func Items(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Max int    `json:"max"`
		As  string `json:"as"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	raw := c.Named["over"]
	var text string
	if json.Unmarshal(raw, &text) == nil && strings.HasPrefix(strings.TrimSpace(text), "[") {
		raw = json.RawMessage(text)
	}
	list := []json.RawMessage{}
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonNotList, "what is to be gone through is no list: %.100s", raw)
	}
	if len(list) > a.Max {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonTooLong, "the list has %d items, the step goes through %d at most", len(list), a.Max)
	}
	if a.As == "" {
		return value(list)
	}
	with := map[string]json.RawMessage{}
	if raw := c.Named["with"]; raw != nil && json.Unmarshal(raw, &with) != nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "`with` is no object")
	}
	type input struct {
		Named map[string]any `json:"named"`
	}
	out := make([]input, len(list))
	for i, item := range list {
		named := make(map[string]any, len(with)+2)
		for k, v := range with {
			named[k] = v
		}
		named[a.As], named["index"] = item, i
		out[i] = input{named}
	}
	return value(out)
}

// round is a result of Each. Next says at which byte of the list the next item stands, and how many
// bytes the list has, so that no round reads the items before its own.
type round struct {
	Item  json.RawMessage `json:"item,omitempty"`
	Index int             `json:"index"`
	Done  bool            `json:"done"`
	Next  [2]int          `json:"next"`
}

// Each gives the next item of the list that the node `list` gave, as {item, index, done}. done says
// that there is none left. The argument `again`, which the edge that goes round hands it, tells the
// next round of the node `loop` from a new beginning.
func Each(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		List string `json:"list"`
		Loop string `json:"loop"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	from, ok := c.Ancestor(a.List)
	raw := bytes.TrimSpace(from.Result())
	if !ok || len(raw) == 0 || raw[0] != '[' {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonNotList, "the node %q gave no list", a.List)
	}
	var r round
	at := 1
	if c.Named["again"] != nil {
		before, ok := c.Ancestor(a.Loop)
		var last round
		if !ok || json.Unmarshal(before.Result(), &last) != nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "the node %q has no earlier round", a.Loop)
		}
		r.Index = last.Index + 1
		if at = last.Next[0]; last.Next[1] != len(raw) || at < 1 || at > len(raw) {
			at = past(raw, r.Index) // the list was written anew
		}
	}
	item, end := itemAt(raw, at)
	r.Item, r.Done, r.Next = item, item == nil, [2]int{end, len(raw)}
	return value(r)
}

// past is the place behind the first n items of a list.
func past(raw []byte, n int) int {
	at := 1
	for range n {
		item, end := itemAt(raw, at)
		if item == nil {
			return at
		}
		at = end
	}
	return at
}

// itemAt is the item of a list at a place behind its bracket or another item, and the place behind it.
// It is nil at the end of the list.
func itemAt(raw []byte, at int) (item json.RawMessage, end int) {
	for at < len(raw) && strings.IndexByte(", \t\r\n", raw[at]) >= 0 {
		at++
	}
	if at >= len(raw) || raw[at] == ']' {
		return nil, at
	}
	dec := json.NewDecoder(bytes.NewReader(raw[at:]))
	if dec.Decode(&item) != nil {
		return nil, at
	}
	return item, at + int(dec.InputOffset())
}

// Collect gives the list of the results that the node `from` gave in the rounds of a loop before.
func Collect(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		From string `json:"from"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	list := c.Rounds(a.From)
	if list == nil {
		list = []json.RawMessage{}
	}
	return value(list)
}

// Limit is called when a loop has gone round as often as it may, `max` times: it pauses the run, which
// a resume lets go on for as many rounds, or with `fail` it fails and tells what the node `last` gave in the
// last round, which is often why.
func Limit(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Max  int    `json:"max"`
		Fail bool   `json:"fail"`
		Last string `json:"last"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Fail {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonLimit, "the loop has gone round %d times%s", a.Max, lastRound(c, a.Last))
	}
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage("null")}, Pause: ReasonLimit}, nil
}

// maxLastRound bounds what is told of the last round of a loop, in bytes.
const maxLastRound = 500

// lastRound says what a node gave in the last round of a loop; empty if that is nothing.
func lastRound(c *workgraph.Call, node string) string {
	if node == "" {
		return ""
	}
	last, ok := c.Ancestor(node)
	if !ok || len(last.Values) != 1 {
		return ""
	}
	told := strings.Join(strings.Fields(text.Of(last.Values[0])), " ")
	if told == "" || told == "null" {
		return ""
	}
	return "; the last round gave: " + text.Clip(told, maxLastRound)
}

// Set updates keys of the run's state by `state`, an object. `types` are JSON Schema types by key; a
// value of another type is refused. The result is `state`.
func Set(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Types map[string]string `json:"types"`
	}
	if err := own(c, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	var updates map[string]json.RawMessage
	if json.Unmarshal(c.Named["state"], &updates) != nil || updates == nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonArguments, "`state` is no object")
	}
	for key, v := range updates {
		if want := a.Types[key]; want != "" && !isOf(v, want) {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonType, "the key %q of the state is of the type %s, not %.100s", key, want, v)
		}
	}
	return workgraph.Outcome{Values: []json.RawMessage{c.Named["state"]}, State: updates}, nil
}

// isOf reports whether a value is of a type of JSON Schema.
func isOf(raw json.RawMessage, kind string) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '"':
		return kind == "string"
	case '{':
		return kind == "object"
	case '[':
		return kind == "array"
	case 't', 'f':
		return kind == "boolean"
	case 'n':
		return kind == "null"
	}
	return kind == "number" || kind == "integer" && !bytes.ContainsAny(raw, ".eE")
}

// User tells for whom the run is done: {user_id, chat_id, run_id}. An id that is not known is null.
func User(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	known := func(id string) *string {
		if id == "" {
			return nil
		}
		return &id
	}
	return value(struct {
		UserID *string `json:"user_id"`
		ChatID *string `json:"chat_id"`
		RunID  *string `json:"run_id"`
	}{known(c.UserID), known(c.ChatID), known(c.RunID)})
}
