package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/plainjson"
	"github.com/epigraph-run/epigraph/workflow"
)

// maxResult is how large a result is that goes along with the end of its run.
const maxResult = 128 << 10

// Origin says which trigger started a run.
type Origin struct {
	Trigger  string `json:"trigger"`
	Delivery string `json:"delivery"`
	// Depth is how many runs that triggers started it is the last of.
	Depth int `json:"depth"`
}

// End is how a run of a workflow ended.
type End struct {
	RunID string
	// Workflow is the slug, Version that of the run.
	Workflow string
	Version  int64
	// Outcome is completed, failed or canceled.
	Outcome string
	Result  json.RawMessage
	// Reason and Message say why it failed.
	Reason, Message string
	At              time.Time
	// Origin is nil for a run that no trigger started.
	Origin *Origin
}

// body is the event of an end.
func (e *End) body() (json.RawMessage, error) {
	type failure struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	out := struct {
		RunID         string          `json:"run_id"`
		Workflow      string          `json:"workflow"`
		Version       int64           `json:"version"`
		Outcome       string          `json:"outcome"`
		Time          time.Time       `json:"time"`
		Result        json.RawMessage `json:"result,omitempty"`
		ResultOmitted bool            `json:"result_omitted,omitempty"`
		Error         *failure        `json:"error,omitempty"`
	}{RunID: e.RunID, Workflow: e.Workflow, Version: e.Version, Outcome: e.Outcome, Time: e.At, Result: e.Result}
	if len(e.Result) > maxResult {
		out.Result, out.ResultOmitted = nil, true
	}
	if e.Reason != "" || e.Message != "" {
		out.Error = &failure{e.Reason, errs.Clip(e.Message, 8<<10)}
	}
	b, err := plainjson.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode end of run %s: %w", e.RunID, err)
	}
	return b, nil
}

// tellEnd tells the end of a run to all triggers that wait for it, also if some of them cannot be told. It
// may be done again: the run names the event.
func (c *Controller) tellEnd(ctx context.Context, namespace, runID string) error {
	e, ok, err := c.runs.End(ctx, namespace, runID)
	if err != nil || !ok {
		return err
	}
	handled, err := c.handles(ctx, namespace, &e)
	if err != nil {
		return err
	}
	var body json.RawMessage
	var untold error
	for _, kind := range []string{workflow.WorkflowTrigger, workflow.ErrorTrigger} {
		after := Key{Namespace: namespace}
		for {
			list, err := c.store.Active(ctx, kind, namespace, after, checkBatch)
			if err != nil {
				return err
			}
			for i := range list {
				t := &list[i]
				if !t.watches(&e) || kind == workflow.ErrorTrigger && e.Origin != nil && e.Origin.Trigger == t.ID {
					continue // an error of its own would start it for ever
				}
				if handled && kind == workflow.ErrorTrigger && len(t.Spec.Workflows) == 0 {
					continue
				}
				if body == nil {
					if body, err = e.body(); err != nil {
						return err
					}
				}
				if err := c.told(ctx, t, &e, body); err != nil {
					untold = err
				}
			}
			if len(list) < checkBatch {
				break
			}
			after = list[len(list)-1].Key
		}
	}
	return untold
}

// handles reports whether a run that failed was itself started because of an error. Triggers that hear of all
// errors do not hear of that one: each of several would else start all others, which fail in turn, and so on.
func (c *Controller) handles(ctx context.Context, namespace string, e *End) (bool, error) {
	if e.Outcome != "failed" || e.Origin == nil || e.Origin.Trigger == "" {
		return false, nil
	}
	t, err := c.store.Trigger(ctx, Key{namespace, e.Origin.Trigger})
	if errs.ReasonOf(err) == ReasonNotFound {
		return false, nil
	}
	return t.Spec.Type == workflow.ErrorTrigger, err
}

func (c *Controller) told(ctx context.Context, t *Trigger, e *End, body json.RawMessage) error {
	event := Event{Trigger: t.Key, ID: e.RunID, Body: body, At: e.At, Depth: 1}
	if e.Origin != nil {
		event.Depth = e.Origin.Depth + 1
	}
	_, err := c.Receive(ctx, event)
	if r := errs.ReasonOf(err); r == ReasonNotActive || r == ReasonNotFound {
		return nil // it ended meanwhile
	}
	return err
}
