package rest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// healthz says that the process lives. It asks nobody, so that a service that is down does not get
// its gateways restarted.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(`{"status":"LIVE"}`))
}

// readyz says whether requests can be answered, and if not, who is missing.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.Ready != nil {
		if err := s.Ready.Check(r.Context()); err != nil {
			s.writeError(w, r, errs.New(errs.Unavailable, "NOT_READY", "this gateway wants no requests: %v", err))
			return
		}
	}
	missing := s.health.check(r.Context())
	if len(missing) > 0 {
		e := errs.New(errs.Unavailable, "NOT_READY", "not every service can be reached")
		e.Violations = missing
		s.writeError(w, r, e)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(`{"status":"READY","services":{"planner":"SERVING","executor":"SERVING","registry":"SERVING"}}`))
}

// health asks the services how they are, at most once a second whoever asks it.
type health struct {
	timeout time.Duration
	targets []target

	mu      sync.Mutex
	asked   time.Time
	missing []errs.Violation
}

type target struct {
	name   string
	client healthpb.HealthClient
}

const healthAge = time.Second

func newHealth(o Options) *health {
	h := &health{timeout: o.HealthTimeout}
	for _, t := range []struct {
		name string
		conn *grpc.ClientConn
	}{{"planner", o.Planner}, {"executor", o.Executor}, {"registry", o.Registry}} {
		h.targets = append(h.targets, target{t.name, healthpb.NewHealthClient(t.conn)})
	}
	return h
}

func (h *health) check(ctx context.Context) []errs.Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.asked.IsZero() && time.Since(h.asked) < healthAge {
		return h.missing
	}
	// The answer is for everyone who waits, so one impatient asker must not spoil it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.timeout)
	defer cancel()
	found := make([]*errs.Violation, len(h.targets))
	var wg sync.WaitGroup
	for i, t := range h.targets {
		wg.Go(func() { found[i] = t.ask(ctx) })
	}
	wg.Wait()
	h.missing = nil
	for _, v := range found {
		if v != nil {
			h.missing = append(h.missing, *v)
		}
	}
	h.asked = time.Now()
	return h.missing
}

func (t target) ask(ctx context.Context) *errs.Violation {
	resp, err := t.client.Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		e := errs.From(fromCall(err))
		if e.Reason == reasonNotOffered {
			return nil // it answers, and has no opinion about its health
		}
		return &errs.Violation{Field: t.name, Reason: e.Reason, Message: "the " + t.name + " does not answer"}
	}
	if st := resp.GetStatus(); st != healthpb.HealthCheckResponse_SERVING {
		return &errs.Violation{Field: t.name, Reason: st.String(), Message: "the " + t.name + " is not ready to serve"}
	}
	return nil
}
