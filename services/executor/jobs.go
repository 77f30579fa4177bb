package executor

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
)

// jobPause is how long a job waits whose run cannot be taken now, for want of memory or of an owner.
const jobPause = 500 * time.Millisecond

// work gives the engine a job about a run.
func (s *Service) work(ctx context.Context, j dispatch.Job) error {
	err := s.engine.Work(ctx, j.Args)
	switch {
	case errs.Is(err, errs.Unavailable):
		return dispatch.Later(jobPause)
	case errs.Is(err, errs.InvalidArgument):
		return dispatch.Never(err)
	}
	return err
}

// deliverWebhook delivers to a webhook.
func (s *Service) deliverWebhook(ctx context.Context, j dispatch.Job) error {
	leave, pause := s.webhooks.Enter(ctx, j.Namespace)
	if leave == nil {
		return dispatch.Later(pause)
	}
	defer leave()
	d, err := s.engine.Deliveries().Of(ctx, j.Args)
	switch {
	case errs.Is(err, errs.InvalidArgument):
		return dispatch.Never(err)
	case err != nil || d == nil:
		return err
	}
	var v webhook.Verdict
	if d.Hook.Chat != nil {
		v = s.deliverChat(ctx, d, j.Attempt)
	} else {
		v = s.webhooks.Deliver(ctx, d, j.Attempt)
	}
	switch v.Outcome {
	case webhook.Again:
		return dispatch.Again(v.Err, v.Pause)
	case webhook.GivenUp:
		return dispatch.Never(v.Err)
	case webhook.PutOff:
		return dispatch.Later(v.Pause)
	case webhook.Delivered:
	}
	return nil
}

// minBehind and maxBehind bound how long a message of a chat waits for the one before it before it is
// looked at again, unless that one wakes it. It is a tenth of the time for which it has waited.
const minBehind, maxBehind = 200 * time.Millisecond, 15 * time.Second

// deliverChat delivers to a chat, after what was said there before.
func (s *Service) deliverChat(ctx context.Context, d *webhook.Delivery, try int) webhook.Verdict {
	waits, err := s.engine.Deliveries().Waits(ctx, d)
	if waits || err != nil {
		pause := min(max(dbkit.Now().Sub(d.Message.Time)/10, minBehind), maxBehind)
		return webhook.Verdict{Outcome: webhook.PutOff, Pause: pause, Err: err}
	}
	v := s.bots.Deliver(ctx, d, try)
	if v.Outcome == webhook.Delivered || v.Outcome == webhook.GivenUp {
		if err := s.engine.Deliveries().Sent(ctx, d); err != nil {
			s.log.InfoContext(ctx, "a message of a chat wakes the next one late", "err", err, "run_id", d.Message.RunID)
		}
	}
	return v
}

// dispatcher works what the journal keeps for later.
func (s *Service) dispatcher(j journal.Journal, tel *obs.Telemetry) (*dispatch.Dispatcher, error) {
	o := dispatch.Options{ID: s.jobWorker, Webhooks: webhook.Places, Triggers: trigger.Places, Logger: s.log, TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider,
		Kinds: []dispatch.Kind{{Name: journal.JobWake, Handle: s.work}, {Name: journal.JobStart, Handle: s.work},
			{Name: journal.JobMaintenance, Handle: s.maintenance.work, Every: maintenanceEvery},
			{Name: journal.JobSchedule, Handle: s.lookAfter, Timeout: firingTimeout},
			{Name: journal.JobThread, Handle: s.nextTurn},
			{Name: journal.JobTrigger, Handle: s.workTrigger}, {Name: journal.JobTriggers, Handle: s.followTriggers, Every: followEvery},
			{Name: journal.JobWebhook, Handle: s.deliverWebhook}}}
	switch j := j.(type) {
	case *pg.Store:
		o.Schema = pg.Schema
		return dispatch.New(j.JobDriver(), o)
	case *sqlite.Store:
		return dispatch.New(j.JobDriver(), o)
	}
	return nil, fmt.Errorf("a journal of type %T keeps no jobs", j)
}

// assembleJobs makes what works the jobs, and the pages that show them.
func (s *Service) assembleJobs(cfg Config, d Deps, st stores) (err error) {
	if s.jobs, err = s.dispatcher(st.journal, d.Telemetry); err != nil || !cfg.RiverUI {
		return err
	}
	s.pages, err = s.jobs.UI(JobPagesPath)
	return err
}

// JobPagesPath is the path below which JobPages expects to be served.
const JobPagesPath = "/river"

// JobPages shows the jobs of all namespaces and lets its readers cancel and repeat jobs. It is for
// operators only, and checks no credentials. It is nil unless Config.RiverUI is set, and answers while
// Run runs.
func (s *Service) JobPages() http.Handler {
	if s.pages == nil {
		return nil
	}
	return s.pages
}
