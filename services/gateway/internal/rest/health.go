package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// healthz says that the process is alive. It asks no service, so that a service that is down does not get its
// gateways restarted.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(`{"status":"LIVE"}`))
}

// readyz says whether this gateway wants requests, and which of its services are unreachable. Readiness is
// the gateway's own: with a service down, it still answers what it can and names the service for the rest,
// while nobody would without any gateway. 200 with the status DEGRADED says that a service is unreachable,
// 503 that the gateway itself wants no requests.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.Ready != nil {
		if err := s.Ready.Check(r.Context()); err != nil {
			s.writeError(w, r, errs.New(errs.Unavailable, "NOT_READY", "this gateway wants no requests: %v", err))
			return
		}
	}
	missing := s.health.check(r.Context())
	out := readiness{Status: "READY", Services: map[string]string{}, Away: missing}
	if len(missing) > 0 {
		out.Status = "DEGRADED"
	}
	away := map[string]bool{}
	for _, a := range missing {
		away[a.Service] = true
		if a.cell != "" {
			away["cell "+a.cell] = true
		}
	}
	state := func(away bool) string {
		if away {
			return "AWAY"
		}
		return "SERVING"
	}
	for _, t := range s.health.targets {
		if t.cell == "" {
			out.Services[t.name] = state(away[t.name])
		}
	}
	if s.Cells.Named() {
		out.Cells = map[string]string{}
		for _, c := range s.Cells.Cells() {
			out.Cells[c.Name] = state(away["cell "+c.Name])
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body)
}

// readiness is the answer of readyz.
type readiness struct {
	// Status is READY or DEGRADED.
	Status   string            `json:"status"`
	Services map[string]string `json:"services"`
	Cells    map[string]string `json:"cells,omitempty"`
	Away     []absence         `json:"away,omitempty"`
}

// health asks the services how they are, at most once a second whoever asks it.
type health struct {
	timeout time.Duration
	targets []target

	mu      sync.Mutex
	asked   time.Time
	missing []absence
	since   map[string]time.Time // by unreachable service
}

type target struct {
	name, cell string
	client     healthpb.HealthClient
}

// absence is a service that does not serve, and the cell that it belongs to.
type absence struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Since is when this gateway first found it so.
	Since time.Time `json:"since"`
	cell  string
}

const healthAge = time.Second

func newHealth(o Options) *health {
	h := &health{timeout: o.HealthTimeout, since: map[string]time.Time{}}
	h.targets = append(h.targets, target{name: "planner", client: healthpb.NewHealthClient(o.Planner)})
	for _, c := range o.Cells.Cells() {
		of := ""
		if c.Name != "" {
			of = c.Name + "/"
		}
		h.targets = append(h.targets,
			target{name: of + "executor", cell: c.Name, client: healthpb.NewHealthClient(c.Executor)},
			target{name: of + "registry", cell: c.Name, client: healthpb.NewHealthClient(c.Registry)})
	}
	return h
}

func (h *health) check(ctx context.Context) []absence {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked.IsZero() && time.Since(h.asked) < healthAge {
		return h.missing
	}
	// The answer is for everyone who waits, so one impatient asker must not spoil it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.timeout)
	defer cancel()
	found := make([]*absence, len(h.targets))
	var wg sync.WaitGroup
	for i, t := range h.targets {
		wg.Go(func() { found[i] = t.ask(ctx) })
	}
	wg.Wait()
	h.missing = nil
	now := time.Now().UTC()
	for i, v := range found {
		name := h.targets[i].name
		if v == nil {
			delete(h.since, name)
			continue
		}
		if h.since[name].IsZero() {
			h.since[name] = now
		}
		v.Service, v.Since, v.cell = name, h.since[name], h.targets[i].cell
		h.missing = append(h.missing, *v)
	}
	h.asked = time.Now()
	return h.missing
}

func (t target) ask(ctx context.Context) *absence {
	resp, err := t.client.Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		e := errs.From(fromCall(err))
		if e.Reason == reasonNotOffered {
			return nil // it answers, and has no opinion about its health
		}
		return &absence{Reason: e.Reason, Message: "the " + t.name + " does not answer"}
	}
	if st := resp.GetStatus(); st != healthpb.HealthCheckResponse_SERVING {
		for _, db := range []struct {
			name string
			why  *errs.Error
		}{{grpckit.HealthDatabase, errs.DatabaseUnreachable(t.name)}, {grpckit.HealthDatabaseReady, errs.DatabaseNotReady(t.name)}} {
			resp, err := t.client.Check(ctx, &healthpb.HealthCheckRequest{Service: db.name})
			if err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_NOT_SERVING {
				return &absence{Reason: db.why.Reason, Message: db.why.Message}
			}
		}
		return &absence{Reason: st.String(), Message: "the " + t.name + " is not ready to serve"}
	}
	return nil
}
