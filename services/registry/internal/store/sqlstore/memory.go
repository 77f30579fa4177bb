package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

const memoryColumns = `t.namespace, t.id, t.place, t.key, t.kind, t.text, t.value, t.tags, t.origin, t.source, t.user_id, t.confidence,
	t.expire_time, t.create_time, t.update_time, t.revision, t.principal, t.embed_attempts, t.embed_fault`

func scanMemory(row dbkit.Scanner) (e memory.Entry, err error) {
	var place, value, fault string
	var thousandths, refused int64
	if err := row.Scan(&e.Namespace, &e.ID, &place, &e.Key, &e.Kind, &e.Text, &value, &e.Tags, &e.Origin, &e.Source, &e.UserID, &thousandths,
		dbkit.At(&e.ExpireTime), dbkit.At(&e.CreateTime), dbkit.At(&e.UpdateTime), &e.Revision, &e.Principal, &refused, &fault); err != nil {
		return e, err
	}
	e.SetVectorFault(int(refused), fault)
	e.Scope, e.Tags, e.Confidence = memory.ScopeAt(place), trim(e.Tags), float64(thousandths)/1000
	if value != "" {
		e.Value = []byte(value)
	}
	return e, nil
}

func memoryArgs(e *memory.Entry) []any {
	return []any{
		e.Namespace, e.ID, e.Scope.Place(), e.Key, e.Kind, e.Text, string(e.Value), e.Tags, e.Origin, e.Source, e.UserID, int64(math.Round(e.Confidence * 1000)),
		e.ExpireTime, e.CreateTime, e.UpdateTime, e.Revision, e.Principal,
	}
}

// alive holds for an entry that has not expired at a time.
func (t tx) alive(now string) string {
	return `(` + t.d.Unset(`t.expire_time`) + ` OR t.expire_time > ` + now + `)`
}

// Memory implements store.Reader.
func (t tx) Memory(ctx context.Context, namespace, id string) (memory.Entry, error) {
	return one(ctx, t, memory.NotFound(id), scanMemory, `SELECT `+memoryColumns+` FROM memories t WHERE t.namespace = $1 AND t.id = $2`, namespace, id)
}

// MemoriesAt implements store.Reader.
func (t tx) MemoriesAt(ctx context.Context, namespace string, places []string, key string) ([]memory.Entry, error) {
	return collect(ctx, t, scanMemory, `SELECT `+memoryColumns+` FROM memories t WHERE t.namespace = $1 AND `+t.d.In(`t.place`, `$2`)+` AND t.key = $3 ORDER BY t.id`, namespace, places, key)
}

// Memories implements store.Reader.
func (t tx) Memories(ctx context.Context, q store.MemoryQuery) (store.Found[memory.Entry], error) {
	l := listing[memory.Entry]{
		table: "memories", columns: memoryColumns, scan: scanMemory, newest: !q.Oldest,
		namespace: q.Namespace, after: q.After, limit: q.Limit, look: q.Look,
	}
	l.add("t.namespace = %s", q.Namespace)
	if q.Place != "" {
		l.add("t.place = %s", q.Place)
	}
	l.fit(func(_, param string) string { return t.alive(param) }, "", q.Now)
	if len(q.Kinds) > 0 {
		l.fit(t.d.In, "t.kind", states(q.Kinds))
	}
	if q.UserID != "" {
		l.fit(func(column, param string) string { return column + ` = ` + param }, "t.user_id", q.UserID)
	}
	if q.Agent != "" {
		from, end := learnedBy(q.Agent)
		l.fit(func(column, param string) string { return column + ` >= ` + param }, "t.key", from)
		l.fit(func(column, param string) string { return column + ` < ` + param }, "t.key", end)
	}
	return l.rows(ctx, t)
}

// candidates are entries that a search may tell.
type candidates struct {
	// weights are those of the words of the query, by the id of the entry, and places the places.
	weights map[string]words.Weights
	places  map[string]string
	// cut are words of a place that more entries have than were looked at.
	cut map[string][]string
}

