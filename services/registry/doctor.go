package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// examined is how many rows are looked at when not all are.
const examined = 1000

// Examine looks for damage in the database of cfg. It reads only, beside a running service.
func Examine(ctx context.Context, cfg Config, o doctor.Options) (r doctor.Report, err error) {
	if err := cfg.Validate(); err != nil {
		return r, fmt.Errorf("registry: %w", err)
	}
	if cfg.Store != "postgres" {
		if err := dbkit.SQLiteExists(cfg.SQLitePath); err != nil {
			return r, err
		}
	}
	st, _, err := open(ctx, cfg, Deps{Telemetry: obs.Noop()}, nil)
	if err != nil {
		return r, fmt.Errorf("open store of registry: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	in, ok := st.(store.Inspector)
	if !ok {
		return r, fmt.Errorf("store %T cannot be examined", st)
	}
	if err := st.Ready(ctx); err != nil && errs.ReasonOf(err) != dbkit.ReasonSchemaNew {
		if errs.ReasonOf(err) == dbkit.ReasonUnreachable {
			return r, err
		}
		return doctor.Examine(ctx, "registry", cfg.Store, o, []doctor.Probe{{Name: "schema", Severity: doctor.Fault, What: "the schema is not the one that this binary knows",
			RecoveryStep: "run `epigraph migrate`", Look: func(context.Context, int) ([]string, error) { return []string{errs.From(err).Message}, nil }}}), nil
	}
	sample := examined
	if o.All {
		sample = 0
	}
	r = doctor.Examine(ctx, "registry", cfg.Store, o, probes(in, sample))
	r.Sampled = sample
	return r, nil
}

func probes(in store.Inspector, sample int) []doctor.Probe {
	const report = "this must never happen: report it. The entries are correct, and the sums can be computed from them"
	out := []doctor.Probe{{Name: "clock", Severity: doctor.Warning, What: "the clocks of the database and of this machine differ", RecoveryStep: "keep both by NTP",
		Look: func(ctx context.Context, _ int) ([]string, error) {
			sent := time.Now()
			theirs, err := in.Now(ctx)
			if err != nil {
				return nil, err
			}
			return doctor.Skew(sent, theirs, time.Now(), time.Second), nil
		}}}
	add := func(s store.Suspicion, sev doctor.Severity, what, remedy string) {
		out = append(out, doctor.Probe{Name: string(s), Severity: sev, What: what, RecoveryStep: remedy,
			Look: func(ctx context.Context, limit int) ([]string, error) { return in.Suspects(ctx, s, sample, limit+1) }})
	}
	add(store.SuspectTaskTotals, doctor.Fault, "the totals of tasks differ from the sums of their entries", report)
	add(store.SuspectEpicTotals, doctor.Fault, "the totals of epics differ from the sums of their entries", report)
	add(store.SuspectNamespaceTotals, doctor.Fault, "the totals of namespaces differ from the sums of their entries", report)
	add(store.SuspectDays, doctor.Fault, "the sums of days of epics, which reports are made of, differ from their entries", report)
	add(store.SuspectNamespaceDays, doctor.Fault, "the sums of days of namespaces, which reports are made of, differ from their entries", report)
	add(store.SuspectNodes, doctor.Fault, "the sums of nodes of epics, which reports are made of, differ from their entries", report)
	add(store.SuspectNamespaceNodes, doctor.Fault, "the sums of nodes of namespaces, which reports are made of, differ from their entries", report)
	add(store.SuspectRuns, doctor.Fault, "the sums of runs of epics, which reports are made of, differ from their entries", report)
	add(store.SuspectEpicSums, doctor.Fault, "the sums of epics, which reports are made of, differ from their entries", report)
	add(store.SuspectUsedEpics, doctor.Fault, "the counts of epics that have used something, which reports show, are wrong", report)
	add(store.SuspectAccounts, doctor.Fault, "accounts of the ledger have not spent what is booked of them", report)
	add(store.SuspectRunAccounts, doctor.Fault, "accounts of runs in the ledger have not spent what is booked of them", report)
	add(store.SuspectReserved, doctor.Fault, "what is reserved of accounts differs from the sums of their reservations", report)
	add(store.SuspectTaskCounts, doctor.Fault, "the task counts of epics are wrong", report)
	add(store.SuspectDependencyCount, doctor.Fault, "the dependency counts of epics are wrong", "this must never happen: report it. The dependencies of the tasks are correct")
	add(store.SuspectWaiting, doctor.Fault, "tasks wait for others that have failed or were canceled, against their policy",
		"this must never happen: report it. `epigraph epics update ID --dependency-policy` with another policy and back decides about them")
	add(store.SuspectReady, doctor.Fault, "tasks are ready or running whose dependencies are not completed", "this must never happen: report it. `epigraph tasks transition ID blocked` holds one back")
	add(store.SuspectClaim, doctor.Warning, "expired claims of tasks were not removed", "the registry sweeps them; check that it is running")
	add(store.SuspectOrder, doctor.Warning, "orders to runs were not carried out", "their executors ask this registry every second; check that they reach it")
	add(store.SuspectStart, doctor.Fault, "tasks are to be started that cannot be", "this must never happen: report it. The start is refused, and the order goes when the task or its epic changes")
	add(store.SuspectIdle, doctor.Fault, "epics that run by themselves do not start tasks that are ready", "this must never happen: report it. `epigraph epics run ID` starts them")
	add(store.SuspectVectors, doctor.Warning, "searches do not find entries of the memory by their meaning, since the model makes no vectors of them",
		"`epigraph memory get ID` tells why; an entry that is written again is tried again")
	add(store.SuspectRunning, doctor.Warning, "running tasks have no run", "if its run has ended: `epigraph tasks transition ID failed`, then start it again")
	return out
}
