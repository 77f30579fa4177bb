package stash

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Journal is a journal whose readers see plain bytes.
type Journal struct {
	journal.Journal
	s *Stash
}

var _ journal.Journal = Journal{}

// Around returns j as its readers should see it. What is written to it must have been packed.
func (s *Stash) Around(j journal.Journal) Journal { return Journal{j, s} }

func (j Journal) all(ctx context.Context, namespace string, vs ...*[]byte) error {
	for _, v := range vs {
		if err := j.s.unpack(ctx, namespace, v); err != nil {
			return err
		}
	}
	return nil
}

func (j Journal) run(ctx context.Context, r *journal.Run) error {
	return j.all(ctx, r.Namespace, &r.Args, &r.Named, &r.Context, &r.Attachments, &r.Result, &r.Outputs)
}

func (j Journal) events(ctx context.Context, namespace string, es []journal.Event) error {
	for i := range es {
		if err := j.s.unpack(ctx, namespace, &es[i].Data); err != nil {
			return err
		}
	}
	return nil
}

// Get implements journal.Reader.
func (j Journal) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	r, err := j.Journal.Get(ctx, namespace, runID)
	if err == nil {
		err = j.run(ctx, &r)
	}
	return r, err
}

// Graph implements journal.Reader.
func (j Journal) Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error) {
	if hash, body, err = j.Journal.Graph(ctx, namespace, runID); err == nil {
		err = j.s.unpack(ctx, namespace, &body)
	}
	return hash, body, err
}

// Events implements journal.Reader.
func (j Journal) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]journal.Event, error) {
	es, err := j.Journal.Events(ctx, namespace, runID, afterSeq, limit)
	if err == nil {
		err = j.events(ctx, namespace, es)
	}
	return es, err
}

// Load implements journal.Log.
func (j Journal) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := j.Journal.Load(ctx, runID)
	if err != nil {
		return l, err
	}
	ns := l.Run.Namespace
	if err = j.run(ctx, &l.Run); err == nil {
		if err = j.all(ctx, ns, &l.Graph, &l.Snapshot); err == nil {
			err = j.events(ctx, ns, l.Events)
		}
	}
	return l, err
}