// FindMemories implements store.Reader. Ids of entries ascend with the time of their first write, in
// one process strictly and among several by their clocks.
func (t tx) FindMemories(ctx context.Context, q memory.Query, wanted []string, now time.Time) ([]memory.Hit, error) {
	if q.Agent != "" {
		return t.findLearned(ctx, q, wanted, now)
	}
	c := candidates{weights: map[string]words.Weights{}, places: map[string]string{}, cut: map[string][]string{}}
	for _, s := range q.Scopes {
		if err := t.findIn(ctx, &q, s.Place(), wanted, &c); err != nil {
			return nil, err
		}
	}
	hits, err := t.sieveMemories(ctx, &q, &c, now)
	if err != nil || len(hits) == 0 {
		return nil, err
	}
	err = t.lookUpWords(ctx, wordTable{name: "memory_words", id: "memory_id", placed: true}, q.Namespace, c.weights, func(id string) (string, []string) {
		place := c.places[id]
		return place, c.cut[place]
	})
	for i := range hits {
		hits[i].Weights = c.weights[hits[i].Entry.ID]
	}
	return hits, err
}

// sieveMemories takes out what does not pass the filters. Texts are read of those that rank first only.
func (t tx) sieveMemories(ctx context.Context, q *memory.Query, c *candidates, now time.Time) ([]memory.Hit, error) {
	ids := slices.Sorted(maps.Keys(c.weights))
	if len(ids) == 0 {
		return nil, nil
	}
	w := where{args: []any{ids, q.Namespace}}
	w.parts = []string{t.alive(w.arg(now))}
	w.add("t.confidence >= %s", int64(math.Ceil(q.MinConfidence*1000)))
	if len(q.AnyTag) > 0 {
		w.parts = append(w.parts, t.d.Overlap("t.tags", w.arg(q.AnyTag)))
	}
	passed := map[string]bool{}
	hits, err := collect(ctx, t, func(row dbkit.Scanner) (h memory.Hit, err error) {
		var thousandths int64
		err = row.Scan(&h.Entry.ID, &thousandths, dbkit.At(&h.Entry.UpdateTime))
		h.Entry.Confidence, passed[h.Entry.ID] = float64(thousandths)/1000, true
		return h, err
	}, `SELECT t.id, t.confidence, t.update_time FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+t.d.LookUp(`memories`, `t`, `t.namespace = $2 AND t.id = w.want`)+
		` WHERE `+strings.Join(w.parts, " AND "), w.args...)
	maps.DeleteFunc(c.weights, func(id string, _ words.Weights) bool { return !passed[id] })
	return hits, err
}

// findIn finds entries of one scope by words, or the last ones. It looks at each kind apart, so that the
// many facts of a scope do not hide its few procedures.
func (t tx) findIn(ctx context.Context, q *memory.Query, place string, wanted []string, c *candidates) error {
	kinds := slices.Compact(slices.Sorted(slices.Values(q.Kinds)))
	if len(kinds) == 0 {
		kinds = []memory.Kind{memory.Fact, memory.Procedure, memory.Preference}
	}
	look := memory.MaxFound / len(q.Scopes) / len(kinds)
	of := func(each string) string {
		parts := make([]string, len(kinds))
		for i, k := range kinds {
			parts[i] = fmt.Sprintf(`SELECT * FROM (`+each+`) k%d`, k, k)
		}
		return strings.Join(parts, ` UNION ALL `)
	}
	if len(wanted) == 0 {
		return t.each(ctx, func(row dbkit.Scanner) error {
			var id string
			err := row.Scan(&id)
			c.weights[id], c.places[id] = words.Weights{}, place
			return err
		}, of(`SELECT id FROM memories WHERE namespace = $1 AND place = $2 AND kind = %d ORDER BY create_time DESC, id DESC LIMIT $3`), q.Namespace, place, look)
	}
	look /= len(wanted)
	query := of(`SELECT memory_id, weight, kind FROM memory_words WHERE namespace = $1 AND place = $2 AND kind = %d AND word = $3 ORDER BY weight DESC, memory_id DESC LIMIT $4`)
	for _, word := range wanted {
		seen := map[memory.Kind]int{}
		if err := t.each(ctx, func(row dbkit.Scanner) error {
			var id string
			var weight int64
			var kind memory.Kind
			err := row.Scan(&id, &weight, &kind)
			if c.weights[id] == nil {
				c.weights[id] = words.Weights{}
			}
			c.weights[id][word], c.places[id] = weight, place
			seen[kind]++
			return err
		}, query, q.Namespace, place, word, look); err != nil {
			return err
		}
		for _, n := range seen {
			if n == look {
				c.cut[place] = append(c.cut[place], word)
				break
			}
		}
	}
	return nil
}

// MemoriesOf implements store.Reader.
func (t tx) MemoriesOf(ctx context.Context, namespace string, ids []string) (map[string]memory.Entry, error) {
	out := make(map[string]memory.Entry, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	err := t.each(ctx, func(row dbkit.Scanner) error {
		e, err := scanMemory(row)
		out[e.ID] = e
		return err
	}, `SELECT `+memoryColumns+` FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+t.d.LookUp(`memories`, `t`, `t.namespace = $2 AND t.id = w.want`), ids, namespace)
	return out, err
}

