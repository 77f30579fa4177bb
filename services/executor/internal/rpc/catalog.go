package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/lru"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// reasonNoCatalog refuses a start by name where nobody knows names.
	reasonNoCatalog = "NO_CATALOG"
	// reasonCatalogAway is the reason when the registry must be asked and does not answer.
	reasonCatalogAway = "CATALOG_UNREACHABLE"

	// maxCataloged bounds the versions that are kept, in bytes of their graphs.
	maxCataloged = 64 << 20
	// catalogFresh is for how long a version is taken without asking: so long a deleted workflow may start.
	catalogFresh = 10 * time.Second
	// catalogTime bounds one question.
	catalogTime = 10 * time.Second
)

// Catalog finds workflows of the registry by name. It keeps versions that were asked for: they never
// change, and so go on without the registry. It is safe for concurrent use.
type Catalog struct {
	client registryv1.WorkflowServiceClient

	mu   sync.Mutex
	kept *lru.Cache[string, cataloged]
}

var _ engine.Workflows = (*Catalog)(nil)

type cataloged struct {
	*registryv1.ResolveWorkflowResponse
	asked time.Time
}

// NewCatalog returns a catalog that asks client.
func NewCatalog(client registryv1.WorkflowServiceClient) *Catalog {
	return &Catalog{client: client, kept: lru.New[string, cataloged](maxCataloged)}
}

// Resolve finds the version that a reference stands for. The answer is shared: nobody may change it.
func (c *Catalog) Resolve(ctx context.Context, namespace, ref, key string) (*registryv1.ResolveWorkflowResponse, error) {
	name := strings.TrimPrefix(ref, "workflow/")
	at := namespace + "\x00" + name
	have, known := c.get(at)
	if known && time.Since(have.asked) < catalogFresh {
		return have.ResolveWorkflowResponse, nil
	}
	asking, stop := context.WithTimeoutCause(ctx, catalogTime, errs.New(errs.Unavailable, reasonCatalogAway, "the registry does not answer"))
	defer stop()
	r, err := c.client.ResolveWorkflow(grpckit.WithNamespace(asking, namespace), &registryv1.ResolveWorkflowRequest{Ref: name, Key: key})
	switch {
	case err == nil:
		c.put(namespace+"\x00"+r.GetRef(), r)
		return r, nil
	case ctx.Err() != nil:
		return nil, err
	case asking.Err() != nil || errs.Is(err, errs.Unavailable):
		if known {
			return have.ResolveWorkflowResponse, nil
		}
		return nil, errs.New(errs.Unavailable, reasonCatalogAway, "the registry does not answer, and workflow %q is not known here", errs.Clip(name, 200)).With(err).
			Hint("try again in a moment; versions by number, such as digest@3, go on without the registry once they have run")
	}
	return nil, err
}

func (c *Catalog) get(at string) (cataloged, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept.Get(at)
}

func (c *Catalog) put(at string, r *registryv1.ResolveWorkflowResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.Put(at, cataloged{r, time.Now()}, int64(len(at)+proto.Size(r)))
}

// Workflow implements engine.Workflows.
func (c *Catalog) Workflow(ctx context.Context, namespace, ref, key string) (string, *workgraph.Graph, error) {
	r, err := c.Resolve(ctx, namespace, ref, key)
	if err != nil {
		return "", nil, err
	}
	g, err := graphpb.FromProto(r.GetGraph())
	return workflowAgent + r.GetRef(), g, err
}

// TriggerCatalog finds the triggers of workflows.
type TriggerCatalog struct{ *Catalog }

var _ trigger.Catalog = TriggerCatalog{}

