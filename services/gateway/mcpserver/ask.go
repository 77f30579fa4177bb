package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

const (
	// answerField is the field of a form whose answer is one value, and the name of the question.
	answerField = "answer"
	// maxForm bounds what is asked by a form, in bytes, and maxFields its fields.
	maxForm, maxFields = 16 << 10, 50
	// maxState bounds what a client hands back.
	maxState = 512
)

// state is what a client hands back with an answer. The client may have changed it: the services
// check all that comes of it.
type state struct {
	Run       string `json:"run"`
	Interrupt string `json:"interrupt"`
	Hash      string `json:"hash,omitempty"`
}

// resumed gives the run the answer that comes with the call, if it is a call that goes on.
func (c *call) resumed(ctx context.Context) (*state, error) {
	raw := c.req.Params.RequestState
	if raw == "" {
		return nil, nil //nolint:nilnil // it is no such call
	}
	var st state
	if len(raw) > maxState || json.Unmarshal([]byte(raw), &st) != nil || st.Run == "" || st.Interrupt == "" {
		return nil, badArguments("requestState is not one of this server")
	}
	res, ok := c.req.Params.InputResponses[answerField].(*mcp.ElicitResult)
	if !ok {
		return nil, badArguments("inputResponses has no %q: it is the answer to the question", answerField)
	}
	q, err := asked(ctx, c.Server, c.Executor.GetInterrupt, &executorv1.GetInterruptRequest{InterruptId: st.Interrupt})
	if err != nil {
		return nil, err
	}
	// It is a repetition, or somebody else was faster.
	if q.GetState() != executorv1.InterruptState_INTERRUPT_STATE_OPEN {
		return &st, nil
	}
	_, err = c.give(ctx, q, st.Hash, res)
	return &st, c.keep(ctx, err)
}

// ask asks the client what a run asks. A client of the newest version is answered with the
// question, and comes back. answered is false if the client cannot be asked, or does not answer.
func (c *call) ask(ctx context.Context, run string) (res *mcp.CallToolResult, answered bool, err error) {
	init := c.req.Session.InitializeParams()
	if init == nil || init.Capabilities == nil || init.Capabilities.Elicitation == nil || init.Capabilities.Elicitation.Form == nil && init.Capabilities.Elicitation.URL != nil {
		return nil, false, nil
	}
	list, err := asked(ctx, c.Server, c.Executor.ListInterrupts, &executorv1.ListInterruptsRequest{RunId: run, PageSize: 1})
	if err != nil || len(list.GetInterrupts()) == 0 {
		return nil, err == nil, err // it was answered since
	}
	q := list.GetInterrupts()[0]
	form := formOf(q)
	if form == nil {
		return nil, false, nil
	}
	if init.ProtocolVersion >= versionStateless {
		raw, err := json.Marshal(state{run, q.GetId(), q.GetApproveHash()})
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{answerField: form}, RequestState: string(raw)}, false, err
	}
	within, stop := context.WithTimeout(ctx, maxWait)
	defer stop()
	got, err := c.req.Session.Elicit(within, form)
	if err != nil {
		c.Log.DebugContext(ctx, "a client could not be asked", "err", err)
		return nil, false, nil // the question is told in the answer
	}
	answered, err = c.give(ctx, q, q.GetApproveHash(), got)
	return nil, answered, c.keep(ctx, err)
}

// keep keeps why an answer was refused for the answer of the call, which must tell of the run, too.
func (c *call) keep(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errs.Is(err, errs.Internal) {
		return err
	}
	c.declined, c.unanswered = true, err
	return nil
}

