package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func found(r journal.Run, runID string, err error) (journal.Run, error) {
	if none(err) {
		return r, journal.RunNotFound(runID)
	}
	return r, err
}

// Get implements journal.Reader.
func (s *Store) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := readRun(dbkit.FirstRow(s.db.Read.Query(ctx, s.selectRun+ThisRun, namespace, runID)), true)
	return found(r, runID, err)
}

// Head implements journal.Reader.
func (s *Store) Head(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := readRun(dbkit.FirstRow(s.db.Read.Query(ctx, s.head+ThisRun, namespace, runID)), false)
	return found(r, runID, err)
}

// graphOf selects the graph that a run r is pinned to.
func (s *Store) graphOf(cond string) string {
	return `SELECT g.hash, g.body FROM runs r` + s.d.LookUp(`graphs`, `g`, `g.namespace = r.namespace AND g.hash = r.graph_hash`) + ` WHERE` + cond
}

// Graph implements journal.Reader.
func (s *Store) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, s.graphOf(ThisRun), namespace, runID)).Scan(&hash, &body)
	if none(err) {
		return "", nil, journal.RunNotFound(runID)
	}
	return hash, body, err
}

// GraphBody implements journal.Reader.
func (s *Store) GraphBody(ctx context.Context, namespace, hash string) (body []byte, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT body FROM graphs WHERE namespace = $1 AND hash = $2`, namespace, hash)).Scan(&body)
	if none(err) {
		return nil, journal.GraphNotFound(hash)
	}
	return body, err
}

// Requested implements journal.Reader.
func (s *Store) Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT run_id, body_hash FROM request_ids WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		namespace, method, requestID)).Scan(&runID, &bodyHash)
	if none(err) {
		return "", "", nil
	}
	return runID, bodyHash, err
}

// SweepRequestIDs implements journal.Log.
func (s *Store) SweepRequestIDs(ctx context.Context, before time.Time) (int, error) {
	n, err := s.db.Engine.Exec(ctx, `DELETE FROM request_ids WHERE create_time < $1`, before)
	return int(n), err
}

// Events implements journal.Reader.
func (s *Store) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]journal.Event, error) {
	rows, err := s.db.Read.Query(ctx, SelectEvents+` WHERE namespace = $1 AND run_id = $2 AND seq > $3 ORDER BY seq LIMIT $4`, namespace, runID, afterSeq, limit)
	return dbkit.CollectPart(rows, err, scanEvent)
}

// childrenOf selects the runs right below $2.
const childrenOf = ` FROM runs WHERE namespace = $1 AND parent_run_id = $2 AND parent_run_id <> ''`

// Descendants implements journal.Reader.
func (s *Store) Descendants(ctx context.Context, namespace, runID string) ([]journal.Descendant, error) {
	const columns = `run_id, parent_run_id, graph_name, state, last_seq, create_time`
	rows, err := s.db.Read.Query(ctx, `WITH RECURSIVE `+s.below(`SELECT `+columns+childrenOf, strings.Split(columns, ", ")...)+`
		SELECT r.run_id, r.parent_run_id, r.graph_name, r.state, `+LastSeq(s.d)+` FROM below r ORDER BY r.create_time, r.run_id`, namespace, runID)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (d journal.Descendant, err error) {
		err = rows.Scan(&d.RunID, &d.ParentRunID, &d.GraphName, &d.State, &d.LastSeq)
		return d, err
	})
}

// OpenBelow implements journal.Reader.
func (s *Store) OpenBelow(ctx context.Context, namespace, runID, graphName string, limit int) ([]string, error) {
	rows, err := s.db.Read.Query(ctx, `WITH RECURSIVE below (run_id, graph_name, create_time, level) AS (SELECT run_id, graph_name, create_time, 1`+childrenOf+` AND state < 6
			UNION ALL SELECT r.run_id, r.graph_name, r.create_time, b.level + 1 FROM below b`+s.children+` WHERE r.state < 6)
		SELECT run_id FROM below WHERE graph_name = $3 ORDER BY level, create_time, run_id LIMIT $4`, namespace, runID, graphName, limit)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (id string, err error) {
		err = rows.Scan(&id)
		return id, err
	})
}

// CountBelow implements journal.Reader.
func (s *Store) CountBelow(ctx context.Context, namespace, runID string, most int) (all, open int, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `WITH RECURSIVE `+s.below(`SELECT run_id, state`+childrenOf, `run_id`, `state`)+`
		SELECT count(*), count(*) FILTER (WHERE state < 6) FROM (SELECT state FROM below LIMIT $3) x`, namespace, runID, most)).Scan(&all, &open)
	return all, open, err
}

// Load implements journal.Log. No statement waits for what another one finds, so that all go out at once.
func (s *Store) Load(ctx context.Context, runID string) (l journal.Loaded, err error) {
	read := func(query string, fn func(dbkit.Rows) error) dbkit.Stmt {
		args := []any{runID}
		if strings.Contains(query, "$2") {
			args = append(args, journal.MaxLoadedCommandBytes)
		}
		return dbkit.Stmt{Query: query, Args: args, Rows: fn}
	}
	err = s.db.Engine.View(ctx,
		read(s.selectRun+` r.run_id = $1`, func(rows dbkit.Rows) error {
			r, err := readRun(dbkit.FirstRow(rows, nil), true)
			l.Run, err = found(r, runID, err)
			return err
		}),
		read(s.graphOf(` r.run_id = $1`), func(rows dbkit.Rows) error {
			if err := dbkit.FirstRow(rows, nil).Scan(new(string), &l.Graph); err != nil {
				return fmt.Errorf("load graph: %w", err)
			}
			return nil
		}),
		read(`SELECT seq, data FROM snapshots WHERE run_id = $1`, func(rows dbkit.Rows) error {
			l.SnapshotSeq, l.Snapshot = 0, nil
			if err := dbkit.FirstRow(rows, nil).Scan(&l.SnapshotSeq, &l.Snapshot); err != nil && !none(err) {
				return fmt.Errorf("load snapshot: %w", err)
			}
			return nil
		}),
		read(SelectEvents+` WHERE run_id = $1 AND seq > coalesce((SELECT s.seq FROM snapshots s WHERE s.run_id = $1), 0) ORDER BY seq`,
			func(rows dbkit.Rows) (err error) {
				l.Events, err = dbkit.Collect(rows, nil, scanEvent)
				return err
			}),
		read(selectCommands+` FROM commands m WHERE m.run_id = $1`+oldestCommand+` LIMIT $2`, func(rows dbkit.Rows) (err error) {
			l.Command, err = dbkit.Collect(rows, nil, scanCommand)
			return err
		}))
	return l, err
}

// LoadFor implements journal.Reader.
func (s *Store) LoadFor(ctx context.Context, namespace, runID string) (journal.Loaded, error) {
	l, err := s.Load(ctx, runID)
	if err == nil && l.Run.Namespace != namespace {
		return journal.Loaded{}, journal.RunNotFound(runID)
	}
	return l, err
}
