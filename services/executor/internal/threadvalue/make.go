package threadvalue

import (
	"cmp"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Make returns what makes the threads anew at a time, the whole first, as create says of it. Its agent
// and title are those of the document where create has none. All ids are new.
func (v *Value) Make(create workgraph.ThreadCreate, now time.Time) ([]thread.Append, error) {
	named := v.ids()
	out := make([]thread.Append, len(v.threads))
	for i := range v.threads {
		e := &v.threads[i]
		c := &workgraph.ThreadCreate{Lifetime: thread.PartLifetime(create.Lifetime), PartOf: named[e.PartOf], Agent: e.Agent, Title: e.Title, UserID: create.UserID, ChatID: create.ChatID}
		if e.Name != "" {
			c.Key = thread.NamedPart(c.PartOf, e.Name)
		}
		if i == 0 {
			whole := create
			whole.Agent, whole.Title = cmp.Or(create.Agent, e.Agent), cmp.Or(create.Title, e.Title)
			c = &whole
		}
		out[i] = thread.Append{Thread: named[e.ID], Create: c, Time: now}
		var err error
		if out[i].Items, err = e.made(named, now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ids are the new ids of the threads, by those of the document.
func (v *Value) ids() map[string]string {
	out := make(map[string]string, len(v.threads))
	for i := range v.threads {
		out[v.threads[i].ID] = ids.New(thread.IDPrefix)
	}
	return out
}

// made are the items of a thread. None is of a later time than now: the last one says when the thread
// was used.
func (e *entry) made(named map[string]string, now time.Time) ([]thread.Item, error) {
	out := make([]thread.Item, len(e.items))
	for i := range e.items {
		it := &e.items[i]
		body := it.Body
		if it.team != nil {
			var err error
			if body, err = it.team.Mapped(func(id string) string { return named[id] }); err != nil {
				return nil, err
			}
		}
		when := it.Time
		if when.IsZero() || when.After(now) || when.Year() < 1970 {
			when = now
		}
		out[i] = thread.Item{Seq: int64(i) + 1, Kind: it.kind, Time: dbkit.Micros(when.UTC()), Brief: it.Brief, Body: body, Weight: int64(len(it.Brief)+len(body)) + thread.Overhead}
		if it.kind == workgraph.ThreadMessage {
			out[i].Role = thread.RoleOf(body)
		}
	}
	return out, nil
}
