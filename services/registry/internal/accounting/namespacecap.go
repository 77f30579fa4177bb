package accounting

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// cappedAtOnce is how many stopped epics of a namespace are resumed in one turn, cappedNamespaces how many
// namespaces have turns at a time.
const cappedAtOnce, cappedNamespaces = 20, 200

// changedCaps are the namespaces whose caps were changed by this process, and whose stopped epics were not
// looked at since.
type changedCaps struct {
	wake chan struct{}

	mu         sync.Mutex
	namespaces map[string]bool
}

func newChangedCaps() *changedCaps {
	return &changedCaps{wake: make(chan struct{}, 1), namespaces: map[string]bool{}}
}

func (c *changedCaps) add(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces[namespace] = true
}

func (c *changedCaps) take() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.namespaces
	c.namespaces = map[string]bool{}
	return taken
}

// CapsChanged receives a value when caps of a namespace were changed, so that ResumeCapped has something to
// do at once.
func (b *Accounts) CapsChanged() <-chan struct{} { return b.changed.wake }

// selfRunning returns the epics that run by themselves of those calls for which is holds, by the index of the
// call. It reads once for all of them.
func (b *Accounts) selfRunning(ctx context.Context, namespace string, in []Reservation, is func(i int) bool) (map[int]store.SelfRunning, error) {
	var tasks, epics []string
	for i := range in {
		if !is(i) {
			continue
		}
		if in[i].TaskID != "" {
			tasks = append(tasks, in[i].TaskID)
		}
		if in[i].EpicID != "" {
			epics = append(epics, in[i].EpicID)
		}
	}
	if len(tasks)+len(epics) == 0 {
		return nil, nil
	}
	found, err := view(ctx, b, namespace, func(ctx context.Context, r store.Reader) ([]store.SelfRunning, error) {
		return r.SelfRunning(ctx, namespace, tasks, epics)
	})
	if err != nil {
		return nil, err
	}
	byTask, byEpic := map[string]store.SelfRunning{}, map[string]store.SelfRunning{}
	for _, e := range found {
		if e.TaskID != "" {
			byTask[e.TaskID] = e
		} else {
			byEpic[e.EpicID] = e
		}
	}
	out := map[int]store.SelfRunning{}
	for i := range in {
		if !is(i) {
			continue
		}
		if e, ok := byTask[in[i].TaskID]; ok {
			out[i] = e
		} else if e, ok := byEpic[in[i].EpicID]; ok {
			out[i] = e
		}
	}
	return out, nil
}

