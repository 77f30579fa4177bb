package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// Names of tools that others refer to.
const (
	toolGet, toolWatch, toolCancel  = "get_run", "watch_run", "cancel_run"
	toolQuestions, toolAnswer, runs = "list_interrupts", "answer_run", "epigraph://runs/"
)

// Properties of the schemas.
const (
	runProperty     = `"run_id": {"type": "string", "maxLength": 64, "description": "The run, run_…"}`
	requestProperty = `"request_id": {"type": "string", "maxLength": 128, "description": "Makes the call repeatable: the same id with the same arguments has its effect once."}`
	waitProperty    = `"wait_seconds": {"type": "number", "minimum": 0, "maximum": 600, "description": "How long the answer may wait for the run to end or to ask something; 30 when absent, 0 does not wait."}`
	cancelProperty  = `"on_cancel": {"type": "string", "enum": ["cancel", "keep"], "description": "What becomes of the run that this call has started if the call is canceled: cancel, which is the default, or keep."}`
	forProperties   = `"user_id": {"type": "string", "maxLength": 256, "description": "The user for whom it runs."},
    "task_id": {"type": "string", "maxLength": 64, "description": "The task, tk_…, that the run works on: it starts the task, and its end ends it."},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Short facts to find the run by."},
    "budget_tokens": {"type": "integer", "minimum": 1, "description": "How many tokens the run may use before it is paused."},
    "budget_usd": {"type": "number", "exclusiveMinimum": 0, "description": "How many dollars the run may use before it is paused."}`
)

func runTools() []*tool {
	return []*tool{
		{name: toolGet, reads: true, description: "Tells how a run stands, its result if it has ended, and what it asks. A long result is told in parts, by result_offset.",
			schema: delegation.Object(`"run_id"`, runProperty+`, "result_offset": {"type": "integer", "minimum": 0, "description": "The byte of the result at which the answer begins; 0 when absent."}`), does: getRun},
		{name: toolWatch, reads: true, description: "Waits until a run has ended, asks something or stands still, and tells how it stands then. Its steps are told as progress.",
			schema: delegation.Object(`"run_id"`, runProperty+`, `+waitProperty), does: watchRun},
		{name: "explain_run", reads: true, description: "Says in words why a run does not go on, or why it failed, and what to do about it.",
			schema: delegation.Object(`"run_id"`, runProperty), does: explainRun},
		{name: "list_runs", reads: true, description: "Lists runs, the newest first.",
			schema: delegation.Object(``, `"states": {"type": "array", "maxItems": 8, "items": {"type": "string", "enum": ["pending", "running", "waiting", "paused", "quarantined", "completed", "failed", "canceled"]}},
    "task_id": {"type": "string", "maxLength": 64, "description": "Only runs for this task."}, "user_id": {"type": "string", "maxLength": 256, "description": "Only runs for this user."},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Only runs with all of these labels."},
    "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 20 when absent."}, "page_token": {"type": "string", "maxLength": 2048, "description": "The next_page_token of the answer before."}`), does: listRuns},
		{name: toolCancel, repeats: true, destroys: true, description: "Cancels a run and all runs below it.",
			schema: delegation.Object(`"run_id"`, runProperty+`, "reason": {"type": "string", "maxLength": 1024, "description": "Why, for readers of its history."}, `+requestProperty), does: cancelRun},
		{name: toolQuestions, reads: true, description: "Lists the open questions of runs: what is asked, the JSON Schema of the answer, and what is to be approved.",
			schema: delegation.Object(``, `"run_id": {"type": "string", "maxLength": 64, "description": "Only those of this run and of all below it."}, "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 20 when absent."}`), does: listQuestions},
		{name: toolAnswer, repeats: true, destroys: true, description: "Answers a question of a run, once. An approval takes a decision and the approve_hash of what was shown. Waits for the run then, if told to.",
			schema: delegation.Object(`"interrupt_id"`, `"interrupt_id": {"type": "string", "maxLength": 64, "description": "The question, int_…"}, "answer": {"description": "The answer, of the schema of the question."},
    "decision": {"type": "string", "enum": ["approve", "reject"], "description": "The decision on an approval."}, "approve_hash": {"type": "string", "maxLength": 64, "description": "The approve_hash of what was shown, unchanged."},
    "by": {"type": "string", "maxLength": 256, "description": "The person who answers, for readers of the history."},
    "wait_seconds": {"type": "number", "minimum": 0, "maximum": 600, "description": "How long the answer may wait for the run to go on to its end or its next question; 0 when absent."}`), does: answerRun},
	}
}

