package trigger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
)

// Tick is a start of the schedule of a cron trigger.
type Tick struct {
	Trigger Key
	// RunID is the run to be started, Turn the number of the start, and Time the time for which it is.
	RunID string
	Turn  int64
	Time  time.Time
	// Manual says that a caller asked for the start, and not the clock.
	Manual bool
}

// Clock starts the run of a tick by start, and records it among the deliveries of its trigger. The schedule
// says when and how often it is tried; one that only the schedule puts off leaves no delivery. It may be done
// again after any failure, as start may.
func (c *Controller) Clock(ctx context.Context, tick Tick, start func(context.Context, *Trigger, *Delivery, map[string]json.RawMessage) (string, error)) (string, error) {
	t, err := c.store.Trigger(ctx, tick.Trigger)
	if err != nil && errs.ReasonOf(err) != ReasonNotFound {
		return "", err
	}
	if err != nil || t.State != Active {
		// The schedule can have been made again by who read the trigger before it ended.
		if rerr := c.schedules.Remove(ctx, tick.Trigger); rerr != nil || err != nil {
			return "", cmp.Or(rerr, err)
		}
		return "", errs.New(errs.FailedPrecondition, ReasonNotActive, "trigger %q is not active: %s", t.ID, t.Reason)
	}
	now := dbkit.Now()
	d := Delivery{
		Key: Key{t.Namespace, ids.New(DeliveryPrefix)}, Trigger: t.ID, EventID: tick.Time.UTC().Format(time.RFC3339Nano), RunID: tick.RunID, Attempts: 1, ReceiveTime: now,
	}
	if tick.Manual {
		d.EventID += "/" + strconv.FormatInt(tick.Turn, 10)
	}
	if d.Event, err = json.Marshal(map[string]any{"time": tick.Time.UTC()}); err != nil {
		return "", fmt.Errorf("encode time: %w", err)
	}
	inputs, err := t.Spec.Fill(d.Event)
	if err != nil {
		err = errs.New(errs.InvalidArgument, ReasonInvalid, "the inputs cannot be made: %v", err)
	}
	runID := ""
	if err == nil {
		runID, err = start(ctx, &t, &d, inputs)
	}
	switch {
	case err == nil:
		d.started(now, runID)
	case final(err):
		e := errs.From(err)
		d.refuse(now, e.Reason, e.Message)
	default:
		return "", err
	}
	if rerr := c.store.Record(ctx, d); rerr != nil {
		return "", rerr // the start is repeated, which starts nothing
	}
	c.count(ctx, &t, &d)
	return runID, err
}