// Version implements trigger.Catalog. Of an alias for several versions it chooses always the same one.
func (c TriggerCatalog) Version(ctx context.Context, namespace, ref string) (trigger.Version, error) {
	asking, stop := context.WithTimeoutCause(ctx, catalogTime, errs.New(errs.Unavailable, reasonCatalogAway, "the registry does not answer"))
	defer stop()
	r, err := c.client.ResolveWorkflow(grpckit.WithNamespace(asking, namespace), &registryv1.ResolveWorkflowRequest{Ref: strings.TrimPrefix(ref, "workflow/"), Key: "triggers", Triggers: true})
	if err != nil {
		return trigger.Version{}, err
	}
	name, _, _ := strings.Cut(r.GetRef(), "@")
	out := trigger.Version{Workflow: name, WorkflowID: r.GetWorkflowId(), Number: r.GetVersion()}
	for _, text := range r.GetTriggers() {
		var t workflow.Trigger
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return trigger.Version{}, fmt.Errorf("decode trigger of workflow %s: %w", r.GetRef(), err)
		}
		out.Triggers = append(out.Triggers, t)
	}
	return out, nil
}

// checkNamed refuses a start with both a graph and a workflow, or with none.
func checkNamed(req *executorv1.StartRunRequest) error {
	const reason = "REQUEST_INVALID"
	switch {
	case req.GetGraph() == nil && req.GetWorkflow() == "":
		return errs.New(errs.InvalidArgument, reason, "there is nothing to start").Violate("graph", reason, "is needed, or else workflow").
			Hint("give a graph, or name a workflow of the catalog")
	case req.GetGraph() != nil && req.GetWorkflow() != "":
		return errs.New(errs.InvalidArgument, reason, "graph and workflow are both given").Violate("workflow", reason, "takes the place of graph").Hint("give one of them")
	}
	return nil
}

// drawnBy is what chooses among the versions of an alias for a start: the same thing has the same version
// each time.
func drawnBy(req *executorv1.StartRunRequest, schedule string) string {
	t := req.GetThread()
	return cmp.Or(req.GetUserId(), req.GetBusinessKey(), t.GetKey(), req.GetThreadId(), schedule, req.GetRequestId())
}

// named puts the graph of the workflow that a start names into it, and returns the version. schedule is the
// id of the schedule or of the delivery that starts it, if one does.
func (s *Server) named(ctx context.Context, req *executorv1.StartRunRequest, schedule string) (version string, err error) {
	if err := checkNamed(req); err != nil || req.GetWorkflow() == "" {
		return "", err
	}
	if s.catalog == nil {
		return "", errs.New(errs.FailedPrecondition, reasonNoCatalog, "this executor reaches no registry, so it knows no workflows by name").
			Violate("workflow", reasonNoCatalog, "cannot be looked up").Hint("give the graph itself, or set upstream.registry")
	}
	r, err := s.catalog.Resolve(ctx, grpckit.Namespace(ctx), req.GetWorkflow(), drawnBy(req, schedule))
	if err != nil {
		return "", err
	}
	req.Graph = r.GetGraph()
	if r.BudgetNanoUsd != nil || r.BudgetTokens != nil {
		b := req.GetBudget()
		req.Budget = &executorv1.RunBudget{NanoUsd: smaller(r.BudgetNanoUsd, b.GetNanoUsd(), b != nil && b.NanoUsd != nil), Tokens: smaller(r.BudgetTokens, b.GetTokens(), b != nil && b.Tokens != nil)}
	}
	return r.GetRef(), nil
}

// nameless reports whether a start names a workflow alone, and cause says that it cannot be had.
func nameless(req *executorv1.StartRunRequest, cause error) bool {
	return req.GetWorkflow() != "" && req.GetGraph() == nil && (errs.Is(cause, errs.NotFound) || errs.Is(cause, errs.FailedPrecondition) || errs.Is(cause, errs.Unavailable))
}

// smaller is the smaller of the author's cap and a caller's, if there is one.
func smaller(author *int64, caller int64, given bool) *int64 {
	if given && (author == nil || caller < *author) {
		return &caller
	}
	return author
}