// stateWord is the word for a state, such as "completed".
func stateWord(s executorv1.RunState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "RUN_STATE_"))
}

// shownRun is a run as a model reads it.
func shownRun(r *executorv1.Run) map[string]any {
	out := map[string]any{"run_id": r.GetId(), "state": stateWord(r.GetState()), "uri": runs + r.GetId()}
	texts := map[string]string{"state_reason": r.GetStateReason(), "name": r.GetGraphName(), "workflow": r.GetWorkflow(), "task_id": r.GetTaskId(), "user_id": r.GetUserId(), "parent_run_id": r.GetParentRunId()}
	for key, text := range texts {
		if text != "" {
			out[key] = errs.Clip(text, maxTold)
		}
	}
	times := map[string]*timestamppb.Timestamp{"create_time": r.GetCreateTime(), "end_time": r.GetEndTime(), "wake_time": r.GetWakeTime()}
	for key, at := range times {
		if at != nil {
			out[key] = at.AsTime().Format(time.RFC3339)
		}
	}
	if n := r.GetNodes(); n.GetTotal() > 0 {
		out["nodes"] = map[string]int32{"total": n.GetTotal(), "completed": n.GetCompleted(), "failed": n.GetFailed(), "running": n.GetRunning()}
	}
	if u := r.GetUsage(); u.GetCalls() > 0 {
		out["usage"] = map[string]any{"tokens": u.GetInputTokens() + u.GetOutputTokens(), "usd": delegation.Dollars(u.GetCostNanoUsd())}
	}
	if e := r.GetError(); e != nil {
		out["error"] = map[string]any{"reason": e.GetReason(), "message": errs.Clip(e.GetMessage(), 4<<10), "node_id": errs.Clip(e.GetNodeId(), maxTold)}
	}
	if len(r.GetLabels()) > 0 && len(r.GetLabels()) <= 16 {
		out["labels"] = r.GetLabels()
	}
	return out
}

// addResult adds the result of a run, from a byte of it on.
func addResult(out map[string]any, r *executorv1.Run, from, most int) error {
	raw := r.GetResult().GetJson()
	if len(raw) == 0 {
		return nil
	}
	if from == 0 && len(raw) <= most {
		out["result"] = json.RawMessage(raw)
		return nil
	}
	if from > len(raw) {
		return badArguments("result_offset is %d, and the result has %d bytes", from, len(raw))
	}
	end := min(len(raw), from+most)
	for end < len(raw) && end > from && !utf8.RuneStart(raw[end]) {
		end--
	}
	out["result_part"], out["result_bytes"] = strings.ToValidUTF8(string(raw[from:end]), "\uFFFD"), len(raw)
	if end < len(raw) {
		out["next_offset"] = end
		out["note"] = "The result is longer than one answer: result_part is a part of its JSON. get_run with result_offset has the next one."
	}
	return nil
}

