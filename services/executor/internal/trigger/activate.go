package trigger

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// checkEvery is how old the answer to what an activation stands for may get, checkBatch how many are
	// looked at in one go.
	checkEvery, checkBatch = 50 * time.Second, 100
	// secretBytes is how much chance is in a secret. It begins as Standard Webhooks has it.
	secretBytes, secretPrefix = 32, "whsec_"
)

// Version is a version of a workflow with its triggers.
type Version struct {
	// WorkflowID tells the workflow from a later one of the same name.
	Workflow, WorkflowID string
	Number               int64
	Triggers             []workflow.Trigger
}

// Catalog finds workflows. It must be safe for concurrent use.
type Catalog interface {
	// Version finds what NAME, NAME@ALIAS or NAME@VERSION stands for now. errs.NotFound.
	Version(ctx context.Context, namespace, ref string) (Version, error)
}

// Schedules keeps the schedules of cron triggers. It must be safe for concurrent use.
type Schedules interface {
	// Check says what is wrong with what a trigger says of the clock.
	Check(x *workflow.Trigger) error
	// Put makes the schedule of an active trigger, or changes it to what the trigger says. Doing it again is
	// no error.
	Put(ctx context.Context, t *Trigger) error
	// Remove removes the schedule of a trigger; that there is none is no error.
	Remove(ctx context.Context, k Key) error
}

// Activate turns the triggers of a workflow on: those of the version that ref stands for, and from then on of
// the one that it will stand for. It returns the activation with its triggers, those that ended included.
// What is active already stays, with its secrets.
func (c *Controller) Activate(ctx context.Context, namespace, ref string) (Activation, []Trigger, error) {
	if c.catalog == nil {
		return Activation{}, nil, errs.New(errs.FailedPrecondition, "NO_CATALOG", "this executor reaches no registry, so it knows no workflows by name").Hint("set upstream.registry")
	}
	v, err := c.catalog.Version(ctx, namespace, ref)
	if err != nil {
		return Activation{}, nil, err
	}
	if len(v.Triggers) == 0 {
		return Activation{}, nil, errs.New(errs.FailedPrecondition, ReasonNothing, "nothing but a call starts version %d of workflow %q", v.Number, v.Workflow).
			Hint("name under `triggers` of the workflow what starts it")
	}
	now := dbkit.Now()
	_, alias, _ := strings.Cut(ref, "@")
	a := Activation{Namespace: namespace, CreateTime: now, Ref: v.Workflow, Principal: access.Of(ctx).String()}
	if alias != "" {
		a.Ref += "@" + alias
	}
	a, list, err := c.apply(ctx, a, v, now, time.Time{})
	if err != nil {
		return a, nil, err
	}
	// The triggers are on, and their secrets are shown this once: what fails from here on is done by the next
	// look at the activations.
	if err := c.settle(ctx, &a); err != nil {
		c.log.InfoContext(ctx, "schedules of triggers are set later", "err", err, "workflow", a.Workflow)
	}
	if now, err := c.store.Activation(ctx, namespace, a.Workflow); err == nil {
		a = now
	}
	return a, list, nil
}

// apply gives an activation the triggers of a version.
func (c *Controller) apply(ctx context.Context, a Activation, v Version, now, was time.Time) (Activation, []Trigger, error) {
	triggers, err := c.make(a.Namespace, v, now)
	if err == nil {
		err = c.begin(ctx, a.Namespace, triggers)
	}
	if err != nil {
		return a, nil, err
	}
	a.Workflow, a.WorkflowID, a.Version, a.State, a.Reason, a.Settled, a.Checked, a.UpdateTime = v.Workflow, v.WorkflowID, v.Number, Active, "", false, now, now
	list, err := c.store.Activate(ctx, a, triggers, c.cfg.Max, was)
	return a, list, err
}

// begin has event triggers hear what happens from now on. Those that are on already keep their beginning.
func (c *Controller) begin(ctx context.Context, namespace string, triggers []Trigger) error {
	if !slices.ContainsFunc(triggers, func(t Trigger) bool { return t.Spec.Type == workflow.EventTrigger }) {
		return nil
	}
	if c.feed == nil {
		return errs.New(errs.FailedPrecondition, ReasonNoFeed, "this executor reaches no registry, so it hears no events").Hint("set upstream.registry")
	}
	end, err := c.feed.End(ctx, namespace)
	for i := range triggers {
		if triggers[i].Spec.Type == workflow.EventTrigger {
			triggers[i].Since = end
		}
	}
	return err
}

// make renders the triggers of a version, with every fault of those that cannot be.
func (c *Controller) make(namespace string, v Version, now time.Time) ([]Trigger, error) {
	fault := errs.New(errs.InvalidArgument, ReasonInvalid, "the triggers of version %d of workflow %q cannot be turned on", v.Number, v.Workflow)
	paths := map[string]bool{}
	var out []Trigger
	for i := range v.Triggers {
		t := Trigger{Key: Key{namespace, ids.New(Prefix)}, Workflow: v.Workflow, Version: v.Number, Spec: v.Triggers[i], State: Active, CreateTime: now, UpdateTime: now}
		switch t.Spec.Type {
		case workflow.WebhookTrigger:
			t.Path, t.Secret = cmp.Or(t.Spec.Path, v.Workflow+"/"+t.Spec.ID), newSecret()
			if paths[t.Path] {
				fault = fault.Violate("triggers."+t.Spec.ID+".path", ReasonPathTaken, "is that of another trigger of the workflow")
			}
			paths[t.Path] = true
		case workflow.CronTrigger:
			if err := c.schedules.Check(&t.Spec); err != nil {
				fault = violate(fault, t.Spec.ID, err)
			}
		}
		out = append(out, t)
	}
	if len(fault.Violations) > 0 {
		first := fault.Violations[0]
		fault.Message += fmt.Sprintf(": %s %s", first.Field, first.Message)
		return nil, fault
	}
	return out, nil
}

