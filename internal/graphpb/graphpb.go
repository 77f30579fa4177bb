// Package graphpb owns the translation between the wire form of a WorkGraph (epigraph.graph.v1) and the model
// that runs (workgraph), and of graph faults into errors that name every place. Neither direction loses
// anything: a value that the other side cannot express is a fault. The package must not know any service, nor
// decide whether a graph can run.
package graphpb

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Codes of the faults that a translation finds; validation has codes of its own.
const (
	// CodePayload is a value that is not one JSON text in UTF-8.
	CodePayload = "PAYLOAD_INVALID"
	// CodeEnum is an enum value that the other side does not know.
	CodeEnum = "VALUE_UNKNOWN"
	// CodeDuration is a duration out of range.
	CodeDuration = "DURATION_INVALID"
)

// ReasonGraphInvalid is the reason of the error that FaultError makes.
const ReasonGraphInvalid = "GRAPH_INVALID"

// ToProto writes g in wire form. The error is a workgraph.Faults that lists what the wire form has no word
// for; a graph that passed validation has none. Raw JSON is shared with g, not copied.
func ToProto(g *workgraph.Graph) (*graphv1.Graph, error) {
	w := &writer{}
	out := &graphv1.Graph{Name: g.Name}
	for i := range g.Nodes {
		w.place = workgraph.Fault{Node: g.Nodes[i].ID}
		out.Nodes = append(out.Nodes, w.node(&g.Nodes[i]))
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		w.place = workgraph.Fault{From: e.From, To: e.To}
		out.Edges = append(out.Edges, &graphv1.Edge{
			From: e.From, To: e.To, When: e.When,
			Kind:               encode(w, "kind", edgeKinds, e.Kind),
			ResultPassDownMode: w.passDown(e.PassDown),
		})
	}
	if g.State != nil {
		out.State = make(map[string]*graphv1.StateKey, len(g.State))
	}
	for k, v := range g.State {
		w.place = workgraph.Fault{}
		out.State[k] = &graphv1.StateKey{Reducer: encode(w, "state."+k+".reducer", reducers, v.Reducer), Initial: Payload(v.Initial)}
	}
	return out, w.err()
}

// FromProto reads the wire form. The error is a workgraph.Faults with every fault of the translation; the
// graph is returned all the same, without the faulty parts, so that validation can add its own findings. Raw
// JSON is shared with g, not copied.
func FromProto(g *graphv1.Graph) (*workgraph.Graph, error) {
	r := &reader{}
	out := &workgraph.Graph{Name: g.GetName()}
	for _, n := range g.GetNodes() {
		r.place = workgraph.Fault{Node: n.GetId()}
		out.Nodes = append(out.Nodes, r.node(n))
	}
	for _, e := range g.GetEdges() {
		r.place = workgraph.Fault{From: e.GetFrom(), To: e.GetTo()}
		out.Edges = append(out.Edges, workgraph.Edge{
			From: e.GetFrom(), To: e.GetTo(), When: e.GetWhen(),
			Kind:     decode(r, "kind", edgeKinds, e.GetKind()),
			PassDown: r.passDown(e.GetResultPassDownMode()),
		})
	}
	if len(g.GetState()) > 0 {
		out.State = make(map[string]workgraph.StateKey, len(g.GetState()))
	}
	for k, v := range g.GetState() {
		r.place = workgraph.Fault{}
		out.State[k] = workgraph.StateKey{
			Reducer: decode(r, "state."+k+".reducer", reducers, v.GetReducer()),
			Initial: r.optional("state."+k+".initial", v.GetInitial()),
		}
	}
	return out, r.err()
}

// Payload wraps one JSON text; nil for no value.
func Payload(raw json.RawMessage) *graphv1.Payload {
	if raw == nil {
		return nil
	}
	return &graphv1.Payload{Json: raw}
}

// Payloads wraps a list of JSON texts.
func Payloads(raw []json.RawMessage) []*graphv1.Payload {
	if raw == nil {
		return nil
	}
	out := make([]*graphv1.Payload, len(raw))
	for i, v := range raw {
		out[i] = &graphv1.Payload{Json: v}
	}
	return out
}