// standing is how a run stands: its result if it has one, else what it asks.
func (c *call) standing(ctx context.Context, r *executorv1.Run, from int) (map[string]any, error) {
	out := shownRun(r)
	out["success"] = r.GetState() != executorv1.RunState_RUN_STATE_FAILED && r.GetState() != executorv1.RunState_RUN_STATE_CANCELED
	if err := addResult(out, r, from, cmp.Or(c.part, maxPart)); err != nil {
		return nil, err
	}
	if r.GetEndTime() != nil {
		if !out["success"].(bool) {
			out["hint"] = "explain_run says why"
		}
		return out, nil
	}
	if r.GetOpenInterrupts() == 0 {
		out["hint"] = "watch_run waits for it, explain_run says what it waits for"
		return out, nil
	}
	list, err := asked(ctx, c.Server, c.Executor.ListInterrupts, &executorv1.ListInterruptsRequest{RunId: r.GetId(), PageSize: 10})
	if err != nil {
		return nil, err
	}
	questions, err := shownQuestions(list.GetInterrupts(), cmp.Or(c.part, maxPart))
	if err != nil {
		return nil, err
	}
	out["questions"], out["hint"] = questions, "answer_run answers a question by its interrupt_id"
	if c.unanswered != nil {
		e := errs.From(c.unanswered)
		out["answer_refused"] = map[string]any{"error": errs.Clip(e.Message, 1<<10), "reason": e.Reason}
	}
	if left := int(r.GetOpenInterrupts()) - len(questions); left > 0 {
		out["questions_left_out"] = left
	}
	return out, nil
}

// shownQuestions are questions as a model reads them: of many long ones the first, which have at most so many
// bytes.
func shownQuestions(list []*executorv1.Interrupt, most int) (out []map[string]any, err error) {
	out = make([]map[string]any, 0, len(list))
	for _, q := range list {
		m := map[string]any{"interrupt_id": q.GetId(), "run_id": q.GetRunId(), "node_id": errs.Clip(q.GetVisit().GetNodeId(), maxTold)}
		for key, raw := range map[string][]byte{"prompt": q.GetPrompt().GetJson(), "schema": q.GetSchema().GetJson(), "approve": q.GetApprove().GetJson()} {
			switch {
			case len(raw) == 0:
			case len(raw) > min(maxAnswer/16, most/4):
				m[key+"_bytes"] = len(raw)
				m["note"] = "What is asked is longer than one answer: GET /v1/interrupts/" + q.GetId() + " has it."
			default:
				m[key] = json.RawMessage(raw)
			}
		}
		if q.GetApproveHash() != "" {
			m["approve_hash"] = q.GetApproveHash()
		}
		if q.GetExpireTime() != nil {
			m["expire_time"] = q.GetExpireTime().AsTime().Format(time.RFC3339)
		}
		raw, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		if most -= len(raw); most < 0 {
			break
		}
		out = append(out, m)
	}
	return out, nil
}