// LockMemory implements store.Tx.
func (t tx) LockMemory(ctx context.Context, namespace, place, key string) (e memory.Entry, found bool, err error) {
	all, err := collect(ctx, t, scanMemory, `SELECT `+memoryColumns+` FROM memories t WHERE t.namespace = $1 AND t.place = $2 AND t.key = $3`+t.d.Locked(), namespace, place, key)
	if err != nil || len(all) == 0 {
		return e, false, err
	}
	return all[0], true, nil
}

// InsertMemory implements store.Tx.
func (t tx) InsertMemory(ctx context.Context, e memory.Entry) (added bool, err error) {
	n, err := t.Exec(ctx, `INSERT INTO memories (namespace, id, place, key, kind, text, value, tags, origin, source, user_id, confidence,
			expire_time, create_time, update_time, revision, principal, bytes, embed_after)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, `+t.d.Now()+`) ON CONFLICT (namespace, place, key) DO NOTHING`, append(memoryArgs(&e), e.Size())...)
	if err != nil || n == 0 {
		return false, err
	}
	t.changes.remember(e)
	t.changes.memory.Entries++
	t.changes.memory.Bytes += int64(e.Size())
	if e.Vector != nil {
		if err := t.setVector(ctx, e.Namespace, e.ID, e.Scope.Place(), e.Vector, e.OwnVector()); err != nil {
			return true, err
		}
	}
	return true, t.putMemoryWords(ctx, &e)
}

