package epigraph

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// largePage is how much is asked for at once where all is wanted.
const largePage = 1000

// all are the elements of every page; fetch reads the one of a token. An error is the last pair.
func all[T any](fetch func(token string) (list []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for token := ""; ; {
			list, next, err := fetch(token)
			if err != nil {
				yield(none, err)
				return
			}
			for _, x := range list {
				if !yield(x, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

// copyOf is a request of the caller's, which stays as it is, or an empty one.
func copyOf[T proto.Message](req T) T {
	m, ok := proto.Clone(req).(T)
	if !ok || !m.ProtoReflect().IsValid() {
		m, _ = req.ProtoReflect().New().Interface().(T)
	}
	return m
}

// Runs returns the runs that match the filter, newest first, read page by page; nil matches all of the
// namespace. They come without arguments and results, which Run.Get returns. An error is the last pair.
func (c *Client) Runs(ctx context.Context, filter *executorv1.ListRunsRequest) iter.Seq2[*executorv1.Run, error] {
	return all(func(token string) ([]*executorv1.Run, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.Executor.ListRuns(ctx, req)
		return m.GetRuns(), m.GetNextPageToken(), err
	})
}

// Visits returns the visits of the run in the order of their ends; visits under way come last. A node's id
// selects the visits of that node. An error is the last pair.
func (r *Run) Visits(ctx context.Context, node string) iter.Seq2[*executorv1.Visit, error] {
	return all(func(token string) ([]*executorv1.Visit, string, error) {
		m, err := r.c.Executor.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: r.ID, NodeId: node, PageToken: token})
		return m.GetVisits(), m.GetNextPageToken(), err
	})
}

// Delete removes the run with its history. It must have ended; else the reason is RUN_NOT_ENDED.
func (r *Run) Delete(ctx context.Context) error {
	_, err := r.c.Executor.DeleteRun(ctx, &executorv1.DeleteRunRequest{RunId: r.ID})
	return err
}