func violate(fault *errs.Error, id string, err error) *errs.Error {
	e := errs.From(err)
	if len(e.Violations) == 0 {
		return fault.Violate("triggers."+id, e.Reason, e.Message)
	}
	for _, v := range e.Violations {
		fault = fault.Violate("triggers."+id+"."+strings.TrimPrefix(v.Field, "schedule."), v.Reason, v.Message)
	}
	return fault
}

func newSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// settle makes the schedules of a workflow what its triggers say. If it is cut off, the next look at the
// activations does the rest.
func (c *Controller) settle(ctx context.Context, a *Activation) error {
	after := ""
	for {
		list, err := c.store.List(ctx, a.Namespace, a.Workflow, after, checkBatch)
		if err != nil {
			return err
		}
		for i := range list {
			if err := c.schedule(ctx, &list[i]); err != nil {
				return err
			}
		}
		if len(list) < checkBatch {
			break
		}
		after = list[len(list)-1].ID
	}
	a.Settled = true
	return c.store.Checked(ctx, *a)
}

func (c *Controller) schedule(ctx context.Context, t *Trigger) error {
	if t.Spec.Type == workflow.CronTrigger && t.State == Active {
		return c.schedules.Put(ctx, t)
	}
	return c.schedules.Remove(ctx, t.Key)
}

// Deactivate turns the triggers of a workflow off. Doing it again is no error. ReasonNotActive if they never
// were on.
func (c *Controller) Deactivate(ctx context.Context, namespace, name string) (Activation, error) {
	return c.end(ctx, Activation{Namespace: namespace, Workflow: name, Reason: "it was deactivated", Principal: access.Of(ctx).String()}, time.Time{})
}

func (c *Controller) end(ctx context.Context, a Activation, was time.Time) (Activation, error) {
	a.UpdateTime = dbkit.Now()
	a, err := c.store.End(ctx, a, was)
	if err != nil || a.State != Ended || a.Settled {
		return a, err
	}
	return a, c.settle(ctx, &a)
}

// Follow looks at what activated workflows stand for now, until ctx ends or all were looked at within the
// last minute.
func (c *Controller) Follow(ctx context.Context) error {
	for {
		list, err := c.store.Unchecked(ctx, dbkit.Now().Add(-checkEvery), checkBatch)
		if err != nil {
			return err
		}
		for i := range list {
			if err := c.follow(ctx, list[i]); err != nil && !errors.Is(err, ErrChanged) && ctx.Err() == nil {
				c.log.WarnContext(ctx, "activated triggers not followed", "err", err, "workflow", list[i].Workflow)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if len(list) < checkBatch {
			return nil
		}
	}
}

// follow looks at one activation. Whatever comes of it, it is not looked at again for a minute.
func (c *Controller) follow(ctx context.Context, a Activation) error {
	a.Checked = dbkit.Now()
	if a.State == Ended || c.catalog == nil {
		return c.settle(ctx, &a)
	}
	v, err := c.catalog.Version(ctx, a.Namespace, a.Ref)
	gone := ""
	switch {
	case errs.Is(err, errs.NotFound):
		gone = "the workflow is gone: " + errs.From(err).Message
	case err != nil:
		return c.noted(ctx, a, err)
	case v.WorkflowID != a.WorkflowID:
		gone = "the workflow was deleted, and another one has its name"
	case v.Number != a.Version:
		next, _, err := c.apply(ctx, a, v, a.Checked, a.UpdateTime)
		if err != nil {
			a.Reason = errs.Clip(fmt.Sprintf("version %d is not followed: %s", v.Number, errs.From(err).Message), maxMessage)
			return c.noted(ctx, a, err)
		}
		return c.settle(ctx, &next)
	}
	if gone != "" {
		_, err := c.end(ctx, Activation{Namespace: a.Namespace, Workflow: a.Workflow, Reason: errs.Clip(gone, maxMessage)}, a.UpdateTime)
		return err
	}
	a.Reason = ""
	return c.settle(ctx, &a)
}

// noted notes that an activation was looked at in vain.
func (c *Controller) noted(ctx context.Context, a Activation, cause error) error {
	if err := c.store.Checked(ctx, a); err != nil {
		return err
	}
	return cause
}

// Activation reads what is known of a workflow's activation. ReasonNotActive.
func (c *Controller) Activation(ctx context.Context, namespace, name string) (Activation, error) {
	return c.store.Activation(ctx, namespace, name)
}

// Rotate gives a webhook a new secret; the old one is worth nothing any more.
func (c *Controller) Rotate(ctx context.Context, k Key) (Trigger, error) {
	t, err := c.store.Trigger(ctx, k)
	if err != nil {
		return t, err
	}
	if t.Spec.Type != workflow.WebhookTrigger {
		return t, errs.New(errs.FailedPrecondition, ReasonInvalid, "trigger %q is no webhook: it has no secret", t.ID)
	}
	return c.store.SetSecret(ctx, k, newSecret(), dbkit.Now())
}

// watches reports whether a trigger waits for the end of a run of a workflow.
func (t *Trigger) watches(e *End) bool {
	switch t.Spec.Type {
	case workflow.WorkflowTrigger:
		return t.Spec.Workflow == e.Workflow && t.Workflow != e.Workflow && (t.Spec.On == "ended" || t.Spec.On == e.Outcome)
	case workflow.ErrorTrigger:
		if e.Outcome != "failed" {
			return false
		}
		if len(t.Spec.Workflows) > 0 {
			return slices.Contains(t.Spec.Workflows, e.Workflow)
		}
		return t.Workflow != e.Workflow
	}
	return false
}
