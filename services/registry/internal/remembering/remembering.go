// Package remembering owns the use cases of the memory: one method per request, each one transaction
// over the store, in which the rules of package memory are applied. It must not know any protocol or
// driver.
package remembering

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/learned"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// ReasonSearchEmpty refuses a search in no scope, or in too many.
const ReasonSearchEmpty = "MEMORY_SCOPES_INVALID"

// forgottenAtOnce is how many entries one transaction forgets, or a sweep removes.
const forgottenAtOnce = 200

// Memories applies the use cases to a store. It is safe for concurrent use.
type Memories struct {
	store  store.Store
	bounds memory.Bounds
	// similar are the turns of searches by meaning.
	similar *turns.Turns
}

// A search by meaning reads more than any other: a namespace has this many of them at once, all together have
// searchesOfAll, and searchesWaiting of one namespace wait for a turn.
const searchesOfOne, searchesOfAll, searchesWaiting = 2, 4, 100

// New returns the use cases over a store, which stays the caller's to close.
func New(s store.Store) *Memories {
	return &Memories{store: s, bounds: memory.DefaultBounds(), similar: turns.Within(turns.Bounds{Key: searchesOfOne, All: searchesOfAll, Waiting: searchesWaiting})}
}

// Within returns the use cases over the same store with these bounds.
func (m *Memories) Within(b memory.Bounds) *Memories {
	return &Memories{store: m.store, bounds: b, similar: m.similar}
}

// Write keeps an entry. It takes the place of the one that its scope has of this key. removed are
// those that gave way, because the scope holds no more.
func (m *Memories) Write(ctx context.Context, namespace string, c request.Change, in memory.Entry) (out memory.Entry, removed []memory.Entry, err error) {
	now := dbkit.Now()
	in.Principal = request.Caller(ctx)
	if in, err = memory.New(namespace, in, now); err != nil {
		return out, nil, err
	}
	err = m.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		before, found, err := tx.LockMemory(ctx, namespace, in.Scope.Place(), in.Key)
		if err != nil {
			return err
		}
		id := in.ID
		if found {
			id = before.ID
		}
		// The record of the request names the entry by its id: a scope may name a user, who may be forgotten
		// before the record is.
		earlier, err := c.Earlier(ctx, tx, namespace, "WriteMemory", id, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.Memory(ctx, namespace, earlier)
			return err
		}
		if found && superseded(in, before, now) {
			out = before
			return nil
		}
		if out, removed, err = put(ctx, tx, in, c.Etag, m.bounds, now); err == nil && out.ID != id && c.ID != "" {
			err = store.Changed("memory", in.Key) // somebody added it meanwhile; the repetition finds it
		}
		return err
	})
	return out, removed, err
}

// superseded reports whether an agent of a run has learned an entry in an earlier step than what is
// there. The executor delivers for runs side by side, so what was learned first may come last.
func superseded(in, before memory.Entry, now time.Time) bool {
	return in.Origin == memory.ByAgent && in.Principal == "" && strings.HasPrefix(in.Key, learned.Prefix) && !before.Expired(now) &&
		learned.Before(in.Value, before.Value)
}

// Put keeps an entry in the transaction of what it is about, which it must not fail: within the bound of
// its scope, and whether or not the namespace is full.
func Put(ctx context.Context, tx store.Tx, in memory.Entry, now time.Time) error {
	e, err := memory.New(in.Namespace, in, now)
	if err == nil {
		b := memory.DefaultBounds()
		b.Entries, b.Bytes = 0, 0
		_, _, err = put(ctx, tx, e, "", b, now)
	}
	return err
}