// stopAtNamespaceCap pauses the epics that run by themselves for which a call was refused that does not fit
// under a cap of the namespace, whatever calls under way will use. Nothing of them starts then. Their runs
// stop at their next calls. Epics that are stopped already cost one read for all calls.
func (b *Accounts) stopAtNamespaceCap(ctx context.Context, namespace string, in []Reservation, answers []Reserved) error {
	epics, err := b.selfRunning(ctx, namespace, in, func(i int) bool {
		r := answers[i].Refusal
		return r != nil && r.Account.Level == ledger.Namespace && r.Exceeds(r.Cap, r.Spent)
	})
	if err != nil {
		return err
	}
	refused := map[string]*ledger.Refusal{}
	for i, e := range epics {
		if e.State == epic.Active {
			refused[e.EpicID] = answers[i].Refusal
		}
	}
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		r := refused[id]
		err := b.changeIfThere(ctx, namespace, id, func(ctx context.Context, tx store.Tx, e *epic.Epic) (bool, error) {
			if e.Parallel == 0 || e.State != epic.Active {
				return false, nil
			}
			found, err := tx.Accounts(ctx, namespace, []ledger.ID{r.Account})
			if err != nil || len(found) == 0 {
				return false, err
			}
			limit, spent := found[0].Hard.Tokens, found[0].Spent.Tokens
			if r.Money {
				limit, spent = found[0].Hard.NanoUSD, found[0].Spent.NanoUSD
			}
			if limit == nil || !r.Exceeds(*limit, spent) {
				return false, nil // it was raised meanwhile
			}
			return true, stop(ctx, tx, e, epic.ReasonNamespaceCap, dbkit.Now())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resumeWithRoom resumes epics that a cap of the namespace had stopped, and for whose calls there is room
// now: one of their runs has asked.
func (b *Accounts) resumeWithRoom(ctx context.Context, namespace string, in []Reservation, answers []Reserved) error {
	epics, err := b.selfRunning(ctx, namespace, in, func(i int) bool { return answers[i].Refusal == nil })
	if err != nil {
		return err
	}
	stopped := map[string]bool{}
	for _, e := range epics {
		if e.State == epic.Paused && e.PauseReason == epic.ReasonNamespaceCap {
			stopped[e.EpicID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(stopped)) {
		if _, err := b.resumeStopped(ctx, namespace, id); err != nil {
			return err
		}
	}
	return nil
}

// ResumeCapped resumes epics that a cap of their namespace had stopped, where less is spent than the cap: all
// of a namespace whose caps were changed by this process, and of other namespaces those of which no run works
// on a task. The runs of the rest ask for room by themselves, and resume their epics with it. It returns how
// many it has resumed. Each namespace has some in turn, so that one with many keeps no other waiting.
//
// The paused epics are all that must be known. So what a process that ends leaves undone, another one does
// with its next look.
func (b *Accounts) ResumeCapped(ctx context.Context) (resumed int, err error) {
	changed := b.changed.take()
	var failed error
	for after := ""; ctx.Err() == nil; {
		left, err := b.store.CappedNamespaces(ctx, after, cappedNamespaces)
		if err != nil || len(left) == 0 {
			return resumed, errors.Join(failed, err)
		}
		after = left[len(left)-1]
		last := map[string]string{}
		for len(left) > 0 {
			more := left[:0:0]
			for _, namespace := range left {
				n, next, err := b.resumeSome(ctx, namespace, last[namespace], changed[namespace])
				resumed += n
				if err != nil {
					if failed = errors.Join(failed, err); changed[namespace] {
						b.changed.add(namespace)
					}
					continue // the other namespaces have their turn
				}
				if last[namespace] = next; next != "" {
					more = append(more, namespace)
				}
			}
			left = more
		}
	}
	return resumed, errors.Join(failed, ctx.Err())
}

// resumeSome resumes some of the stopped epics of a namespace behind one. next is where to go on, or "".
func (b *Accounts) resumeSome(ctx context.Context, namespace, after string, all bool) (resumed int, next string, err error) {
	var ids []string
	err = b.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		found, err := r.Accounts(ctx, namespace, []ledger.ID{{Level: ledger.Namespace}})
		if err != nil || len(found) > 0 && !found[0].Left() {
			return err
		}
		ids, err = r.CappedEpics(ctx, namespace, after, all, cappedAtOnce)
		return err
	})
	if err != nil {
		return 0, "", err
	}
	for _, id := range ids {
		done, err := b.resumeStopped(ctx, namespace, id)
		if err != nil {
			return resumed, "", err
		}
		if done {
			resumed++
		}
	}
	if len(ids) == cappedAtOnce {
		next = ids[len(ids)-1]
	}
	return resumed, next, nil
}

// resumeStopped resumes an epic that a cap of its namespace had stopped, and no other.
func (b *Accounts) resumeStopped(ctx context.Context, namespace, id string) (resumed bool, err error) {
	err = b.changeIfThere(ctx, namespace, id, func(ctx context.Context, tx store.Tx, e *epic.Epic) (bool, error) {
		if resumed = e.State == epic.Paused && e.PauseReason == epic.ReasonNamespaceCap; !resumed {
			return false, nil
		}
		before, now := *e, dbkit.Now()
		if err := e.Move(epic.Active, now); err != nil {
			return false, err
		}
		e.Touch(now, "")
		return true, follow(ctx, tx, before, e, now)
	})
	return resumed && err == nil, err
}

// changeIfThere changes a locked epic in a transaction of its own, if fn says so. One that is gone is no
// error.
func (b *Accounts) changeIfThere(ctx context.Context, namespace, id string, fn func(context.Context, store.Tx, *epic.Epic) (bool, error)) error {
	err := b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		e, err := tx.LockEpic(ctx, namespace, id)
		if err != nil {
			return err
		}
		read := e.Revision
		changed, err := fn(ctx, tx, &e)
		if err != nil || !changed {
			return err
		}
		e.UpdateTime = dbkit.Now()
		return tx.PutEpic(ctx, e, read)
	})
	if errs.ReasonOf(err) == store.ReasonEpicNotFound {
		return nil
	}
	return err
}
