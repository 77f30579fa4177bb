package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/genai"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of failed calls.
const (
	// ReasonDown is that of a server that cannot be reached.
	ReasonDown = "MCP_SERVER_DOWN"
	// ReasonTool is that of a tool that says it has failed.
	ReasonTool = "MCP_TOOL_FAILED"
	// ReasonNoTool is that of a tool that its server does not list.
	ReasonNoTool = "MCP_TOOL_UNKNOWN"
	// ReasonProtocol is that of a server that answers with an error or with what cannot be used.
	ReasonProtocol = "MCP_ERROR"
	// ReasonInput is that of a tool that asks for more input, which nobody gives here.
	ReasonInput = "MCP_INPUT_REQUIRED"
	// ReasonRequestSize is that of arguments beyond their bound.
	ReasonRequestSize = "REQUEST_TOO_LARGE"
)

// metaEffectKey is the entry of _meta with the effect key: the same for every attempt of one intent.
const metaEffectKey = "epigraph.run/effect-key"

// largeResult is the size from which on a result asks for room.
const largeResult = 64 << 10

// caller calls one tool.
type caller struct {
	s    *Servers
	sv   *server
	tool string
}

// Call implements workgraph.Actor.
func (a caller) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	within, cancel := context.WithTimeout(ctx, a.sv.cfg.Timeout)
	defer cancel()
	leave, err := a.sv.turns.Enter(within, actor.NamespaceOf(ctx))
	if err != nil {
		return workgraph.Outcome{}, a.early(ctx, c, fmt.Errorf("%d calls are under way at the MCP server %q, and none ended within %s", a.sv.cfg.Parallel, a.sv.name, a.sv.cfg.Timeout))
	}
	defer leave()
	s, err := a.sv.session(within)
	if err != nil {
		return workgraph.Outcome{}, a.early(ctx, c, err)
	}
	params, err := a.params(c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	within, span := a.span(within)
	defer span.End()
	a.s.propagator.Inject(within, carrier(params.Meta))
	token := fmt.Sprintf("%s/%d", c.EffectKey(), c.Attempt)
	params.SetProgressToken(token)
	defer a.sv.watch(token, func(at json.RawMessage) { c.Heartbeat(at) })()
	var note atomic.Pointer[tooLong]
	result, err := a.send(context.WithValue(within, noteKey{}, &note), s, params)
	if err == nil {
		var out workgraph.Outcome
		if out, err = a.outcome(ctx, result, c.Effect); err == nil {
			return out, nil
		}
	} else {
		if long := note.Load(); long != nil {
			err = long
		}
		err = a.fault(ctx, within, s, err, c.Effect)
	}
	class, words := errorType(err), errs.Clip(err.Error(), maxWords)
	if class == toolError { // the words are the tool's result
		words = class
	}
	span.SetStatus(codes.Error, words)
	span.SetAttributes(genai.ErrorType.String(class))
	return workgraph.Outcome{}, err
}

