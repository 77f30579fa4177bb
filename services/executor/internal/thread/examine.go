package thread

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Finder finds threads.
type Finder interface {
	Thread(ctx context.Context, namespace, id string) (Thread, error)
	ThreadByKey(ctx context.Context, namespace, key string) (Thread, error)
	ThreadUsage(ctx context.Context, namespace string) (Usage, error)
}

// Examine reports whether a commit could add these items now, as Found.Resolve does in a commit. It sees that
// early, when the one attempt can still fail by itself. ends, if not nil, knows the ends of some threads.
// Errors are those of the finder, ReasonConflict, ReasonTooMany and ReasonTooLarge.
func Examine(ctx context.Context, by Finder, ends *Ends, namespace, runID string, of []workgraph.ThreadAppend, room Room) error {
	if ends.allow(namespace, of) {
		return nil
	}
	var f Found
	used, err := by.ThreadUsage(ctx, namespace)
	if err != nil {
		return err
	}
	f.AddUsage(namespace, used)
	note := func(id string) (Thread, bool, error) {
		if st := f.threads[id]; st != nil {
			return st.Thread, true, nil
		}
		t, err := by.Thread(ctx, namespace, id)
		if errs.ReasonOf(err) == ReasonNotFound {
			return t, false, nil
		}
		if err == nil {
			f.Add(t)
		}
		return t, err == nil, err
	}
	for i := range of {
		a := &of[i]
		t, there, err := note(a.Thread)
		if err != nil {
			return err
		}
		if there && t.Last > a.After {
			f.AddItem(t.ID, Item{Seq: a.After + 1})
		}
		if there && t.Last >= a.After && a.After > t.ParentSeq {
			f.AddItem(t.ID, Item{Seq: a.After})
		}
		c := a.Create
		if c == nil {
			continue
		}
		if c.Key != "" {
			switch other, err := by.ThreadByKey(ctx, namespace, c.Key); {
			case err == nil:
				f.AddKey(namespace, c.Key, other.ID)
			case errs.ReasonOf(err) != ReasonNotFound:
				return err
			}
		}
		if c.PartOf != "" {
			if _, _, err := note(c.PartOf); err != nil {
				return err
			}
		}
		if c.Parent == "" {
			continue
		}
		if p, there, err := note(c.Parent); err != nil {
			return err
		} else if there && p.Last >= c.ParentSeq {
			f.AddItem(p.ID, Item{Seq: c.ParentSeq})
		}
	}
	_, err = f.Resolve(namespace, runID, Appends(of, runID, "", 0, time.Time{}), room, nil)
	return err
}
