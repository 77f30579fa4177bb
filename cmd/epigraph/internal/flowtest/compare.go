package flowtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/money"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxDifferences bounds the differences of two values that are told.
const maxDifferences = 20

// compare tells how a run differs from what was expected.
func compare(c *workflow.TestCase, s *seen, calls []call) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	e := &c.Expect
	if s.state != e.State {
		add("state: expected %s, got %s%s", e.State, s.state, why(s))
	}
	if e.Error != "" && !says(s.run.GetError(), e.Error) {
		add("error: expected %q, got %q", e.Error, errorText(s.run.GetError()))
	}
	route := s.route()
	if e.Route != nil && !slices.Equal(e.Route, route) {
		add("route: expected %s\n         got %s", strings.Join(e.Route, " → "), strings.Join(route, " → "))
	}
	for _, path := range e.Ran {
		if !slices.ContainsFunc(s.found[path.String()], ran) {
			add("route: the step %q did not run; these did: %s", path, strings.Join(route, ", "))
		}
	}
	for _, path := range e.NotRan {
		if slices.ContainsFunc(s.found[path.String()], ran) {
			add("route: the step %q ran", path)
		}
	}
	if e.Output != nil {
		out = append(out, differences("output", e.Output, raw(s.run.GetResult()))...)
	}
	for i := range e.Steps {
		out = append(out, s.step(&e.Steps[i], calls)...)
	}
	u := s.run.GetUsage()
	if e.USD != nil && float64(u.GetCostNanoUsd()) > *e.USD*1e9 {
		add("cost: expected $%g at most, got %s", *e.USD, money.Dollars(u.GetCostNanoUsd()))
	}
	if e.MaxCalls != nil && u.GetCalls() > int64(*e.MaxCalls) {
		add("max_calls: expected %d at most, got %d", *e.MaxCalls, u.GetCalls())
	}
	return out
}

// why says why a run stands where it stands.
func why(s *seen) string {
	text := errorText(s.run.GetError())
	if text == "" {
		text = s.run.GetStateReason()
	}
	if text == "" && s.state == "WAITING" {
		text = strings.Join(s.asked, "; ")
	}
	if text == "" {
		return ""
	}
	return ": " + text
}

func errorText(e *executorv1.RunError) string {
	if e == nil {
		return ""
	}
	text := e.GetReason() + ": " + e.GetMessage()
	if e.GetNodeId() != "" {
		text = e.GetNodeId() + ": " + text
	}
	return text
}

// says reports whether an error has a reason, or a text in its message.
func says(e *executorv1.RunError, text string) bool {
	return e.GetReason() == text || strings.Contains(e.GetMessage(), text)
}

// ran reports whether a visit has run, to whichever end.
func ran(v *executorv1.Visit) bool {
	switch v.GetState() {
	case executorv1.VisitState_VISIT_STATE_COMPLETED, executorv1.VisitState_VISIT_STATE_FAILED, executorv1.VisitState_VISIT_STATE_ABSTAINED:
		return true
	}
	return false
}