func put(ctx context.Context, tx store.Tx, in memory.Entry, etag string, b memory.Bounds, now time.Time) (out memory.Entry, removed []memory.Entry, err error) {
	place := in.Scope.Place()
	before, found, err := tx.LockMemory(ctx, in.Namespace, place, in.Key)
	if err != nil {
		return out, nil, err
	}
	if !found {
		if etag != "" && etag != "*" {
			return out, nil, memory.NotFound(in.Key)
		}
		added, err := tx.InsertMemory(ctx, in)
		if err != nil {
			return out, nil, err
		}
		if added {
			removed, err = makeRoom(ctx, tx, &in, b)
			return in, removed, err
		}
		// Somebody else has added it meanwhile.
		if before, found, err = tx.LockMemory(ctx, in.Namespace, place, in.Key); err != nil || !found {
			if err == nil {
				err = store.Changed("memory", in.Key)
			}
			return out, nil, err
		}
	}
	if err := epic.CheckEtag("memory "+before.ID, before.Revision, etag); err != nil {
		return out, nil, err
	}
	out = in.Over(before, now)
	if err := tx.PutMemory(ctx, out); err != nil || out.Size() <= before.Size() {
		return out, nil, err
	}
	removed, err = makeRoom(ctx, tx, &out, b)
	return out, removed, err
}

// makeRoom has entries of the scope of one that was written give way to it, and refuses it where too few
// can.
func makeRoom(ctx context.Context, tx store.Tx, e *memory.Entry, b memory.Bounds) ([]memory.Entry, error) {
	total, err := tx.MemoryTotal(ctx, e.Namespace)
	if err != nil {
		return nil, err
	}
	removed, err := tx.MakeRoom(ctx, e.Namespace, e.Scope.Place(), e.ID, e.Scope.Most(b), total.Over(b))
	if err != nil || total.Over(b) == (memory.Total{}) {
		return removed, err
	}
	left, err := tx.MemoryTotal(ctx, e.Namespace)
	if err == nil && left.Over(b) != (memory.Total{}) {
		return nil, memory.Full(total, b)
	}
	return removed, err
}

// Get reads one that has not expired, and records who has read it.
func (m *Memories) Get(ctx context.Context, namespace, id string) (out memory.Entry, err error) {
	now := dbkit.Now()
	err = m.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		out, err = r.Memory(ctx, namespace, id)
		if err == nil && out.Expired(now) {
			err = memory.NotFound(id)
		}
		return err
	})
	if err != nil {
		return out, err
	}
	by := memory.Read{Method: "GetMemory", Scopes: []string{out.Scope.Place()}}
	by.Tells(id)
	return out, m.record(ctx, namespace, by, now)
}

// record keeps who has read. What cannot be recorded is not told.
func (m *Memories) record(ctx context.Context, namespace string, by memory.Read, now time.Time) error {
	by.Namespace, by.ID, by.Time, by.Principal = namespace, ids.New(memory.ReadPrefix), now, request.Caller(ctx)
	return m.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error { return tx.InsertMemoryRead(ctx, by) })
}

// Told records that entries of a list are told, by the RPC of a name. Only the caller knows which fit into
// the page.
func (m *Memories) Told(ctx context.Context, method string, q store.MemoryQuery, ids []string) error {
	by := memory.Read{Method: method, Query: q.UserID}
	if q.Place != "" {
		by.Scopes = []string{q.Place}
	}
	by.Tells(ids...)
	return m.record(ctx, q.Namespace, by, dbkit.Now())
}

// List lists what has not expired. Told records who has read it.
func (m *Memories) List(ctx context.Context, q store.MemoryQuery) (out store.Found[memory.Entry], err error) {
	q.Now = dbkit.Now()
	err = m.store.View(ctx, q.Namespace, func(ctx context.Context, r store.Reader) error {
		out, err = r.Memories(ctx, q)
		return err
	})
	return out, err
}

