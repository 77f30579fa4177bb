package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// maxAsked is how many runs one call may ask for.
const maxAsked = 50

const askedProperties = `
    "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow to run: its slug, SLUG@VERSION or SLUG@ALIAS."},
    "input_data": {"type": "object", "description": "Its inputs by name."},
    "input_text": {"type": "string", "description": "Its input, if it is one text: its only input, or the one that is called input_text."},
    "task_id": {"type": "string", "maxLength": 64, "description": "The task, tk_…, that the run works on: it starts the task, and its end ends it."}`

func spawnTools() []*tool {
	return []*tool{{name: "spawn_and_await", destroys: true, description: "Runs a workflow of the catalog, or several at once as tasks, and waits. One run answers its result, or how it stands; several answer a list in the order asked.",
		schema: delegation.Object(``, `"tasks": {"type": "array", "minItems": 1, "maxItems": 50, "description": "Several runs at once, in the order of the results.",
      "items": {"type": "object", "additionalProperties": false, "required": ["workflow_slug"], "properties": {`+askedProperties+`}}},`+askedProperties+`,
    `+waitProperty+`, `+cancelProperty+`, `+requestProperty), does: spawn}}
}

// wanted is one run that is asked for.
type wanted struct {
	Slug   string                     `json:"workflow_slug"`
	Data   map[string]json.RawMessage `json:"input_data"`
	Text   *string                    `json:"input_text"`
	TaskID string                     `json:"task_id"`
}

func spawn(ctx context.Context, c *call) (any, error) {
	var a struct {
		wanted

		Tasks    []wanted `json:"tasks"`
		Wait     *float64 `json:"wait_seconds"`
		OnCancel string   `json:"on_cancel"`
		Request  string   `json:"request_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	how := start{Wait: a.Wait, OnCancel: a.OnCancel, Request: a.Request}
	if a.Tasks == nil {
		req, err := c.startOf(ctx, &a.wanted, how)
		if err != nil {
			return nil, err
		}
		return c.begun(ctx, req, &how)
	}
	switch {
	case a.Slug != "" || a.Data != nil || a.Text != nil || a.TaskID != "":
		return nil, badArguments("give either tasks, or workflow_slug with its inputs and task_id")
	case len(a.Tasks) == 0:
		return nil, badArguments("tasks list cannot be empty")
	case len(a.Tasks) > maxAsked:
		return nil, badArguments("%d tasks at once, the limit is %d: ask for them in parts", len(a.Tasks), maxAsked)
	}
	reqs := make([]*executorv1.StartRunRequest, len(a.Tasks))
	for i := range a.Tasks {
		one := how
		one.Request = requestOf(how.Request, i)
		req, err := c.startOf(ctx, &a.Tasks[i], one)
		if err != nil {
			e := *errs.From(err)
			e.Message = fmt.Sprintf("Task %d: %s", i, e.Message)
			return nil, &e
		}
		reqs[i] = req
	}
	return c.several(ctx, reqs, &how)
}

// requestOf is the request id of one of several runs: within its bounds whatever the id of the call is.
func requestOf(id string, i int) string {
	if id == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", i, id))
	return hex.EncodeToString(sum[:])
}

// several starts runs and waits for all of them. What they ask is told, and not asked. A run that cannot be
// started, or not be waited for, is told in its place, so that the others are not lost. A client that cancels
// cancels all that were started.
func (c *call) several(ctx context.Context, reqs []*executorv1.StartRunRequest, how *start) (any, error) {
	most, err := waitOf(how.Wait, defaultWait)
	if err != nil {
		return nil, err
	}
	results, started := make([]any, len(reqs)), make([]string, len(reqs))
	defer func() {
		for _, id := range started {
			if id != "" {
				c.ended(ctx, id, how)
			}
		}
	}()
	for i, req := range reqs {
		if ctx.Err() != nil {
			return nil, errs.New(errs.Canceled, "CLIENT_CLOSED", "the call was canceled after %d of %d starts", i, len(reqs))
		}
		r, err := asked(context.WithoutCancel(ctx), c.Server, c.Executor.StartRun, req)
		if started[i] = r.GetId(); err != nil {
			results[i] = c.failedResult(ctx, "", err)
		}
	}
	var all sync.WaitGroup
	for i, id := range started {
		if id == "" {
			continue
		}
		all.Go(func() {
			one := &call{Server: c.Server, req: c.req, args: c.args, declined: true, part: maxAnswer / 2 / len(reqs), steps: c.steps}
			var err error
			if results[i], err = one.await(ctx, id, most); err != nil {
				results[i] = c.failedResult(ctx, id, err)
			}
		})
	}
	all.Wait()
	return map[string]any{"success": true, "results": results}, nil
}

// failedResult stands in a list for a run that was not started, or not waited for.
func (c *call) failedResult(ctx context.Context, id string, err error) map[string]any {
	_, out := c.shownError(ctx, "spawn_and_await", err, 1<<10)
	if id != "" {
		out["run_id"] = id
	}
	return out
}

func (c *call) startOf(ctx context.Context, w *wanted, how start) (*executorv1.StartRunRequest, error) {
	slug := strings.TrimPrefix(strings.TrimSpace(w.Slug), "workflow/")
	if slug == "" {
		return nil, badArguments("missing required field 'workflow_slug'")
	}
	named := w.Data
	if w.Text != nil {
		raw, err := json.Marshal(*w.Text)
		if err != nil {
			return nil, err
		}
		name, err := c.onlyInput(ctx, slug)
		if err != nil {
			return nil, err
		}
		if named == nil {
			named = map[string]json.RawMessage{}
		}
		if _, twice := named[name]; twice {
			return nil, badArguments("input_text and input_data both give %s", errs.Clip(name, maxTold))
		}
		named[name] = raw
	}
	req := &executorv1.StartRunRequest{Workflow: slug, Named: payloads(named)}
	how.TaskID = w.TaskID
	return req, how.into(req)
}

// onlyInput is the name of the only input of a workflow, or input_text.
func (c *call) onlyInput(ctx context.Context, ref string) (string, error) {
	slug, at, _ := strings.Cut(ref, "@")
	w, err := asked(ctx, c.Server, c.Workflows.GetWorkflow, &registryv1.GetWorkflowRequest{Workflow: slug})
	if err != nil {
		return "", err
	}
	w.Exposed = at
	room := int64(maxSources)
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(c.inputs(ctx, w, &room), &schema) == nil && len(schema.Properties) == 1 {
		for name := range schema.Properties {
			return name, nil
		}
	}
	return "input_text", nil
}
