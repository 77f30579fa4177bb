package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// signal is a tool that ends the agent's turn: nothing is called, and whoever called the agent hears of it.
type signal struct {
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	// Reply is what the model is told, with arguments as {NAME}.
	Reply string `json:"reply,omitempty"`

	schema *workgraph.Schema
	// fault says why the signal cannot be used. It is of definitions that were checked before.
	fault error
}

const (
	argSignals   = "signals"
	argAsMessage = "as_message"
	// maxReply bounds a reply in bytes, and maxReplied what it shows of one argument in characters.
	maxReply, maxReplied = 2 << 10, 100
	defaultReply         = "noted"
)

// replied is an argument in a reply.
var replied = regexp.MustCompile(`\{[A-Za-z0-9_.-]{1,64}\}`)

// checkSignals reports a signal that cannot be used, or whose name stands for something else already.
func (d *definition) checkSignals() error {
	if n := len(d.Signals) + len(d.Actions); len(d.Signals) > 0 && n > maxActionNames {
		return badArgument(argSignals, "signals: with the actions there are %d, the limit is %d", n, maxActionNames)
	}
	for _, name := range sorted(d.Signals) {
		if !actionName.MatchString(name) {
			return badArgument(argSignals, "signals: %.80q is no name: use up to 64 letters, digits, _, . and -", name)
		}
		if _, taken := d.Actions[name]; taken {
			return badArgument(argSignals, "signals.%s: an action has this name: name one of them otherwise", name)
		}
		if slices.Contains(d.TaskTools, name) {
			return badArgument(argSignals, "signals.%s: a tool of the agent's own has this name: name the signal otherwise, or leave %s out of task_tools", name, name)
		}
		if err := d.Signals[name].fault; err != nil {
			return badArgument(argSignals, "signals.%s: %v", name, err)
		}
	}
	return nil
}

// check makes a signal ready, or says why it cannot be used.
func (s *signal) check(ctx context.Context) error {
	if len(s.Reply) > maxReply {
		return fmt.Errorf("reply has %d bytes, the limit is %d", len(s.Reply), maxReply)
	}
	if len(s.Schema) == 0 {
		return nil
	}
	var err error
	if s.schema, err = workgraph.CompileSchema(ctx, s.Schema); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	if s.Schema[0] != '{' {
		return fmt.Errorf("schema: write an object")
	}
	known := properties(s.Schema)
	for _, place := range replied.FindAllString(s.Reply, -1) {
		if _, ok := known[place[1:len(place)-1]]; !ok && len(known) > 0 {
			return fmt.Errorf("reply: %s is none of the properties of the schema: use %s", place, strings.Join(sorted(known), ", "))
		}
	}
	return nil
}

// reply is what the model is told of a call, in about as many bytes at most.
func (s *signal) reply(arguments map[string]json.RawMessage, most int) string {
	shown := map[string]string{} // each argument is read once, however often it is shown
	text := replied.ReplaceAllStringFunc(s.Reply, func(place string) string {
		one, ok := shown[place]
		if !ok {
			one = short(actor.AsText(arguments[place[1:len(place)-1]]))
			shown[place] = one
		}
		return one
	})
	if text = errs.Clip(strings.TrimSpace(text), most); text == "" {
		return defaultReply
	}
	return text
}

// short is the beginning of a text, with an ellipsis if that is not all of it.
func short(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxReplied {
			return s[:i] + "…"
		}
	}
	return s
}

// signals takes the calls of signals out of a response. A call whose arguments do not fit is none, and is
// told so.
func (d *definition) signals(ctx context.Context, said *response.Response) {
	said.TakeSignals(func(name string, arguments map[string]json.RawMessage) (string, bool, error) {
		s, ok := d.Signals[name]
		if !ok {
			return "", false, nil
		}
		if s.fault != nil {
			return "", true, s.fault
		}
		if s.schema != nil {
			raw, err := actor.Encode(arguments)
			if err == nil {
				err = s.schema.Check(ctx, raw)
			}
			if err != nil {
				return "", true, fmt.Errorf("the arguments of %s are not what its schema asks for: %s", name, plain(err))
			}
		}
		return s.reply(arguments, d.MaxResultBytes), true, nil
	})
}

