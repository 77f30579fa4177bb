package catalog

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/discover"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// ReasonInvalid refuses a text with faults, each of which is a violation.
	ReasonInvalid = "WORKFLOW_INVALID"

	// MaxSource bounds the text of a version, in bytes.
	MaxSource = 1 << 20
	// maxGraph bounds a graph that was unpacked. The compiler makes none that is larger.
	maxGraph = 64 << 20
)

// Form is the form of a text. Its numbers are those of the API and of the stores.
type Form int16

// The forms.
const (
	Definition Form = iota + 1
	Graph
)

// Content is a text with what is kept of it. Only a part of it is read in lists.
type Content struct {
	Form Form
	// Source is the text, Packed its graph as it was compiled: a version means the same for ever.
	Source string
	Packed []byte
	// Hash is that of the text with its form, GraphHash that of the graph.
	Hash, GraphHash string
	// Name, Label, Description and Tags are those of the definition.
	Name, Label, Description string
	Tags                     []string
	Extent                   Extent
	// BudgetNanoUSD and BudgetTokens are caps of a run; nil is none.
	BudgetNanoUSD, BudgetTokens *int64
	// Can is what discovery knows of it.
	Can discover.Capabilities
}

// Read compiles a text. name is that of a graph that has none. Faults, if there are any, are all that there
// are; then nothing is returned.
func Read(form Form, source, name string) (Content, workflow.Faults, error) {
	if len(source) > MaxSource {
		return Content{}, workflow.Faults{{Code: "TOO_LARGE", Message: fmt.Sprintf("the text has more than %d bytes", MaxSource)}}, nil
	}
	c := Content{Form: form, Source: source}
	var g *workgraph.Graph
	var faults workflow.Faults
	if form == Graph {
		g, faults = c.graph(name)
	} else {
		g, faults = c.definition()
	}
	if len(faults) > 0 {
		return Content{}, faults, nil
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d\n", c.Form) + source))
	c.Hash = hex.EncodeToString(sum[:])
	c.Extent = Extent{Nodes: int32(len(g.Nodes)), Edges: int32(len(g.Edges))}
	return c, nil, c.pack(g)
}

func (c *Content) definition() (*workgraph.Graph, workflow.Faults) {
	d, faults := workflow.Read([]byte(c.Source))
	if len(faults) > 0 {
		return nil, faults
	}
	g, faults := workflow.Compile(d)
	if len(faults) > 0 {
		return nil, faults
	}
	c.Form, c.Name, c.Label, c.Description, c.Tags = Definition, d.Name, d.Version, d.Description, d.Tags
	c.BudgetNanoUSD, c.BudgetTokens, c.Can = d.Budget.NanoUSD(), d.Budget.Tokens, discover.CapabilitiesOf(d)
	return g, nil
}

func (c *Content) graph(name string) (*workgraph.Graph, workflow.Faults) {
	g, err := graphpb.ReadModel([]byte(c.Source))
	if err != nil {
		return nil, graphFaults(err)
	}
	if g.Name == "" {
		g.Name = name
	}
	if c.Name = strings.TrimSpace(g.Name); c.Name == "" {
		return nil, workflow.Faults{{Code: "MISSING_KEY", Path: "name", Message: "the graph has no name", Hint: "give it a `name`, or the workflow a slug"}}
	}
	if len(g.Nodes) == 0 {
		return nil, workflow.Faults{{Code: "EMPTY", Path: "nodes", Message: "the graph has no nodes"}}
	}
	if faults := invalid(g); len(faults) > 0 {
		return nil, faults
	}
	c.Can = discover.Capabilities{Triggers: []string{"manual"}}
	for i := range g.Nodes {
		c.Can.Tools = append(c.Can.Tools, g.Nodes[i].Actor)
	}
	slices.Sort(c.Can.Tools)
	c.Can.Tools = slices.Compact(c.Can.Tools)
	return g, nil
}

// invalid are the faults of a graph that no executor would run. Which actors there are is not known here.
func invalid(g *workgraph.Graph) (out workflow.Faults) {
	found, err := workgraph.Validate(context.Background(), g, nil)
	if err != nil {
		return workflow.Faults{{Code: "NO_GRAPH", Message: err.Error()}}
	}
	for _, f := range found {
		out = append(out, workflow.Fault{Code: f.Code, Path: graphpb.FaultPath(f), Message: f.Message, Hint: f.Hint})
	}
	return out
}

func graphFaults(err error) workflow.Faults {
	e := errs.From(err)
	if len(e.Violations) == 0 {
		return workflow.Faults{{Code: "NO_GRAPH", Message: e.Message, Hint: "a graph is JSON with nodes and edges, as `epigraph workflows graph --json` prints it"}}
	}
	var out workflow.Faults
	for _, v := range e.Violations {
		out = append(out, workflow.Fault{Code: v.Reason, Path: v.Field, Message: v.Message})
	}
	return out
}

// pack keeps the graph in the form in which it is hashed.
func (c *Content) pack(g *workgraph.Graph) error {
	raw, err := g.Canonical()
	if err != nil {
		return fmt.Errorf("encode graph: %w", err)
	}
	if c.GraphHash, err = g.Hash(); err != nil {
		return fmt.Errorf("hash graph: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(raw); err != nil {
		return fmt.Errorf("pack graph: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("pack graph: %w", err)
	}
	c.Packed = b.Bytes()
	return nil
}

// Unpack is the graph of a version.
func (c *Content) Unpack() (*workgraph.Graph, error) {
	z, err := gzip.NewReader(bytes.NewReader(c.Packed))
	if err != nil {
		return nil, fmt.Errorf("unpack graph: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(z, maxGraph+1))
	if err == nil && len(raw) > maxGraph {
		err = errors.New("the graph is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("unpack graph: %w", err)
	}
	return workgraph.Decode(json.RawMessage(raw))
}

// Triggers are what starts a version beside calls, each as JSON.
func (c *Content) Triggers() ([]string, error) {
	if c.Form != Definition {
		return nil, nil
	}
	d, faults := workflow.Read([]byte(c.Source))
	if len(faults) > 0 {
		return nil, fmt.Errorf("read triggers of a version that was accepted: %w", faults)
	}
	var out []string
	for _, t := range d.Triggers() {
		b, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("encode trigger: %w", err)
		}
		out = append(out, string(b))
	}
	return out, nil
}

// Refused is the error for a text with faults.
func Refused(faults workflow.Faults) error {
	what := "fault"
	if len(faults) != 1 {
		what = "faults"
	}
	x := errs.New(errs.InvalidArgument, ReasonInvalid, "the workflow has %d %s", len(faults), what).
		Hint("each violation has line and column before its path, and how to mend it behind its message")
	for _, f := range faults {
		field := f.Path
		if f.Line > 0 {
			field = strings.TrimSpace(fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Path))
		}
		message := f.Message
		if f.Hint != "" {
			message += "; " + f.Hint
		}
		x.Violations = append(x.Violations, errs.Violation{Field: field, Reason: f.Code, Message: message})
	}
	return x
}
