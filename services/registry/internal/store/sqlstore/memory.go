package sqlstore

import (
	"context"
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
	t.expire_time, t.create_time, t.update_time, t.revision, t.principal`

func scanMemory(row dbkit.Scanner) (e memory.Entry, err error) {
	var place, value string
	var thousandths int64
	if err := row.Scan(&e.Namespace, &e.ID, &place, &e.Key, &e.Kind, &e.Text, &value, &e.Tags, &e.Origin, &e.Source, &e.UserID, &thousandths,
		dbkit.At(&e.ExpireTime), dbkit.At(&e.CreateTime), dbkit.At(&e.UpdateTime), &e.Revision, &e.Principal); err != nil {
		return e, err
	}
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

// FindMemories implements store.Reader. Ids of entries ascend with the time of their first write, in
// one process strictly and among several by their clocks.
func (t tx) FindMemories(ctx context.Context, q memory.Query, wanted []string, now time.Time) ([]memory.Hit, error) {
	if q.Agent != "" {
		return t.findLearned(ctx, q, wanted, now)
	}
	found := map[string]words.Weights{}
	for _, s := range q.Scopes {
		if err := t.findIn(ctx, &q, s.Place(), wanted, found); err != nil {
			return nil, err
		}
	}
	ids := slices.Sorted(maps.Keys(found))
	if len(ids) == 0 {
		return nil, nil
	}
	w := where{args: []any{ids, q.Namespace}}
	w.parts = []string{t.alive(w.arg(now))}
	w.add("t.confidence >= %s", int64(math.Ceil(q.MinConfidence*1000)))
	if len(q.Kinds) > 0 {
		w.parts = append(w.parts, t.d.In("t.kind", w.arg(states(q.Kinds))))
	}
	if len(q.AnyTag) > 0 {
		w.parts = append(w.parts, t.d.Overlap("t.tags", w.arg(q.AnyTag)))
	}
	return collect(ctx, t, func(row dbkit.Scanner) (memory.Hit, error) {
		// Texts are read of those that rank first only.
		h := memory.Hit{}
		var thousandths int64
		err := row.Scan(&h.Entry.ID, &thousandths, dbkit.At(&h.Entry.UpdateTime))
		h.Weights, h.Entry.Confidence = found[h.Entry.ID], float64(thousandths)/1000
		return h, err
	}, `SELECT t.id, t.confidence, t.update_time FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+t.d.LookUp(`memories`, `t`, `t.namespace = $2 AND t.id = w.want`)+
		` WHERE `+strings.Join(w.parts, " AND "), w.args...)
}