// route are the steps that ran, in the order in which they first ended. Nodes that are not steps of the
// text are left out.
func (s *seen) route() []string {
	out := []string{}
	for _, v := range s.visits {
		id := v.GetNodeId()
		if ran(v) && id != "inputs" && id != "outputs" && !strings.ContainsAny(id, ".#/") && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// step tells how a step differs from what was expected.
func (s *seen) step(e *workflow.StepExpectation, calls []call) []string {
	path := e.Path.String()
	at := "steps." + path
	var last *executorv1.Visit
	n := 0
	for _, v := range s.found[path] {
		if ran(v) {
			last = v
			n++
		}
	}
	var out []string
	if spoke := s.spoke[path]; e.Spoke != nil && !slices.Equal(e.Spoke, spoke) {
		out = append(out, fmt.Sprintf("%s.spoke: expected %s\n         got %s", at, strings.Join(e.Spoke, " → "), strings.Join(spoke, " → ")))
	}
	if e.Calls != nil && n != *e.Calls {
		out = append(out, fmt.Sprintf("%s.calls: expected %d, got %d", at, *e.Calls, n))
	}
	if e.Result == nil && e.Arguments == nil && e.Error == "" && e.Expr == "" {
		return out
	}
	if last == nil {
		return append(out, at+": the step did not run")
	}
	result := values(last)
	if e.Result != nil {
		out = append(out, differences(at+".result", e.Result, result)...)
	}
	if e.Error != "" && !says(last.GetError(), e.Error) {
		out = append(out, fmt.Sprintf("%s.error: expected %q, got %q", at, e.Error, errorText(last.GetError())))
	}
	named := argumentsOf(last, calls)
	switch {
	case e.Arguments != nil && named == nil:
		out = append(out, at+".arguments: they are known of steps whose actor has a stand-in alone")
	case e.Arguments != nil:
		out = append(out, differences(at+".arguments", e.Arguments, named)...)
	}
	if e.Expr != "" {
		out = append(out, holds(at, e.Expr, map[string]json.RawMessage{"result": result, "named": or(named, "{}"), "visit": json.RawMessage(strconv.Itoa(n))})...)
	}
	return out
}

func or(v json.RawMessage, without string) json.RawMessage {
	if v == nil {
		return json.RawMessage(without)
	}
	return v
}

// holds tells of an expression that does not.
func holds(at, expr string, vars map[string]json.RawMessage) []string {
	e, err := workgraph.CompileExpr(context.Background(), expr)
	if err != nil {
		return []string{fmt.Sprintf("%s.expr: %v", at, err)}
	}
	got, err := e.Eval(context.Background(), vars)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s.expr: %s: %v", at, expr, err)}
	case string(got) != "true":
		return []string{fmt.Sprintf("%s.expr: %s gives %s, where the result is %s", at, expr, clip(string(got)), clip(string(vars["result"])))}
	}
	return nil
}

// argumentsOf are those of the last call that a step made of a stand-in in the run of a visit, or nil.
func argumentsOf(v *executorv1.Visit, calls []call) json.RawMessage {
	for _, c := range slices.Backward(calls) {
		if c.run == v.GetRunId() && c.node == v.GetNodeId() {
			out, _ := json.Marshal(c.named) // raw values have a JSON form
			return out
		}
	}
	return nil
}

func raw(p *graphv1.Payload) json.RawMessage {
	if out, err := graphpb.Raw("", p); err == nil && out != nil {
		return out
	}
	return json.RawMessage("null")
}

// values are those of a visit as expressions see them: null for none, the value for one, a list for more.
func values(v *executorv1.Visit) json.RawMessage {
	list := v.GetValues()
	switch len(list) {
	case 0:
		return json.RawMessage("null")
	case 1:
		return raw(list[0])
	}
	all := make([]json.RawMessage, len(list))
	for i, p := range list {
		all[i] = raw(p)
	}
	out, _ := json.Marshal(all) // as above
	return out
}

// differences tells where a value differs from the expected one. Keys of mappings that are not expected are
// not looked at.
func differences(at string, want, got json.RawMessage) []string {
	var d differ
	d.compare(at, decode(want), decode(got))
	return d.out
}

func decode(v json.RawMessage) any {
	var out any
	dec := json.NewDecoder(bytes.NewReader(v))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		return string(v) // what is no JSON equals itself alone
	}
	return out
}

type differ struct{ out []string }

func (d *differ) add(format string, args ...any) {
	if len(d.out) < maxDifferences {
		d.out = append(d.out, fmt.Sprintf(format, args...))
	}
}

func (d *differ) compare(at string, want, got any) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			d.add("%s: expected %s, got %s", at, shown(want), shown(got))
			return
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if v, there := g[key]; there {
				d.compare(at+"."+key, w[key], v)
			} else {
				d.add("%s.%s: expected %s, got nothing", at, key, shown(w[key]))
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			d.add("%s: expected %s, got %s", at, shown(want), shown(got))
			return
		}
		for i := range w {
			d.compare(fmt.Sprintf("%s[%d]", at, i), w[i], g[i])
		}
	case json.Number:
		if g, ok := got.(json.Number); !ok || !equal(w, g) {
			d.add("%s: expected %s, got %s", at, shown(want), shown(got))
		}
	default:
		if want != got {
			d.add("%s: expected %s, got %s", at, shown(want), shown(got))
		}
	}
}

// equal compares numbers by what they are, however they are written.
func equal(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, errA := a.Float64()
	y, errB := b.Float64()
	return errA == nil && errB == nil && x == y && !whole(a, b)
}

// whole reports whether both are whole numbers, whose digits tell them apart.
func whole(a, b json.Number) bool {
	_, errA := a.Int64()
	_, errB := b.Int64()
	return errA == nil && errB == nil
}

func shown(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(out))
}