// Search finds entries of scopes, the best first, and records who has read them: what cannot be
// recorded is not told.
func (m *Memories) Search(ctx context.Context, q memory.Query, by memory.Read) (found memory.Found, err error) {
	if len(q.Scopes) == 0 || len(q.Scopes) > memory.MaxScopes {
		return found, errs.New(errs.InvalidArgument, ReasonSearchEmpty, "a search reads from 1 to %d scopes, not %d", memory.MaxScopes, len(q.Scopes)).
			Violate("scopes", ReasonSearchEmpty, "must be from 1 to 8")
	}
	places := map[string]bool{}
	scopes := q.Scopes[:0:0]
	for _, s := range q.Scopes {
		if err := s.Check(); err != nil {
			return found, err
		}
		if !places[s.Place()] {
			places[s.Place()] = true
			scopes = append(scopes, s)
		}
	}
	q.Scopes = scopes
	now := dbkit.Now()
	if q.Vector != nil && q.Key == "" {
		q.Compare = m.bounds.Compared / q.Vector.Size()
		leave, err := m.turn(ctx, q.Namespace)
		if err != nil {
			return found, err
		}
		defer leave()
	}
	err = m.store.View(ctx, q.Namespace, func(ctx context.Context, r store.Reader) error {
		found, err = search(ctx, r, q, now)
		return err
	})
	if err != nil {
		return memory.Found{}, err
	}
	by.Method = "SearchMemory"
	by.Query = errs.Clip(strings.ReplaceAll(strings.TrimSpace(q.Key+" "+q.Text), "\x00", ""), memory.MaxReadQuery)
	for _, s := range q.Scopes {
		by.Scopes = append(by.Scopes, s.Place())
	}
	for _, h := range found.Hits {
		by.Tells(h.Entry.ID)
	}
	return found, m.record(ctx, q.Namespace, by, now)
}

// turn waits for the turn of a search by meaning.
func (m *Memories) turn(ctx context.Context, namespace string) (leave func(), err error) {
	leave, err = m.similar.Enter(ctx, namespace)
	if errors.Is(err, turns.ErrFull) {
		return nil, errs.New(errs.ResourceExhausted, dbkit.ReasonBusy, "%d searches by meaning of the namespace wait already", searchesWaiting).
			Hint("try again in a moment, send fewer searches at once, or search by words").RetryAfter(time.Second).With(err)
	}
	return leave, err
}

func search(ctx context.Context, r store.Reader, q memory.Query, now time.Time) (out memory.Found, err error) {
	if q.Key != "" {
		out.Hits, err = byKey(ctx, r, &q, now)
		return out, err
	}
	hits, err := r.FindMemories(ctx, q, q.Words(), now)
	if err != nil {
		return out, err
	}
	memory.Rank(hits)
	if q.Vector != nil {
		similar, err := r.SimilarMemories(ctx, q, now)
		if err != nil {
			return out, err
		}
		if len(q.Words()) == 0 {
			hits = nil // they are the newest, whatever they say
		}
		hits, out.NotCompared = memory.Fuse(hits, similar.Hits), similar.NotCompared
	}
	hits = hits[:min(len(hits), q.Limit)]
	wanted := make([]string, len(hits))
	for i, h := range hits {
		wanted[i] = h.Entry.ID
	}
	entries, err := r.MemoriesOf(ctx, q.Namespace, wanted)
	if err != nil {
		return memory.Found{}, err
	}
	var g page.Gauge
	out.Hits = hits[:0]
	for _, h := range hits {
		e, there := entries[h.Entry.ID]
		if !there {
			continue
		}
		if h.Entry = e; g.Add(e) {
			break
		}
		out.Hits = append(out.Hits, h)
	}
	return out, nil
}

// byKey are the entries of the scopes that have a key, in the order of the scopes.
func byKey(ctx context.Context, r store.Reader, q *memory.Query, now time.Time) (out []memory.Hit, err error) {
	places := make([]string, len(q.Scopes))
	for i, s := range q.Scopes {
		places[i] = s.Place()
	}
	there, err := r.MemoriesAt(ctx, q.Namespace, places, q.Key)
	for _, s := range q.Scopes {
		for _, e := range there {
			if e.Scope == s && q.Passes(&e, now) && len(out) < q.Limit {
				out = append(out, memory.Hit{Entry: e, Weights: words.Weights{}})
			}
		}
	}
	return out, err
}

