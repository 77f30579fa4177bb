package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// serve owns runs until ctx ends or ownership is lost. In the first case it returns nil or the error of the
// stop, in the second the cause of the loss.
func (e *Engine) serve(ctx context.Context) error {
	if err := e.ensureUniqueID(ctx); err != nil {
		return err
	}
	registered := time.Now()
	owner, err := e.journal.Register(ctx, e.cfg.ID, e.cfg.Addr)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if e.jobWorker != "" {
		if err := e.journal.WorkJobsAs(ctx, owner, e.jobWorker); err != nil {
			return fmt.Errorf("register as a worker of jobs: %w", err)
		}
	}
	base := context.WithoutCancel(ctx)
	calls, endCalls := context.WithCancelCause(base)
	background, endBackground := context.WithCancel(base)
	writing, endWriting := context.WithCancel(base)
	beating, endBeating := context.WithCancel(base)
	defer endCalls(nil)
	defer endBackground()
	defer endWriting()
	defer endBeating()
	t := &session{e: e, owner: owner, calls: calls, background: background, commands: make(chan struct{}, 1),
		runs: map[string]*run{}, loading: map[string]*loading{}, pendingLoads: map[string]bool{}, losses: map[string]loss{}}
	t.memory, t.held.by = memory.New(e.cfg.MaxLiveBytes), map[*program.Program]*holding{}
	t.asking = obs.NewOutage(e.log, "the journal (asked by attempts)", func(error) bool { return true })
	t.alarms = newAlarms(t.loadSoon)
	defer t.alarms.stop()
	t.lease = journal.NewLease(e.journal, owner, e.cfg.Lease, registered)
	t.sched = sched.New(e.cfg.Parallel, e.cfg.ParallelRemote, e.gates, func(x *sched.Task) { t.perform(x.Value.(*attempt)) })
	limits := journal.Limits{Payload: 8*e.cfg.MaxPayload + e.cfg.MaxGraphBytes, Write: 32*e.cfg.MaxPayload + 4*e.cfg.MaxGraphBytes}
	t.writer = journal.NewWriter(e.journal, owner, journal.WriterOptions{Limits: limits, Packer: e.packer, Drain: e.cfg.Grace, Logger: e.log, Observe: e.meters.observe, Account: t.memory.Write,
		MaxBacklog: int(min(maxBacklog, e.cfg.MaxLiveBytes/4))})
	t.sched.AfterTask = t.writer.Lead

	var wg sync.WaitGroup
	beat, wrote := make(chan error, 1), make(chan error, 1)
	wg.Go(func() { beat <- t.lease.Run(beating) })
	wg.Go(func() { wrote <- t.writer.Run(writing) })
	wg.Go(func() { t.scan(background) })
	wg.Go(func() { t.scanCanceled(background) })
	wg.Go(func() { t.watchCommands(background) })
	wg.Go(func() { t.sweep(background) })
	wg.Go(func() { t.rescueJobs(background) })
	wg.Go(func() { t.watchPrices(background) })
	wg.Go(func() { t.watchOrders(background) })
	wg.Go(t.watchMemory)
	e.log.InfoContext(ctx, "executor owns runs", "executor", owner.ID, "incarnation", owner.Incarnation)
	for _, g := range e.gates {
		if g, ok := g.(sched.SessionGate); ok {
			g.Begin(owner)
			defer g.End(owner)
		}
	}
	e.set(t)

	select {
	case <-ctx.Done():
		err = t.stop(base, endCalls, endBackground, endWriting)
	case err = <-beat:
		t.abandon(endCalls, endBackground, endWriting)
	case err = <-wrote:
		if err == nil {
			err = errFenced
		}
		t.abandon(endCalls, endBackground, endWriting)
	}
	endBeating()
	wg.Wait()
	return err
}

// stop ends the session in order: attempts in flight may end, decisions are written, and the runs are handed
// back.
func (t *session) stop(base context.Context, endCalls context.CancelCauseFunc, endBackground, endWriting context.CancelFunc) error {
	t.e.set(nil)
	t.close()
	endBackground()
	idle := t.sched.Stop()
	drain := time.NewTimer(t.e.cfg.Drain)
	select {
	case <-idle:
	case <-t.lease.Lost():
	case <-drain.C:
	}
	drain.Stop()
	for _, r := range t.all() {
		for _, a := range r.inFlight() {
			a.stop(errStopping)
		}
	}
	endCalls(errStopping)
	for _, r := range t.all() {
		r.abortEvaluation()
	}
	grace := time.NewTimer(t.e.cfg.Grace)
	select {
	case <-idle:
	case <-grace.C:
	}
	grace.Stop()
	t.work.Wait()
	endWriting()
	<-t.writer.Done()
	for _, r := range t.all() {
		r.gone.Store(true)
		r.retire(errStopping)
	}
	ctx, cancel := context.WithTimeout(base, t.e.cfg.Grace)
	defer cancel()
	failpoint.Hit(failpoint.HandoverBefore)
	err := t.e.journal.Deregister(ctx, t.owner)
	failpoint.Hit(failpoint.HandoverAfter)
	return errors.Join(t.writer.Err(), err)
}

// abandon drops everything at once, because another executor owns the runs.
func (t *session) abandon(endCalls context.CancelCauseFunc, endBackground, endWriting context.CancelFunc) {
	t.e.set(nil)
	t.close()
	for _, r := range t.all() {
		r.gone.Store(true)
		r.retire(errFenced)
		r.abortEvaluation()
	}
	idle := t.sched.Stop()
	endCalls(errFenced)
	endBackground()
	endWriting()
	<-t.writer.Done()
	t.work.Wait()
	grace := time.NewTimer(t.e.cfg.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	}
}
