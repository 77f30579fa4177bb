package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
)

// deed is what an action of a round is about, without what a model words or numbers anew each time: its
// reasoning, and the id of its call.
type deed struct {
	Type      string
	Arguments map[string]any
}

// compare counts how often the agent did the same with the same result.
func (r *round) compare(item *state.Item) {
	sum, ok := fingerprint(item)
	if !ok {
		return // cannot happen: all of it was read from JSON
	}
	item.Fingerprint, item.Repeats = sum, 1
	if r.last != nil && r.last.Fingerprint == sum && item.Status == response.Ongoing && !(r.d.MaxNoProgress > 0 && r.last.Repeats >= r.d.MaxNoProgress) {
		item.Repeats = r.last.Repeats + 1
	}
}

// fingerprint is the same for rounds that did the same with the same result.
func fingerprint(item *state.Item) (string, bool) {
	deeds := make([][]deed, len(item.Response.NextActions))
	for i, group := range item.Response.NextActions {
		for k := range group {
			d := deed{Type: group[k].Type, Arguments: make(map[string]any, len(group[k].Arguments))}
			for name, raw := range group[k].Arguments {
				d.Arguments[name] = canonical(raw)
			}
			deeds[i] = append(deeds[i], d)
		}
	}
	all := []any{item.Status, deeds, withoutCalls(item.ActionResults)}
	switch graph := item.Response.Graph; {
	case len(graph) > 0:
		all = append(all, canonical(graph))
	case len(deeds) == 0:
		all = append(all, item.Description) // all that such a round does is to tell how far it is
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return "", false
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16]), true
}

// canonical is a value with the keys of its objects in order, when it is encoded.
func canonical(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return string(raw)
	}
	return v
}

// withoutCalls are results without the ids of the tool calls that asked for them.
func withoutCalls(rs state.Results) state.Results {
	out := make(state.Results, len(rs))
	for i := range rs {
		out[i] = rs[i]
		out[i].Call = ""
		out[i].Group = withoutCalls(rs[i].Group)
	}
	return out
}
