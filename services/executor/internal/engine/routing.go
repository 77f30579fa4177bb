package engine

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A decision is counted by the names that the authors of workflows chose. maxRoutes bounds how many series
// there are of all namespaces, and maxRoutesOf of one; those beyond are counted as otherRoute.
const (
	maxRoutes   = 2_000
	maxRoutesOf = 200
	otherRoute  = "other"
	// maxRouteName bounds a name in bytes.
	maxRouteName = 64
)

// routeLabels are the attributes of a decision, in order of their keys.
type routeLabels struct{ workflow, from, to, how string }

// routingMeters count decisions about which way runs go. They are safe for concurrent use.
type routingMeters struct {
	decisions metric.Int64Counter

	mu   sync.Mutex
	of   map[string]map[routeLabels]bool
	size int
}

func newRoutingMeters(m metric.Meter) (*routingMeters, error) {
	c, err := m.Int64Counter("epigraph.routing.decisions", metric.WithDescription("Decisions about which way runs go, by workflow, from which step to which, and how it was decided."))
	return &routingMeters{decisions: c, of: map[string]map[routeLabels]bool{}}, err
}

// count counts a decision.
func (m *routingMeters) count(namespace, workflow string, r workgraph.Routed) {
	if r.Workflow != "" {
		workflow = r.Workflow
	}
	l := m.bounded(namespace, routeLabels{cutName(workflow), cutName(r.From), cutName(r.To), r.How})
	m.decisions.Add(context.Background(), 1, metric.WithAttributes(attribute.String("workflow", l.workflow),
		attribute.String("from", l.from), attribute.String("to", l.to), attribute.String("how", l.how)))
}

// bounded are the labels, or those of all others if there are too many.
func (m *routingMeters) bounded(namespace string, l routeLabels) routeLabels {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.of[namespace]
	if of[l] {
		return l
	}
	if m.size >= maxRoutes || len(of) >= maxRoutesOf {
		return routeLabels{otherRoute, otherRoute, otherRoute, l.how}
	}
	if of == nil {
		of = map[routeLabels]bool{}
		m.of[namespace] = of
	}
	of[l] = true
	m.size++
	return l
}

func cutName(s string) string {
	if len(s) > maxRouteName {
		s = s[:maxRouteName]
	}
	return strings.ToValidUTF8(s, "")
}

// routed is one decision with the namespace and the graph that it is of.
type routed struct {
	namespace, workflow string
	workgraph.Routed
}

// routes are the decisions of events about which way the run goes. The edges of an agent's own loop are no
// decisions of anybody's. The caller holds r.mu.
func (r *run) routes(events []feed.Event) (out []routed) {
	for i := range events {
		ev := &events[i].Durable.Event
		if ev.Outcome != nil {
			for _, d := range ev.Outcome.Routed {
				out = append(out, routed{r.namespace, r.Program.Name, d})
			}
		}
		if r.lineage.Agent == nil {
			for _, d := range r.State.Program().Routed(ev) {
				out = append(out, routed{r.namespace, r.Program.Name, d})
			}
		}
	}
	return out
}