// give answers a question with what the client has filled in.
func (c *call) give(ctx context.Context, q *executorv1.Interrupt, hash string, res *mcp.ElicitResult) (bool, error) {
	if res.Action != "accept" {
		c.declined = true
		return false, nil
	}
	req := &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), ApproveHash: hash}
	var value any = res.Content
	if q.GetApproveHash() != "" {
		word, _ := res.Content["decision"].(string)
		d, err := decision(word)
		if err != nil || d == 0 {
			return false, badArguments("the form has no decision: approve or reject")
		}
		req.Decision = d
	} else {
		if _, single, _ := fieldsOf(q.GetSchema().GetJson()); single {
			value = res.Content[answerField]
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return false, err
		}
		req.Answer = &graphv1.Payload{Json: raw}
	}
	_, err := asked(ctx, c.Server, c.Executor.AnswerInterrupt, req)
	return err == nil, err
}

// formOf is a question as a form, or nil if no form can ask it.
func formOf(q *executorv1.Interrupt) *mcp.ElicitParams {
	text := plainText(q.GetPrompt().GetJson())
	if q.GetApproveHash() != "" {
		var shown bytes.Buffer
		if json.Indent(&shown, q.GetApprove().GetJson(), "", "  ") != nil || shown.Len()+len(text) > maxForm {
			return nil
		}
		if text != "" {
			text += "\n\n"
		}
		return &mcp.ElicitParams{Mode: "form", Message: text + "To be approved:\n" + shown.String(), RequestedSchema: map[string]any{
			"type": "object", "required": []string{"decision"}, "properties": map[string]any{"decision": map[string]any{"type": "string", "enum": []string{"approve", "reject"}}},
		}}
	}
	schema, _, ok := fieldsOf(q.GetSchema().GetJson())
	if !ok || len(text) > maxForm {
		return nil
	}
	if text == "" {
		text = "The run asks for an answer."
	}
	return &mcp.ElicitParams{Mode: "form", Message: text, RequestedSchema: schema}
}

// plainText is a JSON text without its quotes, null as nothing, and other JSON as it is.
func plainText(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// fieldsOf is the schema of a form for answers of a schema. A form has fields of simple types only:
// single says that the answer is the value of its one field, and ok that there is such a form. The
// run checks the answer against the whole schema.
func fieldsOf(raw []byte) (schema map[string]any, single, ok bool) {
	if len(raw) > maxForm {
		return nil, false, false
	}
	var s map[string]any
	if len(raw) > 0 && string(raw) != "true" && json.Unmarshal(raw, &s) != nil {
		return nil, false, false
	}
	properties, _ := s["properties"].(map[string]any)
	if s["type"] == "object" || properties != nil {
		if len(properties) == 0 || len(properties) > maxFields {
			return nil, false, false
		}
		fields := map[string]any{}
		for name, p := range properties {
			of, _ := p.(map[string]any)
			if fields[name], ok = simple(of); !ok {
				return nil, false, false
			}
		}
		schema = map[string]any{"type": "object", "properties": fields}
		if required, ok := s["required"].([]any); ok && len(required) > 0 {
			schema["required"] = required
		}
		return schema, false, true
	}
	if s["type"] == nil && s["enum"] == nil {
		delete(s, "title")
		if delete(s, "description"); len(s) > 0 {
			return nil, false, false // it may be something that a form does not have
		}
		s = map[string]any{"type": "string"}
	}
	field, ok := simple(s)
	if !ok {
		return nil, false, false
	}
	return map[string]any{"type": "object", "properties": map[string]any{answerField: field}, "required": []string{answerField}}, true, true
}

// simple is a schema of a simple type with what forms know of it.
func simple(s map[string]any) (map[string]any, bool) {
	kind, _ := s["type"].(string)
	enum, listed := s["enum"].([]any)
	if kind == "" && listed {
		kind = "string"
	}
	if !slices.Contains([]string{"string", "number", "integer", "boolean"}, kind) {
		return nil, false
	}
	if listed && (kind != "string" || slices.ContainsFunc(enum, func(v any) bool { _, text := v.(string); return !text })) {
		return nil, false
	}
	out := map[string]any{"type": kind}
	for _, key := range []string{"title", "description", "enum", "enumNames", "default", "minimum", "maximum", "minLength", "maxLength"} {
		if v, ok := s[key]; ok {
			out[key] = v
		}
	}
	return out, true
}