// PutMemory implements store.Tx.
func (t tx) PutMemory(ctx context.Context, e memory.Entry) error {
	var before int64
	if err := t.row(ctx, `SELECT COALESCE(sum(bytes), 0) FROM memories WHERE namespace = $1 AND id = $2`, e.Namespace, e.ID).Scan(&before); err != nil {
		return err
	}
	if err := t.change(ctx, store.Changed("memory", e.ID), `UPDATE memories SET place = $3, key = $4, kind = $5, text = $6, value = $7, tags = $8, origin = $9, source = $10,
			user_id = $11, confidence = $12, expire_time = $13, create_time = $14, update_time = $15, revision = $16, principal = $17, bytes = $18,
			embed_after = `+t.d.Now()+`, embed_attempts = 0, embed_fault = ''
		WHERE namespace = $1 AND id = $2`, append(memoryArgs(&e), e.Size())...); err != nil {
		return err
	}
	t.changes.remember(e)
	t.changes.memory.Bytes += int64(e.Size()) - before
	// The vector of before stands for what the entry said then.
	if err := t.setVector(ctx, e.Namespace, e.ID, e.Scope.Place(), e.Vector, e.OwnVector()); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM memory_words WHERE namespace = $1 AND memory_id = $2`, e.Namespace, e.ID); err != nil {
		return err
	}
	return t.putMemoryWords(ctx, &e)
}

func (t tx) putMemoryWords(ctx context.Context, e *memory.Entry) error {
	words := e.Words()
	columns := [][2]string{{"namespace", "text"}, {"place", "text"}, {"word", "text"}, {"memory_id", "text"}, {"weight", "bigint"}, {"kind", "bigint"}}
	rows := make([][]any, 0, len(words))
	for _, w := range slices.Sorted(maps.Keys(words)) {
		rows = append(rows, []any{e.Namespace, e.Scope.Place(), w, e.ID, words[w], int64(e.Kind)})
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := t.Exec(ctx, `INSERT INTO memory_words (namespace, place, word, memory_id, weight, kind)
		SELECT n.namespace, n.place, n.word, n.memory_id, n.weight, n.kind FROM `+t.d.Rows(`n`, 1, columns...), t.d.RowArgs(len(columns), rows)...)
	return err
}

// MemoryTotal implements store.Reader.
func (t tx) MemoryTotal(ctx context.Context, namespace string) (total memory.Total, err error) {
	err = t.row(ctx, `SELECT COALESCE(sum(entries), 0), COALESCE(sum(bytes), 0) FROM memory_totals WHERE namespace = $1`, namespace).Scan(&total.Entries, &total.Bytes)
	if t.changes != nil {
		total.Entries += t.changes.memory.Entries
		total.Bytes += t.changes.memory.Bytes
	}
	return total, err
}

// countMemory adds what the transaction has changed to the total of the namespace. It locks the total, as
// telling locks the feed, so it comes late.
func (t tx) countMemory(ctx context.Context, namespace string) error {
	c := t.changes.memory
	if c == (memory.Total{}) {
		return nil
	}
	_, err := t.Exec(ctx, `INSERT INTO memory_totals (namespace, entries, bytes) VALUES ($1, $2, $3)
		ON CONFLICT (namespace) DO UPDATE SET entries = memory_totals.entries + excluded.entries, bytes = memory_totals.bytes + excluded.bytes`, namespace, c.Entries, c.Bytes)
	return err
}

// MakeRoom implements store.Tx.
func (t tx) MakeRoom(ctx context.Context, namespace, place, kept string, most int, over memory.Total) (removed []memory.Entry, err error) {
	have, err := t.count(ctx, `SELECT 1 FROM memories WHERE namespace = $1 AND place = $2 LIMIT $3`, namespace, place, most+maxMadeRoom)
	over.Entries = max(over.Entries, int64(have-most))
	if err != nil || over.Entries <= 0 && over.Bytes <= 0 {
		return nil, err
	}
	looked := maxMadeRoom
	if over.Bytes <= 0 {
		looked = int(min(over.Entries, maxMadeRoom))
	}
	removed, err = collect(ctx, t, scanMemory, `SELECT `+memoryColumns+` FROM memories t WHERE t.namespace = $1 AND t.place = $2 AND t.id <> $3
		ORDER BY t.confidence, t.update_time, t.id LIMIT $4`+t.d.LockedFree(), namespace, place, kept, looked)
	if err != nil || len(removed) == 0 {
		return nil, err
	}
	var ids []string
	for _, e := range removed {
		if over.Entries <= 0 && over.Bytes <= 0 {
			break
		}
		ids = append(ids, e.ID)
		over.Entries--
		over.Bytes -= int64(e.Size())
	}
	return removed[:len(ids)], t.deleteMemories(ctx, namespace, ids)
}

// maxMadeRoom is how many entries give way at once: more only if a bound was lowered, or a large entry comes.
const maxMadeRoom = 100

// deleteMemories removes entries and notes that they are gone.
func (t tx) deleteMemories(ctx context.Context, namespace string, ids []string) error {
	_, err := t.removeMemories(ctx, true, namespace, t.d.In(`id`, `$2`), ids)
	return err
}

// removeMemories removes the entries for which a condition holds, of which $1 is the namespace, and returns
// how many there were.
func (t tx) removeMemories(ctx context.Context, told bool, namespace, cond string, args ...any) (n int, err error) {
	err = t.each(ctx, func(row dbkit.Scanner) error {
		var id, place string
		var size int64
		err := row.Scan(&id, &place, &size)
		n++
		t.changes.memory.Entries--
		t.changes.memory.Bytes -= size
		if told {
			t.changes.forget(id, memory.ScopeAt(place))
		}
		return err
	}, `DELETE FROM memories WHERE namespace = $1 AND `+cond+` RETURNING id, place, bytes`, append([]any{namespace}, args...)...)
	return n, err
}

// DeleteMemory implements store.Tx.
func (t tx) DeleteMemory(ctx context.Context, namespace, id string, revision int64) error {
	n, err := t.removeMemories(ctx, true, namespace, `id = $2 AND ($3 = 0 OR revision = $3)`, id, revision)
	if err == nil && n == 0 {
		err = store.Changed("memory", id)
	}
	return err
}

// ForgetMemories implements store.Tx.
func (t tx) ForgetMemories(ctx context.Context, namespace string, f store.Forget, limit int) (entries, reads int, err error) {
	conds, args := []string{`true`}, []any{namespace, limit}
	readCond := `method <> '` + memory.MethodForget + `'`
	switch {
	case f.UserID != "":
		args = append(args, f.UserID, memory.Scope{Level: memory.OfUser, Subject: f.UserID}.Place())
		conds = []string{`user_id = $3 AND user_id <> '' AND $4 <> ''`, `place = $4 AND $3 <> ''`}
		readCond = `user_id = $3 AND user_id <> ''`
	case f.Place != "":
		args = append(args, f.Place)
		conds, readCond = []string{`place = $3`}, ``
	}
	for _, cond := range conds {
		args[1] = limit - entries
		if entries == limit {
			break
		}
		ids, err := collect(ctx, t, func(row dbkit.Scanner) (id string, err error) {
			err = row.Scan(&id)
			return id, err
		}, `SELECT id FROM memories WHERE namespace = $1 AND `+cond+` ORDER BY id LIMIT $2`+t.d.Locked(), args...)
		if err != nil {
			return entries, reads, err
		}
		if len(ids) > 0 {
			if err := t.deleteMemories(ctx, namespace, ids); err != nil {
				return entries, reads, err
			}
		}
		entries += len(ids)
	}
	if readCond == "" {
		return entries, 0, nil
	}
	args = args[:min(len(args), 3)]
	args[1] = limit
	n, err := t.Exec(ctx, `DELETE FROM memory_reads WHERE namespace = $1 AND `+
		t.d.InSelect(`id`, `SELECT id FROM memory_reads WHERE namespace = $1 AND `+readCond+` ORDER BY id LIMIT $2`), args...)
	return entries, int(n), err
}

// InsertMemoryRead implements store.Tx.
func (t tx) InsertMemoryRead(ctx context.Context, r memory.Read) error {
	_, err := t.Exec(ctx, `INSERT INTO memory_reads (namespace, id, time, run_id, node_id, user_id, principal, query, scopes, entries, method, told)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, r.Namespace, r.ID, r.Time, r.RunID, r.NodeID, r.UserID, r.Principal, r.Query, r.Scopes, r.Entries, r.Method, r.Told)
	return err
}

