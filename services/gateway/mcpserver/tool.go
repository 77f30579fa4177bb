package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// maxAnswer bounds an answer, in bytes; what is larger is left out by the tool that answers.
	maxAnswer = 256 << 10
	// maxPart bounds one value within an answer, and maxTold a text that only tells what something
	// is about.
	maxPart, maxTold = 64 << 10, 300
	// maxList is how many entries a list has at most.
	maxList = 100
	// maxFaults is how many faults of a text are told.
	maxFaults = 20

	reasonArguments = "ARGUMENTS_INVALID"
)

// tool is a tool of the server.
type tool struct {
	name, description string
	// schema is the JSON Schema of the arguments.
	schema string
	// reads says that it changes nothing, and repeats that calling it again changes nothing more.
	reads, repeats bool
	// destroys says that it may end or replace what is there, or start what has effects outside.
	destroys bool
	does     func(ctx context.Context, c *call) (any, error)

	// fields are the names of the arguments; nil takes any.
	fields []string
}

// named reads the names of the arguments out of the schema.
func (t *tool) named() error {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	err := json.Unmarshal([]byte(t.schema), &s)
	t.fields = slices.Sorted(maps.Keys(s.Properties))
	return err
}

// known refuses arguments that the tool does not have.
func (t *tool) known(args json.RawMessage) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(args, &given) != nil {
		return nil // the reader of the arguments tells what is wrong
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(t.fields, name) {
			return errs.New(errs.InvalidArgument, reasonArguments, "%s has no argument %q", t.name, errs.Clip(name, 100)).Hint("its arguments are " + strings.Join(t.fields, ", "))
		}
	}
	return nil
}

func (t *tool) told() *mcp.Tool {
	return &mcp.Tool{Name: t.name, Description: t.description, InputSchema: json.RawMessage(t.schema), Annotations: &mcp.ToolAnnotations{
		ReadOnlyHint: t.reads, IdempotentHint: t.repeats || t.reads, DestructiveHint: &t.destroys,
	}}
}

// call is one call of a tool.
type call struct {
	*Server
	req  *mcp.CallToolRequest
	args json.RawMessage
	// declined says that the client does not answer the question of the run.
	declined bool
	// unanswered is why the answer that the client gave was refused.
	unanswered error
	// part bounds a result in bytes; 0 means maxPart.
	part  int
	steps *progress
}

// read decodes the arguments. What is not known is refused by name.
func (c *call) read(into any) error { return strict(c.args, into) }

func strict(raw json.RawMessage, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		raw = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more behind the object")
		}
	}
	if err != nil {
		return badArguments("the arguments do not fit: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func badArguments(format string, args ...any) error {
	return errs.New(errs.InvalidArgument, reasonArguments, format, args...).Hint("tools/list has the schema of the arguments")
}

// call answers a call. A fault is an answer, too, so that a model can read it and do better.
func (s *Server) call(ctx context.Context, t *tool, r *mcp.CallToolRequest) *mcp.CallToolResult {
	if t.fields != nil {
		if err := t.known(r.Params.Arguments); err != nil {
			return s.refused(ctx, t.name, err)
		}
	}
	out, err := t.does(ctx, &call{Server: s, req: r, args: r.Params.Arguments, steps: &progress{}})
	if err != nil {
		return s.refused(ctx, t.name, err)
	}
	if res, ok := out.(*mcp.CallToolResult); ok {
		return res
	}
	return s.answer(ctx, t.name, out, false)
}

// answer is an answer as JSON, as a text and as a value.
func (s *Server) answer(ctx context.Context, name string, v any, failed bool) *mcp.CallToolResult {
	raw, err := json.Marshal(v)
	if err == nil && len(raw) > maxAnswer {
		err = errs.New(errs.ResourceExhausted, "ANSWER_TOO_LARGE", "the answer has %d bytes, the limit is %d", len(raw), maxAnswer).Hint("ask for less: a smaller limit, or one entry")
	}
	if err != nil && !failed {
		return s.refused(ctx, name, err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}, StructuredContent: json.RawMessage(raw), IsError: failed}
}

// fault is a fault of a text or of a field.
type fault struct {
	Code    string `json:"code"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// shownError is an error as a model reads it, with so many bytes of its text at most. The cause of an
// internal error is for the log alone.
func (s *Server) shownError(ctx context.Context, name string, err error, most int) (e *errs.Error, out map[string]any) {
	e = errs.From(err)
	if ctx.Err() != nil && e.Kind == errs.Internal {
		e = errs.New(errs.Canceled, "CLIENT_CLOSED", "the call was canceled")
	}
	out = map[string]any{"success": false, "error": strings.ToValidUTF8(errs.Clip(e.Message, most), "\uFFFD"), "reason": e.Reason}
	if e.Kind == errs.Internal {
		s.Log.ErrorContext(ctx, "tool failed", "tool", name, "err", err)
		out["error"], out["reason"] = "internal error", errs.ReasonInternal
	}
	return e, out
}

// refused is the answer of a call that failed, with a hint and the faults.
func (s *Server) refused(ctx context.Context, name string, err error) *mcp.CallToolResult {
	e, out := s.shownError(ctx, name, err, 4<<10)
	if hint := e.HintText(); hint != "" {
		out["hint"] = inTools(hint)
	}
	if n := len(e.Violations); n > 0 {
		var faults []fault
		for _, v := range e.Violations[:min(n, maxFaults)] {
			faults = append(faults, fault{Code: v.Reason, Path: errs.Clip(v.Field, 200), Message: errs.Clip(v.Message, 600)})
		}
		if out["faults"] = faults; n > maxFaults {
			out["faults_left_out"] = n - maxFaults
		}
	}
	return s.answer(ctx, name, out, true)
}

// callName is what may be the name of a call of the API in a hint.
var callName = regexp.MustCompile(`\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b`)

// inTools is a hint with tools in place of calls of the API.
func inTools(hint string) string {
	names := map[string]string{
		"AnswerInterrupt": toolAnswer, "CancelRun": toolCancel, "CompilePlan": "compile_plan", "CreateEpic": "epic_create", "CreateTask": "task_create", "ExplainRun": "explain_run",
		"GetEpic": "epic_status", "GetRun": toolGet, "ListInterrupts": toolQuestions, "ListRuns": "list_runs", "ListTasks": "task_list", "ParsePlan": "parse_plan",
		"StartRun": "run_plan", "UpdateEpic": "epic_update", "UpdateTask": "task_update", "WatchRun": toolWatch,
	}
	return callName.ReplaceAllStringFunc(hint, func(name string) string {
		if t, ok := names[name]; ok {
			return t
		}
		return name
	})
}

// asked makes one call to a service with a time of its own.
func asked[I, O any](ctx context.Context, s *Server, ask func(context.Context, I, ...grpc.CallOption) (O, error), in I) (O, error) {
	ctx, stop := context.WithTimeout(ctx, s.RequestTimeout)
	defer stop()
	return ask(ctx, in)
}