// span begins the span of a call. The operation is named unless a span around this one names it: a call of an
// agent is one execution of a tool.
func (a caller) span(ctx context.Context) (context.Context, trace.Span) {
	attributes := []attribute.KeyValue{attribute.String("mcp.method.name", methodCall), genai.ToolName.String(a.tool), attribute.String("epigraph.mcp.server", a.sv.name)}
	if !genai.IsTool(ctx) {
		attributes = append(attributes, genai.OperationName.String(genai.ExecuteTool))
	}
	return a.s.tracers.Tracer("epigraph/mcp").Start(ctx, methodCall+" "+a.tool, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
}

// methodCall is the method by which MCP servers are asked to execute a tool.
const methodCall = "tools/call"

// toolError is the class of a result that says the tool has failed.
const toolError = "tool_error"

// errorType is the class of an error by the conventions for MCP.
func errorType(err error) string {
	e, ok := errors.AsType[*workgraph.Error](err)
	switch {
	case !ok || e.Reason == "":
		return "_OTHER"
	case e.Reason == ReasonTool:
		return toolError
	}
	return e.Reason
}

// carrier puts the trace context into _meta.
type carrier mcp.Meta

var _ propagation.TextMapCarrier = carrier{}

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string { s, _ := c[key].(string); return s }

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { c[key] = value }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

// params are the call as the server gets it: the node's own arguments, and of those that travel with the run,
// or that a plan gives to every problem, the ones that the tool's schema names.
func (a caller) params(c *workgraph.Call) (*mcp.CallToolParams, error) {
	t, _ := a.sv.tool(a.tool)
	if t == nil {
		return nil, a.unknown()
	}
	args := map[string]json.RawMessage{}
	size := 0
	for name, v := range c.Named {
		_, own := c.Own[name]
		if own = own && (c.Kind != workgraph.ProblemKind || !workgraph.PlanArgument(name)); own || t.properties[name] {
			args[name] = v
			size += len(name) + len(v)
		}
	}
	if size > int(a.sv.cfg.MaxRequestBytes) {
		return nil, workgraph.Errorf(workgraph.Permanent, ReasonRequestSize, "the arguments have %d bytes, at most %d are sent to the MCP server %q", size, int64(a.sv.cfg.MaxRequestBytes), a.sv.name)
	}
	return &mcp.CallToolParams{Meta: mcp.Meta{metaEffectKey: c.EffectKey()}, Name: a.tool, Arguments: args}, nil
}

// unknown is the error of a tool that is not listed.
func (a caller) unknown() error {
	tools, _, _ := a.sv.listed()
	hint := ""
	best := len(a.tool)/3 + 2
	for name := range tools {
		if d := near.Distance(a.tool, name); d < best {
			best, hint = d, fmt.Sprintf("; did you mean %q?", Prefix+a.sv.name+"/"+name)
		}
	}
	return workgraph.Errorf(workgraph.Permanent, ReasonNoTool, "the MCP server %q has no tool %q%s", a.sv.name, a.tool, hint)
}

// send makes the call. It returns soon after ctx ends, also if the server does not even read.
func (a caller) send(ctx context.Context, s *session, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	type answer struct {
		result *mcp.CallToolResult
		err    error
	}
	got := make(chan answer, 1)
	go func() {
		r, err := s.sdk.CallTool(ctx, params)
		got <- answer{r, err}
	}()
	select {
	case r := <-got:
		return r.result, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// early is the error of a call that was not sent.
func (a caller) early(ctx context.Context, c *workgraph.Call, err error) error {
	t := workgraph.Retryable
	if c.Effect == workgraph.Unsafe {
		t = workgraph.NotPerformed
	}
	if ctx.Err() != nil {
		return actor.Interrupted(workgraph.NotPerformed)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = &unreachable{a.sv.name, fmt.Errorf("it was not reached within %s", a.sv.cfg.Timeout), firstPause}
	}
	e := workgraph.Errorf(t, ReasonDown, "%v", err)
	if u, ok := errors.AsType[*unreachable](err); ok {
		e.RetryAfter = workgraph.Duration(u.after)
	}
	return e
}

// fault types a call that was sent and got no result.
func (a caller) fault(ctx, within context.Context, s *session, err error, effect workgraph.Effect) error {
	t := workgraph.Retryable
	if effect == workgraph.Unsafe || ctx.Err() != nil { // the server may go on with it
		t = workgraph.Unknown
	}
	if ctx.Err() != nil {
		return actor.Interrupted(t)
	}
	if within.Err() != nil {
		a.sv.background(func() { a.sv.probe(s) })
		return workgraph.Errorf(t, workgraph.ReasonTimeout, "the MCP server %q gave no result within %s", a.sv.name, a.sv.cfg.Timeout)
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		message := fmt.Sprintf("the MCP server %q refused the call of %q: %s (%d)", a.sv.name, a.tool, errs.Clip(strings.ToValidUTF8(e.Message, ""), maxWords), e.Code)
		switch e.Code {
		case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeParseError:
			return workgraph.Errorf(workgraph.Permanent, ReasonProtocol, "%s", message)
		}
		return workgraph.Errorf(t, ReasonProtocol, "%s", message)
	}
	if errors.Is(err, mcp.ErrSessionMissing) && effect == workgraph.Unsafe {
		t = workgraph.NotPerformed // the server does not know the session any more
	}
	if long, ok := errors.AsType[*tooLong](err); ok {
		a.sv.drop(s, long)
		return workgraph.Errorf(t, ReasonProtocol, "the MCP server %q: %v", a.sv.name, long)
	}
	words := a.sv.words(s, err)
	a.sv.drop(s, words) // whatever it was, a new connection is worth more than this one
	e := workgraph.Errorf(t, ReasonDown, "the MCP server %q was lost during the call: %v", a.sv.name, words)
	e.RetryAfter = workgraph.Duration(firstPause)
	return e
}

// outcome is the result of a call as the run gets it.
func (a caller) outcome(ctx context.Context, r *mcp.CallToolResult, effect workgraph.Effect) (workgraph.Outcome, error) {
	unusable := workgraph.Permanent
	if effect == workgraph.Unsafe { // it was performed, but with which result
		unusable = workgraph.Unknown
	}
	switch {
	case r == nil:
		return workgraph.Outcome{}, workgraph.Errorf(unusable, ReasonProtocol, "the MCP server %q gave no result", a.sv.name)
	case r.NeedsInput():
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonInput, "the tool %q asks for more input, which nobody gives here: give it in the arguments", a.tool)
	case r.IsError:
		text, _ := content(r.Content)
		if text == "" {
			text = "it does not say why"
		}
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, ReasonTool, "%s", errs.Clip(text, maxWords))
	}
	value, err := result(r)
	if err != nil {
		return workgraph.Outcome{}, workgraph.Errorf(unusable, ReasonProtocol, "the result of %q cannot be used: %v", a.tool, err)
	}
	if len(value) > largeResult {
		if err := actor.Room(ctx, int64(len(value))); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	return workgraph.Outcome{Values: []json.RawMessage{value}}, nil
}

// result is the value of a result: its structured content if it has one, else its text, else an object with
// its text and its other content.
func result(r *mcp.CallToolResult) (json.RawMessage, error) {
	if r.StructuredContent != nil {
		return unwrap(r.StructuredContent)
	}
	text, others := content(r.Content)
	switch {
	case len(r.Content) == 0:
		return json.RawMessage("null"), nil
	case len(others) == 0:
		return json.Marshal(text)
	}
	return json.Marshal(struct {
		Text    string  `json:"text"`
		Content []entry `json:"content"`
	}{text, others})
}

// entry is a piece of content that is no text of the tool itself.
type entry struct {
	Type string `json:"type"`
	// Data of images, sound and binary resources is base64.
	Data        []byte `json:"data,omitempty"`
	MIMEType    string `json:"mime_type,omitempty"`
	URI         string `json:"uri,omitempty"`
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Text        string `json:"text,omitempty"`
}

// content takes content apart: its texts, joined by line breaks, and the other pieces.
func content(list []mcp.Content) (text string, others []entry) {
	var texts []string
	for _, c := range list {
		switch c := c.(type) {
		case *mcp.TextContent:
			texts = append(texts, c.Text)
		case *mcp.ImageContent:
			others = append(others, entry{Type: "image", Data: c.Data, MIMEType: c.MIMEType})
		case *mcp.AudioContent:
			others = append(others, entry{Type: "audio", Data: c.Data, MIMEType: c.MIMEType})
		case *mcp.ResourceLink:
			others = append(others, entry{Type: "resource_link", URI: c.URI, Name: c.Name, Title: c.Title, Description: c.Description, MIMEType: c.MIMEType})
		case *mcp.EmbeddedResource:
			if r := c.Resource; r != nil {
				others = append(others, entry{Type: "resource", URI: r.URI, MIMEType: r.MIMEType, Text: r.Text, Data: r.Blob})
			}
		default:
			others = append(others, entry{Type: "unknown"})
		}
	}
	return strings.ToValidUTF8(strings.Join(texts, "\n"), "\uFFFD"), others
}