// MemoryReads implements store.Reader.
func (t tx) MemoryReads(ctx context.Context, q store.MemoryReadQuery) ([]memory.Read, error) {
	w := where{parts: []string{"t.namespace = $1"}, args: []any{q.Namespace}}
	if !q.After.IsZero() {
		w.add("(t.time, t.id) < (%s, %s)", dbkit.Exact(q.After.CreateTime), q.After.ID)
	}
	return collectPage(ctx, t, func(row dbkit.Scanner) (r memory.Read, err error) {
		err = row.Scan(&r.Namespace, &r.ID, dbkit.At(&r.Time), &r.RunID, &r.NodeID, &r.UserID, &r.Principal, &r.Query, &r.Scopes, &r.Entries, &r.Method, &r.Told)
		r.Scopes, r.Entries = trim(r.Scopes), trim(r.Entries)
		return r, err
	}, `SELECT t.namespace, t.id, t.time, t.run_id, t.node_id, t.user_id, t.principal, t.query, t.scopes, t.entries, t.method, t.told FROM memory_reads t`+w.end("t.time DESC, t.id DESC", q.Limit), w.args...)
}

// sweptTurns is how many turns a namespace has in one sweep of the memory, sweptNamespaces how many
// namespaces have turns at a time.
const sweptTurns, sweptNamespaces = 20, 200

// SweepMemory implements store.Store.
func (s *Store) SweepMemory(ctx context.Context, b store.MemoryBounds, now time.Time, limit int) (entries, reads int64, err error) {
	expired := s.d.Set(`m.expire_time`) + ` AND m.expire_time <= `
	entries, err = s.sweepInTurns(ctx, limit, `SELECT t.namespace FROM memory_totals t WHERE t.namespace > $1 AND EXISTS
			(SELECT 1 FROM memories m WHERE m.namespace = t.namespace AND `+expired+`$2) ORDER BY t.namespace LIMIT $3`, []any{now},
		func(ctx context.Context, t tx, namespace string) (int, error) {
			return t.removeMemories(ctx, false, namespace, t.d.InSelect(`id`, `SELECT m.id FROM memories m WHERE m.namespace = $1 AND `+expired+`$2 ORDER BY m.expire_time LIMIT $3`+t.d.LockedFree()), now, limit)
		})
	if err != nil {
		return entries, 0, err
	}
	before := now.Add(-b.ReadAge)
	// A namespace is skipped to from the one before it, however many records each has.
	reads, err = s.sweepInTurns(ctx, limit, `WITH RECURSIVE ns (n) AS (SELECT min(namespace) FROM memory_reads WHERE namespace > $1 UNION ALL
			SELECT (SELECT min(r.namespace) FROM memory_reads r WHERE r.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)
		SELECT n FROM ns WHERE n IS NOT NULL AND (EXISTS (SELECT 1 FROM memory_reads r WHERE r.namespace = ns.n AND r.time < $2)
			OR EXISTS (SELECT 1 FROM memory_reads r WHERE r.namespace = ns.n ORDER BY r.id LIMIT 1 OFFSET $3)) ORDER BY n LIMIT $4`, []any{before, b.Reads},
		func(ctx context.Context, t tx, namespace string) (int, error) {
			n, err := t.Exec(ctx, `DELETE FROM memory_reads WHERE namespace = $1 AND `+t.d.InSelect(`id`, `SELECT r.id FROM memory_reads r WHERE r.namespace = $1
				AND (r.time < $2 OR r.id <= (SELECT x.id FROM memory_reads x WHERE x.namespace = $1 ORDER BY x.id DESC LIMIT 1 OFFSET $3)) ORDER BY r.id LIMIT $4`), namespace, before, b.Reads, limit)
			return int(n), err
		})
	return entries, reads, err
}

