package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

// Triggered starts the runs of triggers at a server of runs.
type Triggered struct{ *Server }

var _ trigger.Runs = Triggered{}

// Start implements trigger.Runs.
func (s Triggered) Start(ctx context.Context, t *trigger.Trigger, d *trigger.Delivery, inputs map[string]json.RawMessage) (string, error) {
	switch t.Spec.Type {
	case workflow.TelegramTrigger:
		return s.startBot(ctx, t, d)
	case workflow.ChatTrigger:
		return s.startChat(ctx, t, d)
	}
	return s.start(ctx, t, d, inputs, "", journal.Request{Method: "Trigger", ID: d.ID, BodyHash: t.ID})
}

// start starts the run of a delivery, of a schedule if one is named.
func (s Triggered) start(ctx context.Context, t *trigger.Trigger, d *trigger.Delivery, inputs map[string]json.RawMessage, scheduleID string, once journal.Request) (string, error) {
	ctx = grpckit.WithNamespace(ctx, t.Namespace)
	req := &executorv1.StartRunRequest{Workflow: t.Ref(), UserId: d.User, ChatId: d.Chat, BusinessKey: d.BusinessKey}
	for name, v := range inputs {
		if req.Named == nil {
			req.Named = map[string]*graphv1.Payload{}
		}
		req.Named[name] = &graphv1.Payload{Json: v}
	}
	version, err := s.named(ctx, req, cmp.Or(scheduleID, d.ID))
	if err != nil {
		return "", err
	}
	leave, err := s.enter(ctx, 0, req, req.GetGraph())
	if err != nil {
		return "", err
	}
	defer leave()
	start, err := s.startRequest(ctx, req)
	if err != nil {
		return "", err
	}
	start.ID, start.ScheduleID, start.Principal, start.Lineage.Workflow = d.RunID, scheduleID, "trigger:"+t.ID, version
	start.Lineage.Origin = &record.Origin{Trigger: t.ID, Delivery: d.ID, Depth: d.Depth}
	start.Request = once // the same for every try
	id, _, err := s.engine.Start(ctx, start)
	if errs.ReasonOf(err) == journal.ReasonRunExists {
		// An earlier try whose fate is known by now.
		there, xerr := s.Exists(ctx, t.Namespace, d.RunID)
		if there || xerr != nil {
			return d.RunID, xerr
		}
		return "", errs.New(errs.Unavailable, errs.ReasonNotReady, "an earlier try came to nothing").With(err)
	}
	return id, graphFaults(err)
}

// Exists implements trigger.Runs.
func (s Triggered) Exists(ctx context.Context, namespace, runID string) (bool, error) {
	return Scheduled(s).Exists(ctx, namespace, runID)
}

// End implements trigger.Runs.
func (s Triggered) End(ctx context.Context, namespace, runID string) (trigger.End, bool, error) {
	r, err := s.reader.Get(ctx, namespace, runID)
	switch {
	case errs.Is(err, errs.NotFound):
		return trigger.End{}, false, nil
	case err != nil || !r.State.Ended():
		return trigger.End{}, false, err
	}
	m, err := record.DecodeMetadata(r.Metadata)
	of := cmp.Or(m.Workflow, m.TurnOf)
	if err != nil || of == "" {
		return trigger.End{}, false, err
	}
	name, version, _ := strings.Cut(of, "@")
	e := trigger.End{RunID: r.ID, Workflow: name, At: r.EndTime}
	e.Version, _ = strconv.ParseInt(version, 10, 64) // the catalog's own
	if m.Origin != nil {
		e.Origin = &trigger.Origin{Trigger: m.Origin.Trigger, Delivery: m.Origin.Delivery, Depth: m.Origin.Depth}
	}
	switch r.State {
	case journal.StateCompleted:
		e.Outcome = "completed"
		if json.Valid(r.Result) {
			e.Result = r.Result
		}
	case journal.StateCanceled:
		e.Outcome, e.Message = "canceled", r.Reason
	default:
		e.Outcome = "failed"
		var cause record.RunError
		if err := decode("error", r.Error, &cause); err != nil {
			return e, false, err
		}
		e.Reason, e.Message = cause.Reason, cause.Message
	}
	return e, true, nil
}

// Clock starts the runs of schedules: those of cron triggers with the inputs that their workflow says,
// and records them among the deliveries.
type Clock struct {
	Scheduled
	Triggers *trigger.Controller
}

var _ schedule.Runs = (*Clock)(nil)

// Start implements schedule.Runs.
func (c *Clock) Start(ctx context.Context, x schedule.Schedule, st schedule.Start) (string, error) {
	if x.Trigger == "" {
		return c.Scheduled.Start(ctx, x, st)
	}
	return c.Triggers.Clock(ctx, trigger.Tick{
		Trigger: trigger.Key{Namespace: x.Namespace, ID: x.Trigger}, RunID: st.RunID, Turn: st.Turn, Time: st.Time, Manual: st.Origin == schedule.FromTrigger,
	}, func(ctx context.Context, t *trigger.Trigger, d *trigger.Delivery, inputs map[string]json.RawMessage) (string, error) {
		once := journal.Request{Method: "Schedule", ID: x.UID + "/" + strconv.FormatInt(st.Turn, 10), BodyHash: x.UID}
		return Triggered{c.Server}.start(ctx, t, d, inputs, x.ID, once)
	})
}