// findIn finds entries of one scope by words, or the last ones.
func (t tx) findIn(ctx context.Context, q *memory.Query, place string, wanted []string, found map[string]words.Weights) error {
	look := memory.MaxFound / len(q.Scopes)
	if len(wanted) == 0 {
		return t.each(ctx, func(row dbkit.Scanner) error {
			var id string
			err := row.Scan(&id)
			found[id] = words.Weights{}
			return err
		}, `SELECT id FROM memories WHERE namespace = $1 AND place = $2 ORDER BY create_time DESC, id DESC LIMIT $3`, q.Namespace, place, look)
	}
	look /= len(wanted)
	here := map[string]bool{}
	see := func(word string, n *int) func(dbkit.Scanner) error {
		return func(row dbkit.Scanner) error {
			var id string
			var weight int64
			err := row.Scan(&id, &weight)
			if found[id] == nil {
				found[id] = words.Weights{}
			}
			found[id][word], here[id] = weight, true
			*n++
			return err
		}
	}
	// cut are the words that more entries have.
	var cut []string
	for _, word := range wanted {
		n := 0
		if err := t.each(ctx, see(word, &n), `SELECT memory_id, weight FROM memory_words WHERE namespace = $1 AND place = $2 AND word = $3 ORDER BY memory_id DESC LIMIT $4`,
			q.Namespace, place, word, look); err != nil {
			return err
		}
		if n == look {
			cut = append(cut, word)
		}
	}
	for _, word := range cut {
		var ids []string
		for id := range here {
			if found[id][word] == 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		slices.Sort(ids)
		n := 0
		if err := t.each(ctx, see(word, &n), `SELECT p.memory_id, p.weight FROM `+t.d.Lists(`w`, [2]string{"id", "text"})+
			t.d.LookUp(`memory_words`, `p`, `p.namespace = $2 AND p.place = $3 AND p.word = $4 AND p.memory_id = w.id`), ids, q.Namespace, place, word); err != nil {
			return err
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
			expire_time, create_time, update_time, revision, principal)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT (namespace, place, key) DO NOTHING`, memoryArgs(&e)...)
	if err != nil || n == 0 {
		return false, err
	}
	t.changes.remember(e)
	return true, t.putMemoryWords(ctx, &e)
}

// PutMemory implements store.Tx.
func (t tx) PutMemory(ctx context.Context, e memory.Entry) error {
	if err := t.change(ctx, store.Changed("memory", e.ID), `UPDATE memories SET place = $3, key = $4, kind = $5, text = $6, value = $7, tags = $8, origin = $9, source = $10,
			user_id = $11, confidence = $12, expire_time = $13, create_time = $14, update_time = $15, revision = $16, principal = $17
		WHERE namespace = $1 AND id = $2`, memoryArgs(&e)...); err != nil {
		return err
	}
	t.changes.remember(e)
	if _, err := t.Exec(ctx, `DELETE FROM memory_words WHERE namespace = $1 AND memory_id = $2`, e.Namespace, e.ID); err != nil {
		return err
	}
	return t.putMemoryWords(ctx, &e)
}

func (t tx) putMemoryWords(ctx context.Context, e *memory.Entry) error {
	words := e.Words()
	columns := [][2]string{{"namespace", "text"}, {"place", "text"}, {"word", "text"}, {"memory_id", "text"}, {"weight", "bigint"}}
	rows := make([][]any, 0, len(words))
	for _, w := range slices.Sorted(maps.Keys(words)) {
		rows = append(rows, []any{e.Namespace, e.Scope.Place(), w, e.ID, words[w]})
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := t.Exec(ctx, `INSERT INTO memory_words (namespace, place, word, memory_id, weight)
		SELECT n.namespace, n.place, n.word, n.memory_id, n.weight FROM `+t.d.Rows(`n`, 1, columns...), t.d.RowArgs(len(columns), rows)...)
	return err
}

// MakeRoom implements store.Tx.
func (t tx) MakeRoom(ctx context.Context, namespace, place, kept string, most int) (removed []memory.Entry, err error) {
	have, err := t.count(ctx, `SELECT 1 FROM memories WHERE namespace = $1 AND place = $2 LIMIT $3`, namespace, place, most+maxMadeRoom)
	if err != nil || have <= most {
		return nil, err
	}
	removed, err = collect(ctx, t, scanMemory, `SELECT `+memoryColumns+` FROM memories t WHERE t.namespace = $1 AND t.place = $2 AND t.id <> $3
		ORDER BY t.confidence, t.update_time, t.id LIMIT $4`+t.d.LockedFree(), namespace, place, kept, have-most)
	if err != nil || len(removed) == 0 {
		return nil, err
	}
	ids := make([]string, len(removed))
	for i, e := range removed {
		ids[i] = e.ID
	}
	return removed, t.deleteMemories(ctx, namespace, ids)
}

// maxMadeRoom is how many entries give way at once: more only if a bound was lowered.
const maxMadeRoom = 100

func (t tx) deleteMemories(ctx context.Context, namespace string, ids []string) error {
	t.changes.forgotten = append(t.changes.forgotten, ids...)
	_, err := t.Exec(ctx, `DELETE FROM memories WHERE namespace = $1 AND `+t.d.In(`id`, `$2`), namespace, ids)
	return err
}

// DeleteMemory implements store.Tx.
func (t tx) DeleteMemory(ctx context.Context, namespace, id string, revision int64) error {
	t.changes.forgotten = append(t.changes.forgotten, id)
	return t.change(ctx, store.Changed("memory", id), `DELETE FROM memories WHERE namespace = $1 AND id = $2 AND ($3 = 0 OR revision = $3)`, namespace, id, revision)
}

// ForgetMemories implements store.Tx.
func (t tx) ForgetMemories(ctx context.Context, namespace string, f store.Forget, limit int) (entries, reads int, err error) {
	conds, args := []string{`true`}, []any{namespace, limit}
	readCond := `true`
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
	n, err := t.Exec(ctx, `DELETE FROM memory_reads WHERE namespace = $1 AND id IN (SELECT id FROM memory_reads WHERE namespace = $1 AND `+readCond+` ORDER BY id LIMIT $2)`, args...)
	return entries, int(n), err
}

// InsertMemoryRead implements store.Tx.
func (t tx) InsertMemoryRead(ctx context.Context, r memory.Read) error {
	_, err := t.Exec(ctx, `INSERT INTO memory_reads (namespace, id, time, run_id, node_id, user_id, principal, query, scopes, entries)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, r.Namespace, r.ID, r.Time, r.RunID, r.NodeID, r.UserID, r.Principal, r.Query, r.Scopes, r.Entries)
	return err
}

// MemoryReads implements store.Reader.
func (t tx) MemoryReads(ctx context.Context, q store.MemoryReadQuery) ([]memory.Read, error) {
	w := where{parts: []string{"t.namespace = $1"}, args: []any{q.Namespace}}
	if !q.After.IsZero() {
		w.add("(t.time, t.id) < (%s, %s)", dbkit.Exact(q.After.CreateTime), q.After.ID)
	}
	return collectPage(ctx, t, func(row dbkit.Scanner) (r memory.Read, err error) {
		err = row.Scan(&r.Namespace, &r.ID, dbkit.At(&r.Time), &r.RunID, &r.NodeID, &r.UserID, &r.Principal, &r.Query, &r.Scopes, &r.Entries)
		r.Scopes, r.Entries = trim(r.Scopes), trim(r.Entries)
		return r, err
	}, `SELECT t.namespace, t.id, t.time, t.run_id, t.node_id, t.user_id, t.principal, t.query, t.scopes, t.entries FROM memory_reads t`+w.end("t.time DESC, t.id DESC", q.Limit), w.args...)
}

// SweepMemory implements store.Store.
func (s *Store) SweepMemory(ctx context.Context, b store.MemoryBounds, now time.Time, limit int) (entries, reads int64, err error) {
	entries, err = s.db.Pool.Exec(ctx, `DELETE FROM memories WHERE (namespace, id) IN
		(SELECT namespace, id FROM memories WHERE `+s.d.Set(`expire_time`)+` AND expire_time <= $1 LIMIT $2)`, now, limit)
	if err != nil {
		return 0, 0, err
	}
	reads, err = s.db.Pool.Exec(ctx, `DELETE FROM memory_reads WHERE (namespace, id) IN
		(SELECT namespace, id FROM memory_reads WHERE time < $1 ORDER BY time LIMIT $2)`, now.Add(-b.ReadAge), limit)
	if err != nil {
		return entries, 0, err
	}
	// A namespace is skipped to from the one before it, however many records each has.
	more, err := s.db.Pool.Exec(ctx, `WITH RECURSIVE ns (n) AS (SELECT min(namespace) FROM memory_reads UNION ALL
			SELECT (SELECT min(r.namespace) FROM memory_reads r WHERE r.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)
		DELETE FROM memory_reads WHERE (namespace, id) IN (SELECT r.namespace, r.id FROM ns CROSS JOIN memory_reads r WHERE ns.n IS NOT NULL AND r.namespace = ns.n
			AND r.id <= (SELECT x.id FROM memory_reads x WHERE x.namespace = ns.n ORDER BY x.id DESC LIMIT 1 OFFSET $1) LIMIT $2)`, b.Reads, limit)
	return entries, reads + more, err
}

// remember notes an entry that was written.
func (c *changes) remember(e memory.Entry) {
	c.memories = slices.DeleteFunc(c.memories, func(m feed.Memory) bool { return m.ID == e.ID })
	c.memories = append(c.memories, feed.Memory{ID: e.ID, Key: e.Key, Kind: e.Kind, Scope: e.Scope, Revision: e.Revision})
}

// remembered are the events of the memory: of each entry that was written, and of those that were
// removed together. What came and went in the transaction has none.
func (c *changes) remembered() (out []feed.Event) {
	for i := range c.memories {
		m := &c.memories[i]
		if slices.Contains(c.forgotten, m.ID) {
			continue
		}
		e := feed.Event{Kind: feed.MemoryWritten, Body: feed.Body{Memory: m}}
		switch m.Scope.Level {
		case memory.OfEpic:
			e.EpicID = m.Scope.Subject
		case memory.OfWorkflow:
			e.Slug = m.Scope.Subject
		}
		out = append(out, e)
	}
	for ids := range slices.Chunk(c.forgotten, toldAtOnce) {
		out = append(out, feed.Event{Kind: feed.MemoryDeleted, Body: feed.Body{IDs: ids}})
	}
	return out
}