// sweepInTurns removes rows of namespaces: limit at most in one transaction, from each namespace in turn
// until nothing is left of it. due selects namespaces behind $1, at most as many as its last parameter.
func (s *Store) sweepInTurns(ctx context.Context, limit int, due string, args []any, remove func(ctx context.Context, t tx, namespace string) (int, error)) (removed int64, err error) {
	var failed error
	for after := ""; ; {
		var left []string
		if err := s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) (err error) {
			left, err = collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (n string, err error) {
				err = row.Scan(&n)
				return n, err
			}, due, append(append([]any{after}, args...), sweptNamespaces)...)
			return err
		}); err != nil || len(left) == 0 || ctx.Err() != nil {
			return removed, errors.Join(failed, err)
		}
		last := len(left) < sweptNamespaces
		after = left[len(left)-1]
		for range sweptTurns {
			var more []string
			for _, namespace := range left {
				n := 0
				if err := s.Update(ctx, namespace, func(ctx context.Context, st store.Tx) (err error) {
					n, err = remove(ctx, st.(tx), namespace)
					return err
				}); err != nil {
					failed = errors.Join(failed, err) // the other namespaces have their turn
					continue
				}
				if removed += int64(n); n == limit {
					more = append(more, namespace)
				}
			}
			if left = more; len(left) == 0 {
				break
			}
		}
		if last {
			return removed, failed
		}
	}
}

// remember notes an entry that was written.
func (c *changes) remember(e memory.Entry) {
	c.memories = slices.DeleteFunc(c.memories, func(m feed.Memory) bool { return m.ID == e.ID })
	c.memories = append(c.memories, feed.Memory{ID: e.ID, Key: e.Key, Kind: e.Kind, Scope: e.Scope, Revision: e.Revision})
}

// forgotten is an entry that was removed.
type forgotten struct {
	id    string
	scope memory.Scope
}

// forget notes an entry that was removed.
func (c *changes) forget(id string, scope memory.Scope) {
	c.forgotten = append(c.forgotten, forgotten{id, scope})
}

// concerns sets the epic or the workflow whose memory an event tells of.
func concerns(e feed.Event, s memory.Scope) feed.Event {
	switch s.Level {
	case memory.OfEpic:
		e.EpicID = s.Subject
	case memory.OfWorkflow:
		e.Slug = s.Subject
	}
	return e
}

// remembered are the events of the memory: of each entry that was written, and of those that were
// removed together from an epic, a workflow, or other scopes. What came and went in the transaction has
// none.
func (c *changes) remembered() (out []feed.Event) {
	gone := map[string]bool{}
	type concern struct{ epicID, slug string }
	var order []concern
	of := map[concern][]string{}
	for _, f := range c.forgotten {
		gone[f.id] = true
		e := concerns(feed.Event{}, f.scope)
		k := concern{e.EpicID, e.Slug}
		if of[k] == nil {
			order = append(order, k)
		}
		of[k] = append(of[k], f.id)
	}
	for i := range c.memories {
		if m := &c.memories[i]; !gone[m.ID] {
			out = append(out, concerns(feed.Event{Kind: feed.MemoryWritten, Body: feed.Body{Memory: m}}, m.Scope))
		}
	}
	for _, k := range order {
		for ids := range slices.Chunk(of[k], toldAtOnce) {
			out = append(out, feed.Event{Kind: feed.MemoryDeleted, EpicID: k.epicID, Slug: k.slug, Body: feed.Body{IDs: ids}})
		}
	}
	return out
}
