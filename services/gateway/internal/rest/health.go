package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

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

// readyz says whether requests can be answered, and if not, who is missing. With several cells it is enough that one of them can be
// reached, since the namespaces of the others must not lose their gateway by it; it tells which are away.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if s.Ready != nil {
		if err := s.Ready.Check(r.Context()); err != nil {
			s.writeError(w, r, errs.New(errs.Unavailable, "NOT_READY", "this gateway wants no requests: %v", err))
			return
		}
	}
	missing := s.health.check(r.Context())
	away := map[string]bool{}
	for _, t := range missing {
		away[t.cell] = true
	}
	named := s.Cells.Named()
	all := s.Cells.Cells()
	if away[""] || named && len(away) == len(all) {
		e := errs.New(errs.Unavailable, "NOT_READY", "not every service can be reached")
		for _, t := range missing {
			e.Violations = append(e.Violations, t.Violation)
		}
		s.writeError(w, r, e)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	if !named {
		_, _ = w.Write([]byte(`{"status":"READY","services":{"planner":"SERVING","executor":"SERVING","registry":"SERVING"}}`))
		return
	}
	states := map[string]string{}
	for _, c := range all {
		states[c.Name] = "SERVING"
		if away[c.Name] {
			states[c.Name] = "AWAY"
		}
	}
	body, err := json.Marshal(map[string]any{"status": "READY", "services": map[string]string{"planner": "SERVING"}, "cells": states})
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	_, _ = w.Write(body)
}

// health asks the services how they are, at most once a second whoever asks it.
type health struct {
	timeout time.Duration
	targets []target

	mu      sync.Mutex
	asked   time.Time
	missing []absence
}

type target struct {
	name, cell string
	client     healthpb.HealthClient
}

// absence is a service that does not serve, and the cell that it belongs to.
type absence struct {
	errs.Violation
	cell string
}

const healthAge = time.Second

func newHealth(o Options) *health {
	h := &health{timeout: o.HealthTimeout}
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
	found := make([]*errs.Violation, len(h.targets))
	var wg sync.WaitGroup
	for i, t := range h.targets {
		wg.Go(func() { found[i] = t.ask(ctx) })
	}
	wg.Wait()
	h.missing = nil
	for i, v := range found {
		if v != nil {
			h.missing = append(h.missing, absence{*v, h.targets[i].cell})
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