// PayloadMap wraps JSON texts by name.
func PayloadMap(raw map[string]json.RawMessage) map[string]*graphv1.Payload {
	if raw == nil {
		return nil
	}
	out := make(map[string]*graphv1.Payload, len(raw))
	for k, v := range raw {
		out[k] = &graphv1.Payload{Json: v}
	}
	return out
}

// Raw is the JSON text of p: nil when p carries no value, an error naming field when it is not one JSON text.
func Raw(field string, p *graphv1.Payload) (json.RawMessage, error) {
	b := p.GetJson()
	if len(b) == 0 {
		return nil, nil
	}
	if fault := workgraph.ValueFault(b); !utf8.Valid(b) || fault != "" {
		f := workgraph.Fault{Code: CodePayload, Field: field, Message: "the value is not one JSON text in UTF-8",
			Hint: "encode the value as JSON; a text needs its quotes"}
		if utf8.Valid(b) && json.Valid(b) {
			f.Message, f.Hint = "the value "+fault, "keep it flatter, or send it as a text that holds JSON"
		}
		return nil, workgraph.Faults{f}
	}
	return b, nil
}

// RawList reads a list; an absent value is null. All faults are reported at once.
func RawList(field string, ps []*graphv1.Payload) ([]json.RawMessage, error) {
	r := &reader{}
	out := r.list(field, ps)
	return out, r.err()
}

// RawMap reads values by name; an absent value is null. All faults are reported at once.
func RawMap(field string, ps map[string]*graphv1.Payload) (map[string]json.RawMessage, error) {
	r := &reader{}
	out := r.named(field, ps)
	return out, r.err()
}

// Effect is the wire form of an effect; the empty one is unspecified.
func Effect(e workgraph.Effect) graphv1.Effect { return effects.to(e) }

// EffectOf reads the wire form of an effect; one that is not known is empty.
func EffectOf(e graphv1.Effect) workgraph.Effect { return decode(&reader{}, "effect", effects, e) }

// renamed pairs fields of the model with what the wire form calls them.
func renamed() []string {
	return []string{
		"join.mode", "join.kind", "join.n", "join.quorum", "retry.initial_backoff", "retry.initial_interval", "retry.max_backoff", "retry.max_interval",
		"retry.multiplier", "retry.backoff_factor", "check.schema", "check.json_schema", "on_error.action", "on_error.kind",
		"on_error.value", "on_error.fallback", "result_pass_down_mode.expr", "result_pass_down_mode.merge",
	}
}

// wire is a fault in the words of the wire form.
func wire(f workgraph.Fault) workgraph.Fault {
	words := strings.NewReplacer(renamed()...)
	f.Field, f.Hint = words.Replace(f.Field), words.Replace(f.Hint)
	if f.Code == workgraph.CodeBadQuorum {
		f.Hint = strings.Replace(f.Hint, "drop n", "drop quorum", 1)
		f.Message = strings.Replace(f.Message, "n belongs to the mode QUORUM", "quorum belongs to the kind QUORUM", 1)
	}
	return f
}

// Fault is the wire form of one fault; its field is that of the wire form.
func Fault(f workgraph.Fault) *graphv1.Fault {
	f = wire(f)
	return &graphv1.Fault{Code: f.Code, NodeId: f.Node, Edge: edgeName(f), Field: f.Field, Message: f.Message, Hint: f.Hint}
}

// FaultError makes the one error that names every fault: the violation's field is the place (node, edge,
// field), its reason the code, its message the fault with its hint.
func FaultError(faults []workgraph.Fault) *errs.Error {
	faults = slices.Clone(faults)
	for i := range faults {
		faults[i] = wire(faults[i])
	}
	e := errs.New(errs.InvalidArgument, ReasonGraphInvalid, "the graph has %d faults", len(faults))
	if len(faults) == 1 {
		said, _, _ := strings.Cut(faults[0].Message, "\n")
		e.Message = "the graph has a fault: " + said
	}
	if len(faults) > 0 && faults[0].Hint != "" {
		e = e.Hint(faults[0].Hint)
	}
	e.Violations = make([]errs.Violation, 0, len(faults))
	for _, f := range faults {
		e.Violations = append(e.Violations, violation(f))
	}
	return e
}

