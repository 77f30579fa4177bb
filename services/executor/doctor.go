package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/builtin"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

const (
	// looked is how many values outside of the database are looked for when not all are.
	looked = 500
	// examined is how many runs are examined one by one when not all are, replayed how many of them are
	// replayed.
	examined, replayed = 2000, 200
	// maxSkew is how far the clocks of the database and of this machine may lie apart.
	maxSkew = time.Second
)

// inspected is a journal that can be examined.
type inspected interface {
	migrated
	journal.Inspector
}

// Examine looks for harm in the journal that cfg names. It reads only, beside a service that runs.
func Examine(ctx context.Context, cfg Config, o doctor.Options) (r doctor.Report, err error) {
	if err := cfg.Validate(); err != nil {
		return r, errs.New(errs.InvalidArgument, "EXECUTOR_CONFIG_INVALID", "executor: %v", err)
	}
	var j inspected
	if cfg.Store == "postgres" {
		j, err = pg.Open(ctx, cfg.PostgresURL.Reveal(), pg.Options{})
	} else {
		if err := dbkit.SQLiteExists(cfg.SQLitePath); err != nil {
			return r, err
		}
		j, err = sqlite.Open(ctx, cfg.SQLitePath, sqlite.Options{})
	}
	if err != nil {
		return r, fmt.Errorf("open journal of executor: %w", err)
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	switch err := j.Migrations().Check(ctx); {
	case errs.ReasonOf(err) == dbkit.ReasonSchemaNew:
		r = doctor.Examine(ctx, "executor", cfg.Store, o, []doctor.Probe{schemaProbe(err, doctor.Note)})
	case err != nil && errs.Is(err, errs.Unavailable) && errs.ReasonOf(err) == dbkit.ReasonUnreachable:
		return r, err
	case err != nil:
		// Without a schema there is nothing else to examine.
		return doctor.Examine(ctx, "executor", cfg.Store, o, []doctor.Probe{schemaProbe(err, doctor.Fault)}), nil
	}
	kept, err := openOffload(ctx, cfg, j, slog.New(slog.DiscardHandler))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	early := r.Findings
	in := journal.Sample{}
	if !o.All {
		in = journal.Sample{Size: examined, From: somewhere(ctx, j)}
	}
	r = doctor.Examine(ctx, "executor", cfg.Store, o, append(append(members(j, cfg), suspicions(j, kept, in)...), elsewhere(cfg)...))
	r.Sampled = in.Size
	// a list in JSON, also without findings
	r.Findings = append(append([]doctor.Finding{}, early...), r.Findings...)
	return r, nil
}

func schemaProbe(err error, s doctor.Severity) doctor.Probe {
	return doctor.Probe{Name: "schema", Severity: s, What: "the schema is not the one that this binary knows", RecoveryStep: "run `epigraph migrate`, or use the binary of the newer release",
		Look: func(context.Context, int) ([]string, error) { return []string{errs.From(err).Message}, nil }}
}

// elsewhere are the probes of what actors of a configuration call elsewhere; none if it has none.
func elsewhere(cfg Config) (out []doctor.Probe) {
	if len(cfg.Actors.MCP.Servers) > 0 {
		out = append(out, doctor.Probe{Name: "mcp-servers", Severity: doctor.Warning, What: "MCP servers that cannot be reached from here, or whose tools cannot be listed",
			RecoveryStep: "mend the server, or its entry in executor.actors.mcp.servers; runs that call its tools wait for it and try again",
			Look:         func(ctx context.Context, _ int) ([]string, error) { return builtin.CheckMCP(ctx, cfg.Actors) }})
	}
	if len(cfg.Actors.A2A.Agents) > 0 {
		out = append(out, doctor.Probe{Name: "a2a-agents", Severity: doctor.Warning, What: "remote agents whose card cannot be read from here",
			RecoveryStep: "mend the agent, or its entry in executor.actors.a2a.agents; runs that call it wait for it and try again",
			Look:         func(ctx context.Context, _ int) ([]string, error) { return builtin.CheckA2A(ctx, cfg.Actors) }})
	}
	return out
}

// somewhere is a place among the ids of runs, by time, since their first part is one.
func somewhere(ctx context.Context, j journal.Inspector) string {
	first, last, err := j.LastRunID(ctx)
	if err != nil {
		return ""
	}
	from, ferr := ulid.ParseStrict(strings.ToUpper(strings.TrimPrefix(first, command.IDPrefix+"_")))
	to, terr := ulid.ParseStrict(strings.ToUpper(strings.TrimPrefix(last, command.IDPrefix+"_")))
	if ferr != nil || terr != nil || to.Time() <= from.Time() {
		return ""
	}
	var at ulid.ULID
	if at.SetTime(from.Time()+rand.Uint64N(to.Time()-from.Time())) != nil {
		return ""
	}
	return command.IDPrefix + "_" + strings.ToLower(at.String())
}

// members are the probes of executors and clocks.
func members(j inspected, cfg Config) []doctor.Probe {
	return []doctor.Probe{
		{Name: "clock", Severity: doctor.Warning, What: "the clocks of the database and of this machine differ",
			RecoveryStep: "keep both by NTP: leases go by the database's clock and bear it, but timers, deadlines and schedules go by the executors'",
			Look: func(ctx context.Context, _ int) ([]string, error) {
				sent := time.Now()
				theirs, err := j.Now(ctx)
				if err != nil {
					return nil, err
				}
				return doctor.Skew(sent, theirs, time.Now(), maxSkew), nil
			}},
		{Name: "executors-none", Severity: doctor.Fault, What: "no executor is alive though runs wait for one", RecoveryStep: "start an executor on this database",
			Look: func(ctx context.Context, _ int) ([]string, error) {
				es, err := j.Executors(ctx)
				if err != nil {
					return nil, err
				}
				for _, e := range es {
					if e.SinceHeartbeat < cfg.lease() {
						return nil, nil
					}
				}
				var waiting []string
				for _, s := range []journal.Suspicion{journal.SuspectOwner, journal.SuspectReleased, journal.SuspectOverdue, journal.SuspectCommandOld} {
					found, err := j.Suspects(ctx, s, journal.Sample{}, 1)
					if err != nil {
						return nil, err
					}
					waiting = append(waiting, found...)
				}
				return waiting, nil
			}},
		{Name: "executor-silent", Severity: doctor.Warning, What: "executors are registered that have not been heard of for longer than a lease",
			RecoveryStep: "another executor takes over within a lease; if none does, none is alive",
			Look: func(ctx context.Context, _ int) (silent []string, err error) {
				es, err := j.Executors(ctx)
				for _, e := range es {
					if e.SinceHeartbeat >= cfg.lease() {
						silent = append(silent, fmt.Sprintf("%s at %s: silent for %s", e.ID, e.Addr, e.SinceHeartbeat.Round(time.Second)))
					}
				}
				return silent, err
			}},
	}
}

// suspicions are the probes of the journal.
func suspicions(j inspected, kept offloading, in journal.Sample) []doctor.Probe {
	const (
		report  = "this must never happen: do not change the database, and report it with the journal of the run"
		waiting = "an executor repairs it within seconds; if it does not, check that an executor is running, and read its log"
	)
	var out []doctor.Probe
	add := func(s journal.Suspicion, sev doctor.Severity, what, remedy string) {
		out = append(out, doctor.Probe{Name: string(s), Severity: sev, What: what, RecoveryStep: remedy,
			Look: func(ctx context.Context, limit int) ([]string, error) { return j.Suspects(ctx, s, in, limit+1) }})
	}
	add(journal.SuspectGap, doctor.Fault, "journals have gaps, or are shorter than their runs record", report)
	add(journal.SuspectEnd, doctor.Fault, "runs and their journals disagree about their end", report)
	out = append(out, doctor.Probe{Name: "journal-replay", Severity: doctor.Fault, What: "journals contradict themselves or their run", RecoveryStep: report,
		Look: func(ctx context.Context, limit int) ([]string, error) {
			return replay(ctx, j, kept.Around(j), in, limit)
		}})
	add(journal.SuspectGraph, doctor.Fault, "the graphs of runs are missing", "restore table graphs from a backup: such a run cannot go on and cannot be shown")
	add(journal.SuspectDetails, doctor.Fault, "runs lack their inputs and results", report)
	out = append(out, doctor.Probe{Name: "blob-missing", Severity: doctor.Fault, What: "values of runs are not in the blob store",
		RecoveryStep: "check that `executor.blobs` names the store that they were written to; else restore the objects from a backup: until then these runs can be shown in part only, and cannot go on",
		Look:         func(ctx context.Context, limit int) ([]string, error) { return missing(ctx, j, kept, in, limit) }})
	add(journal.SuspectSnapshot, doctor.Fault, "snapshots are ahead of their journals", "events were lost: see journal-gap; the snapshot can be deleted")
	add(journal.SuspectKey, doctor.Fault, "runs that have ended hold business keys", report)
	add(journal.SuspectInterrupt, doctor.Fault, "interrupts are open though no visit waits for them", report)
	add(journal.SuspectCommandLost, doctor.Fault, "commands are stored for runs that have ended", report)
	add(journal.SuspectCommandOld, doctor.Warning, "commands to runs have not been applied for a minute", waiting)
	add(journal.SuspectOverdue, doctor.Fault, "waiting runs are more than a minute overdue", waiting)
	add(journal.SuspectOwner, doctor.Warning, "runs are owned by executors that are gone", waiting)
	add(journal.SuspectReleased, doctor.Warning, "running runs were handed back and have no owner", waiting)
	add(journal.SuspectPending, doctor.Warning, "runs have waited for their start for more than ten minutes", "see `epigraph limits ls`: their namespace may have as many open runs as it is allowed")
	add(journal.SuspectChild, doctor.Fault, "children go on though their parent has ended", "cancel them: `epigraph runs cancel ID`")
	add(journal.SuspectQuarantined, doctor.Warning, "runs brought several executors down and are quarantined", "read the executors' logs of that time; then resume the run (`epigraph runs resume ID`) or cancel it")
	add(journal.SuspectReconcile, doctor.Note, "runs wait for the reconciliation of a call whose outcome is unknown", "look into the system that was called; then `epigraph runs reconcile`")
	add(journal.SuspectOutbox, doctor.Warning, "deliveries to the registry (usage, ends of runs) have failed five times or more", "check that the registry is up and accepts the executor's token")
	add(journal.SuspectJob, doctor.Warning, "jobs have failed for good, or have been under way for more than an hour", "see their errors on the jobs page of the executor's admin port; jobs are hints: evicted-overdue and command-old find the runs that they failed")
	add(journal.SuspectLimit, doctor.Note, "limits hold slots for executors that are gone", "they do not count, and the maintenance of an executor removes them")
	add(journal.SuspectRequest, doctor.Warning, "request ids are more than a day past their expiry", "an executor sweeps them every ten minutes; check that one is running")
	add(journal.SuspectPartition, doctor.Warning, "partitions of the journal are missing", "an executor creates them in advance; check that one is running: its maintenance moves the events that have no partition")
	add(journal.SuspectSchedule, doctor.Warning, "schedules have been due for more than a minute", waiting)
	add(journal.SuspectThread, doctor.Fault, "items of threads are missing", "keep the database as it is, and report it")
	add(journal.SuspectTurn, doctor.Warning, "messages have waited for agents for more than a minute, while no run is at work on their threads", waiting)
	add(journal.SuspectSetting, doctor.Fault, "the database may lose what it has acknowledged, or is damaged", "turn fsync, full_page_writes, synchronous_commit and autovacuum on; restore a damaged file from a backup")
	return out
}

// missing looks for the values to which runs of the sample refer.
func missing(ctx context.Context, j journal.Inspector, kept offloading, in journal.Sample, limit int) (found []string, err error) {
	most := looked
	if in.Size == 0 {
		most = math.MaxInt32
	}
	names, err := j.BlobsOf(ctx, in, most)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		ok, err := kept.Holds(ctx, name.BlobName)
		if err != nil {
			return found, fmt.Errorf("look for a value of run %s: %w", name.RunID, err)
		}
		if !ok {
			if found = append(found, fmt.Sprintf("%s: value %x in %s", name.RunID, name.Hash, name.Namespace)); len(found) > limit {
				break
			}
		}
	}
	return found, nil
}

// replay audits runs of the sample, as many as their number or all.
func replay(ctx context.Context, j inspected, plain journal.Reader, in journal.Sample, limit int) ([]string, error) {
	if in.Size > replayed {
		in.Size = replayed
	}
	refs, err := j.Runs(ctx, in)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, ref := range refs {
		faults, err := query.Audit(ctx, plain, ref.Namespace, ref.RunID)
		if err != nil {
			return found, fmt.Errorf("audit run %s: %w", ref.RunID, err)
		}
		if found = append(found, faults...); len(found) > limit {
			break
		}
	}
	return found, nil
}