// Unembedded hands out entries of all namespaces of which a model has made no vector, for a while.
func (m *Memories) Unembedded(ctx context.Context, model string, limit int) ([]memory.Entry, error) {
	return m.store.LeaseUnembedded(ctx, model, min(limit, memory.MaxToEmbed), memory.EmbedTime)
}

// Embed sets the vector of an entry, unless it was written since it had the etag.
func (m *Memories) Embed(ctx context.Context, namespace, id, etag string, v *memory.Embedding) error {
	return m.tried(ctx, namespace, id, etag, func(ctx context.Context, tx store.Tx, revision int64) (bool, error) {
		return tx.EmbedMemory(ctx, namespace, id, revision, v)
	})
}

// Refuse records why a model made no vector of an entry, unless it was written since it had the etag.
func (m *Memories) Refuse(ctx context.Context, namespace, id, etag string, f memory.Fault) error {
	return m.tried(ctx, namespace, id, etag, func(ctx context.Context, tx store.Tx, revision int64) (bool, error) {
		return tx.RefuseVector(ctx, namespace, id, revision, f)
	})
}

// tried records what came of the try to make a vector of an entry at an etag.
func (m *Memories) tried(ctx context.Context, namespace, id, etag string, set func(ctx context.Context, tx store.Tx, revision int64) (bool, error)) error {
	return m.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		e, err := tx.Memory(ctx, namespace, id)
		if err == nil {
			err = epic.CheckEtag("memory "+id, e.Revision, etag)
		}
		if err != nil {
			return err
		}
		done, err := set(ctx, tx, e.Revision)
		if err == nil && !done {
			err = store.Changed("memory", id)
		}
		return err
	})
}

// Delete removes one.
func (m *Memories) Delete(ctx context.Context, namespace, id, etag string) error {
	return m.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		e, err := tx.Memory(ctx, namespace, id)
		if err != nil {
			return err
		}
		if err := epic.CheckEtag("memory "+id, e.Revision, etag); err != nil {
			return err
		}
		if etag == "" || etag == "*" {
			e.Revision = 0
		}
		return tx.DeleteMemory(ctx, namespace, id, e.Revision)
	})
}

// Forget removes all entries of a scope, of a user, or of the namespace, some in each transaction.
// What was forgotten stays forgotten if it fails in between. Each transaction records who has forgotten what,
// and how many entries that were.
func (m *Memories) Forget(ctx context.Context, namespace string, f store.Forget) (entries, reads int, err error) {
	by := memory.Read{Method: memory.MethodForget, Query: f.UserID}
	switch {
	case f.Place != "":
		by.Scopes = []string{f.Place}
	case f.UserID == "":
		by.Query = "everything"
	}
	for first := true; ; first = false {
		var n, k int
		err := m.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) (err error) {
			if n, k, err = tx.ForgetMemories(ctx, namespace, f, forgottenAtOnce); err != nil || !first && n+k == 0 {
				return err
			}
			record := by
			record.Namespace, record.ID, record.Time, record.Principal, record.Told = namespace, ids.New(memory.ReadPrefix), dbkit.Now(), request.Caller(ctx), n
			return tx.InsertMemoryRead(ctx, record)
		})
		if err != nil {
			return entries, reads, err
		}
		if entries, reads = entries+n, reads+k; n < forgottenAtOnce && k < forgottenAtOnce {
			return entries, reads, nil
		}
	}
}

// Reads lists who has read.
func (m *Memories) Reads(ctx context.Context, q store.MemoryReadQuery) (out []memory.Read, err error) {
	err = m.store.View(ctx, q.Namespace, func(ctx context.Context, r store.Reader) error {
		out, err = r.MemoryReads(ctx, q)
		return err
	})
	return out, err
}

// Sweep removes entries that have expired and old records of reads.
func (m *Memories) Sweep(ctx context.Context) (entries, reads int64, err error) {
	return m.store.SweepMemory(ctx, store.DefaultMemoryBounds(), dbkit.Now(), forgottenAtOnce)
}