func violation(f workgraph.Fault) errs.Violation {
	msg := f.Message
	if f.Hint != "" { // before the picture of the place, if there is one
		said, picture, _ := strings.Cut(msg, "\n")
		msg = strings.TrimSuffix(said+"; "+f.Hint+"\n"+picture, "\n")
	}
	return errs.Violation{Field: FaultPath(f), Reason: f.Code, Message: msg}
}

// Violations are the faults that a service found in a graph, as FaultError has them.
func Violations(faults []*graphv1.Fault) []errs.Violation {
	out := make([]errs.Violation, 0, len(faults))
	for _, f := range Faults(faults) {
		out = append(out, violation(f))
	}
	return out
}

// Faults are the faults that a service found in a graph; their fields are those of the wire form.
func Faults(faults []*graphv1.Fault) []workgraph.Fault {
	out := make([]workgraph.Fault, 0, len(faults))
	for _, f := range faults {
		from, to, _ := strings.Cut(f.GetEdge(), " -> ")
		out = append(out, workgraph.Fault{Node: f.GetNodeId(), From: from, To: to, Field: f.GetField(), Code: f.GetCode(), Message: f.GetMessage(), Hint: f.GetHint()})
	}
	return out
}

// FaultPath names where a fault is: "graph", node "n1" as graph.nodes[n1], an edge as graph.edges[a -> b],
// each with the field.
func FaultPath(f workgraph.Fault) string {
	var b strings.Builder
	b.WriteString("graph")
	switch {
	case f.From != "" || f.To != "":
		b.WriteString(".edges[" + edgeName(f) + "]")
	case f.Node != "":
		b.WriteString(".nodes[" + f.Node + "]")
	}
	if f.Field != "" {
		b.WriteString("." + f.Field)
	}
	return b.String()
}

func edgeName(f workgraph.Fault) string {
	if f.From == "" && f.To == "" {
		return ""
	}
	return f.From + " -> " + f.To
}

// faultList collects faults at the place that is being translated.
type faultList struct {
	place  workgraph.Fault
	faults workgraph.Faults
}

// add adds a fault until the list has the most that are reported of one graph.
func (l *faultList) add(code, field, message, hint string) {
	switch n := len(l.faults); {
	case n > workgraph.MaxFaults:
		return
	case n == workgraph.MaxFaults:
		l.place, code, field, message, hint = workgraph.Fault{}, workgraph.CodeMoreFaults, "", "and more of the kind", "mend these and ask again"
	}
	f := l.place
	f.Code, f.Field, f.Message, f.Hint = code, field, message, hint
	l.faults = append(l.faults, f)
}

func (l *faultList) err() error {
	if len(l.faults) == 0 {
		return nil
	}
	// State keys come in map order; the rest is in declared order already.
	slices.SortStableFunc(l.faults, func(a, b workgraph.Fault) int {
		if a.Node+a.From+a.To != "" || b.Node+b.From+b.To != "" {
			return 0
		}
		return strings.Compare(a.Field, b.Field)
	})
	return l.faults
}

func (l *faultList) payload(field string, p *graphv1.Payload) (json.RawMessage, bool) {
	raw, err := Raw(field, p)
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		l.add(CodePayload, field, faults[0].Message, faults[0].Hint)
		return nil, false
	}
	return raw, true
}

func duration(d workgraph.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(time.Duration(d))
}

func (r *reader) duration(field string, d *durationpb.Duration) workgraph.Duration {
	if d == nil {
		return 0
	}
	v := d.AsDuration()
	if err := d.CheckValid(); err != nil || durationpb.New(v).GetSeconds() != d.GetSeconds() {
		r.add(CodeDuration, field, fmt.Sprintf("%d s is not a duration that can be waited for", d.GetSeconds()), "stay below 292 years")
		return 0
	}
	return workgraph.Duration(v)
}
