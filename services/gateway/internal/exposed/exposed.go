// Package exposed owns which exposed workflows clients of other protocols can talk with: those that a chat
// starts. It must not know the protocols, routes or credentials.
package exposed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/lru"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// workflowPrefix begins the references by which clients name workflows.
	workflowPrefix = "workflow/"
	// drawnBy chooses among the versions of an alias, as the executor does when it looks for triggers.
	drawnBy = "triggers"
	// maxKnown is of how many workflows the gateway remembers whether a chat starts them.
	maxKnown = 10_000
)

// Workflows lists exposed workflows. It is safe for concurrent use. Make it by New.
type Workflows struct {
	client registryv1.WorkflowServiceClient

	mu sync.Mutex
	// known says whether a chat starts a workflow, by its id and etag: both stay only while its aliases do.
	known *lru.Cache[string, bool]
}

// New returns the exposed workflows of a registry.
func New(client registryv1.WorkflowServiceClient) *Workflows {
	return &Workflows{client: client, known: lru.New[string, bool](maxKnown)}
}

// Chats lists the exposed workflows of the caller's namespace that a chat starts.
func (w *Workflows) Chats(ctx context.Context) (out []*registryv1.Workflow, err error) {
	// A namespace exposes fewer workflows than a page has.
	all, err := w.client.ListWorkflows(ctx, &registryv1.ListWorkflowsRequest{Exposed: true, PageSize: 1000})
	if err != nil {
		return nil, err
	}
	for _, f := range all.GetWorkflows() {
		yes, err := w.chats(ctx, f)
		if err != nil {
			return nil, err
		}
		if yes {
			out = append(out, f)
		}
	}
	return out, nil
}

// chats reports whether a chat starts the exposed version of a workflow. One that is deleted meanwhile is not
// started any more.
func (w *Workflows) chats(ctx context.Context, f *registryv1.Workflow) (bool, error) {
	key := f.GetId() + " " + f.GetEtag()
	w.mu.Lock()
	yes, ok := w.known.Get(key)
	w.mu.Unlock()
	if ok {
		return yes, nil
	}
	r, err := w.client.ResolveWorkflow(ctx, &registryv1.ResolveWorkflowRequest{Ref: strings.TrimPrefix(Ref(f), workflowPrefix), Key: drawnBy, Triggers: true})
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.FailedPrecondition) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, text := range r.GetTriggers() {
		var t workflow.Trigger
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return false, fmt.Errorf("decode trigger of workflow %s: %w", r.GetRef(), err)
		}
		yes = yes || t.Type == workflow.ChatTrigger
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.Put(key, yes, 1)
	return yes, nil
}

// Ref is the reference by which clients name an exposed workflow.
func Ref(f *registryv1.Workflow) string {
	if f.GetExposed() == "latest" {
		return workflowPrefix + f.GetSlug()
	}
	return workflowPrefix + f.GetSlug() + "@" + f.GetExposed()
}