// add takes over what a call of an agent with a name adds to its definition, of which d is a copy. The
// signals that were there before are shared with others, and stay as they are.
func (d *definition) add(ctx context.Context, given map[string]json.RawMessage) error {
	var more struct {
		Signals   map[string]*signal `json:"signals"`
		AsMessage *bool              `json:"as_message"`
	}
	if err := own(given, &more, []string{argSignals, argAsMessage}); err != nil {
		return err
	}
	if more.AsMessage != nil {
		d.AsMessage = *more.AsMessage
	}
	if len(more.Signals) == 0 {
		return nil
	}
	if d.Form != formTools {
		return badArgument(argSignals, "%s", toolsOnly)
	}
	all := maps.Clone(d.Signals)
	if all == nil {
		all = map[string]*signal{}
	}
	for _, name := range sorted(more.Signals) {
		if _, taken := all[name]; taken {
			return badArgument(argSignals, "signals.%.80s: the agent has a signal of this name already: name the other one otherwise", name)
		}
		s := more.Signals[name]
		if s == nil {
			s = &signal{}
		}
		s.fault = s.check(ctx)
		all[name] = s
	}
	d.Signals = all
	return d.checkSignals()
}

// toolsOnly says why an agent of another form has no signals.
const toolsOnly = `signals has no effect: only the tools form calls tools: write "form": "tools" too`

// answer is the result of an agent whose caller asks for a message.
type answer struct {
	Text string `json:"text"`
	// Calls are the actions that were called in the turn, each once.
	Calls   []string          `json:"calls"`
	Signals []response.Signal `json:"signals"`
	Thread  string            `json:"thread_id"`
}

// signaled is the result of an agent whose turn a signal has ended, if its caller does not ask for a message.
type signaled struct {
	Text    string            `json:"text"`
	Signals []response.Signal `json:"signals"`
}

// signal is the end of a turn by the signals of a response.
func (r *round) signal(said *response.Response, item *state.Item) ending {
	r.signaled = true
	for i := range said.Signals {
		item.Response.Signals = append(item.Response.Signals, said.Signals[i].Name)
	}
	return ending{over: true}
}

// called are the actions that were called in the turn, with those of the round.
func (r *round) called(said *response.Response, item *state.Item) []string {
	out := slices.Clip(r.at.Called)
	if _, decided := standing.Source(r.c, nodeAct); decided {
		return out // nothing was called
	}
	add := func(name string) {
		if r.d.Actions[name] != nil && !said.Compiled && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for i := range item.ActionResults {
		item.ActionResults[i : i+1].Each(func(one *state.Result) {
			if one.Skipped == "" {
				add(one.Action)
			}
		})
		if one := &item.ActionResults[i]; one.Action == "" && len(one.Group) == 0 {
			// What a summarizer made of a group, or a round that gave no results at all.
			for k, group := range said.Groups {
				for n := range group {
					if k == i || len(one.Value) == 0 {
						add(group[n].Type)
					}
				}
			}
		}
	}
	return out
}

// final is the outcome at the end of a turn, with the result of the run.
func (r *round) final(end *ending, said *response.Response, at *position) (workgraph.Outcome, error) {
	text, raised := actor.AsText(end.result), []response.Signal{}
	if r.signaled {
		text, raised = said.InstantResponse, said.Signals
	}
	var out any
	switch {
	case r.d.AsMessage:
		out = answer{Text: text, Calls: append([]string{}, at.Called...), Signals: raised, Thread: at.Thread}
	case r.signaled:
		out = signaled{text, raised}
	}
	o, err := workgraph.Outcome{Values: []json.RawMessage{end.result}}, error(nil)
	if out != nil {
		o, err = value(out)
	}
	o.Select = &workgraph.Select{Others: workgraph.SelectNone}
	return o, err
}