func getRun(ctx context.Context, c *call) (any, error) {
	var a struct {
		RunID string `json:"run_id"`
		From  int    `json:"result_offset"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	if a.From < 0 {
		return nil, badArguments("result_offset must not be negative")
	}
	r, err := asked(ctx, c.Server, c.Executor.GetRun, &executorv1.GetRunRequest{RunId: a.RunID})
	if err != nil {
		return nil, err
	}
	return c.standing(ctx, r, a.From)
}

func watchRun(ctx context.Context, c *call) (any, error) {
	var a struct {
		RunID string   `json:"run_id"`
		Wait  *float64 `json:"wait_seconds"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	most, err := waitOf(a.Wait, defaultWait)
	if err != nil {
		return nil, err
	}
	if _, err := c.resumed(ctx); err != nil {
		return nil, err
	}
	return c.await(ctx, a.RunID, most)
}

func explainRun(ctx context.Context, c *call) (any, error) {
	var a struct {
		RunID string `json:"run_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	r, err := asked(ctx, c.Server, c.Executor.ExplainRun, &executorv1.ExplainRunRequest{RunId: a.RunID})
	if err != nil {
		return nil, err
	}
	out := map[string]any{"success": true, "run_id": r.GetRunId(), "state": stateWord(r.GetState()), "summary": errs.Clip(r.GetSummary(), 4<<10)}
	blockers := []map[string]any{}
	for _, b := range r.GetBlockers()[:min(len(r.GetBlockers()), maxFaults)] {
		m := map[string]any{"kind": strings.ToLower(strings.TrimPrefix(b.GetKind().String(), "BLOCKER_KIND_")), "message": errs.Clip(b.GetMessage(), 2<<10)}
		if b.GetVisit() != nil {
			m["node_id"] = errs.Clip(b.GetVisit().GetNodeId(), maxTold)
		}
		if b.GetHint() != "" {
			m["hint"] = inTools(errs.Clip(b.GetHint(), 1<<10))
		}
		if len(b.GetInterruptIds()) > 0 {
			m["interrupt_ids"] = b.GetInterruptIds()[:min(len(b.GetInterruptIds()), maxFaults)]
		}
		if len(b.GetRunIds()) > 0 {
			m["run_ids"] = b.GetRunIds()[:min(len(b.GetRunIds()), maxFaults)]
		}
		blockers = append(blockers, m)
	}
	out["blockers"] = blockers
	if left := len(r.GetBlockers()) - len(blockers) + int(r.GetMore()); left > 0 {
		out["blockers_left_out"] = left
	}
	return out, nil
}

// limited is how many are told: a number beyond the bounds is the nearest within them.
func limited(n *int, absent int) int32 {
	if n == nil {
		return int32(absent)
	}
	return int32(min(max(*n, 1), maxList))
}

func listRuns(ctx context.Context, c *call) (any, error) {
	var a struct {
		States []string          `json:"states"`
		TaskID string            `json:"task_id"`
		UserID string            `json:"user_id"`
		Labels map[string]string `json:"labels"`
		Limit  *int              `json:"limit"`
		Page   string            `json:"page_token"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	req := &executorv1.ListRunsRequest{TaskId: a.TaskID, UserId: a.UserID, Labels: a.Labels, PageSize: limited(a.Limit, 20), PageToken: a.Page}
	for _, word := range a.States {
		n, ok := executorv1.RunState_value["RUN_STATE_"+strings.ToUpper(word)]
		if !ok || n == 0 {
			return nil, badArguments("there is no state %q of runs", errs.Clip(word, 60))
		}
		req.States = append(req.States, executorv1.RunState(n))
	}
	r, err := asked(ctx, c.Server, c.Executor.ListRuns, req)
	if err != nil {
		return nil, err
	}
	list := make([]map[string]any, len(r.GetRuns()))
	for i, run := range r.GetRuns() {
		list[i] = shownRun(run)
	}
	out := map[string]any{"success": true, "runs": list}
	if r.GetNextPageToken() != "" {
		out["next_page_token"] = r.GetNextPageToken()
	}
	return out, nil
}

func cancelRun(ctx context.Context, c *call) (any, error) {
	var a struct {
		RunID   string `json:"run_id"`
		Reason  string `json:"reason"`
		Request string `json:"request_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	r, err := asked(ctx, c.Server, c.Executor.CancelRun, &executorv1.CancelRunRequest{RunId: a.RunID, Reason: a.Reason, RequestId: a.Request})
	if err != nil {
		return nil, err
	}
	out := shownRun(r)
	out["success"] = true
	return out, nil
}

func listQuestions(ctx context.Context, c *call) (any, error) {
	var a struct {
		RunID string `json:"run_id"`
		Limit *int   `json:"limit"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	r, err := asked(ctx, c.Server, c.Executor.ListInterrupts, &executorv1.ListInterruptsRequest{RunId: a.RunID, PageSize: limited(a.Limit, 20)})
	if err != nil {
		return nil, err
	}
	list := r.GetInterrupts()
	shown, err := shownQuestions(list, maxAnswer/2)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"success": true, "questions": shown}
	if left := len(list) - len(shown); left > 0 || r.GetNextPageToken() != "" {
		out["note"] = "There are more questions: name a run."
	}
	return out, nil
}

func answerRun(ctx context.Context, c *call) (any, error) {
	var a struct {
		ID       string          `json:"interrupt_id"`
		Answer   json.RawMessage `json:"answer"`
		Decision string          `json:"decision"`
		Hash     string          `json:"approve_hash"`
		By       string          `json:"by"`
		Wait     *float64        `json:"wait_seconds"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	most, err := waitOf(a.Wait, 0)
	if err != nil {
		return nil, err
	}
	st, err := c.resumed(ctx)
	if err != nil {
		return nil, err
	}
	if st != nil { // the answer was given before, and the run has asked something else
		return c.await(ctx, st.Run, most)
	}
	req := &executorv1.AnswerInterruptRequest{InterruptId: a.ID, By: a.By, ApproveHash: a.Hash}
	if len(a.Answer) > 0 {
		req.Answer = &graphv1.Payload{Json: a.Answer}
	}
	if req.Decision, err = decision(a.Decision); err != nil {
		return nil, err
	}
	q, err := asked(ctx, c.Server, c.Executor.AnswerInterrupt, req)
	if err != nil {
		return nil, err
	}
	if most > 0 {
		return c.await(ctx, q.GetRootRunId(), most)
	}
	return map[string]any{"success": true, "interrupt_id": q.GetId(), "run_id": q.GetRootRunId(), "hint": "watch_run waits for the run"}, nil
}

func decision(word string) (executorv1.Decision, error) {
	switch word {
	case "":
		return 0, nil
	case "approve":
		return executorv1.Decision_DECISION_APPROVED, nil
	case "reject":
		return executorv1.Decision_DECISION_REJECTED, nil
	}
	return 0, badArguments("decision must be approve or reject")
}

// start says how a run is started; tools have these arguments besides their own.
type start struct {
	UserID   string            `json:"user_id"`
	TaskID   string            `json:"task_id"`
	Labels   map[string]string `json:"labels"`
	Tokens   *int64            `json:"budget_tokens"`
	USD      *float64          `json:"budget_usd"`
	Wait     *float64          `json:"wait_seconds"`
	OnCancel string            `json:"on_cancel"`
	Request  string            `json:"request_id"`
}

// into fills a request.
func (a *start) into(req *executorv1.StartRunRequest) error {
	req.UserId, req.TaskId, req.Labels, req.RequestId = a.UserID, a.TaskID, a.Labels, a.Request
	if a.OnCancel != "" && a.OnCancel != "cancel" && a.OnCancel != "keep" {
		return badArguments("on_cancel must be cancel or keep")
	}
	if a.Tokens == nil && a.USD == nil {
		return nil
	}
	req.Budget = &executorv1.RunBudget{Tokens: a.Tokens}
	if a.USD != nil {
		if !(*a.USD > 0 && *a.USD <= 1e9) {
			return badArguments("budget_usd must be more than 0 and at most 1000000000")
		}
		nano := int64(math.Round(*a.USD * 1e9))
		req.Budget.NanoUsd = &nano
	}
	return nil
}

// metaPrefix begins the names of what a client says beside the arguments of a workflow, which are its inputs.
const metaPrefix = "epigraph/"

// fromMeta reads a start from the metadata of a call.
func fromMeta(meta mcp.Meta) (a start, err error) {
	fields := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		if name, ok := strings.CutPrefix(key, metaPrefix); ok {
			fields[name] = meta[key]
		}
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return a, badArguments("_meta cannot be read: %v", err)
	}
	return a, strict(raw, &a)
}

// begun starts a run and waits for it. The start itself is not canceled: nobody would know the run.
func (c *call) begun(ctx context.Context, req *executorv1.StartRunRequest, a *start) (any, error) {
	most, err := waitOf(a.Wait, defaultWait)
	if err != nil {
		return nil, err
	}
	st, err := c.resumed(ctx)
	if err != nil {
		return nil, err
	}
	var id string
	if st != nil {
		id = st.Run
	} else {
		r, err := asked(context.WithoutCancel(ctx), c.Server, c.Executor.StartRun, req)
		if err != nil {
			return nil, err
		}
		id = r.GetId()
	}
	out, err := c.await(ctx, id, most)
	c.ended(ctx, id, a)
	return out, err
}

// ended cancels a run that the call has started, if the client has canceled the call.
func (c *call) ended(ctx context.Context, id string, a *start) {
	if a.OnCancel == "keep" || !c.canceled(ctx) {
		return
	}
	_, err := asked(context.WithoutCancel(ctx), c.Server, c.Executor.CancelRun, &executorv1.CancelRunRequest{RunId: id, Reason: "the call that started it was canceled"})
	if err != nil {
		c.Log.WarnContext(ctx, "a run whose call was canceled could not be canceled", "run_id", id, "err", err)
	}
}
