package standing

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ArgOwnThread is the argument with which agents and teams take a part of the thread of the run, and not that
// thread itself.
const ArgOwnThread = "own_thread"

// PartKey is the key of the part of the run's thread that belongs to the node of a call: the same in each run
// of the graph on that thread. ok is false if there is none: the run has no thread, or the call may be made
// beside others of its kind.
func PartKey(c *workgraph.Call) (key string, ok bool) {
	if !parted(c) {
		return "", false
	}
	return thread.PartKey(c.Thread, c.GraphName, placeOf(c, c.Node)), true
}

// SharedKey is the key of the thread that calls share by a name: a part of the run's thread, or else that of
// the run alone.
func SharedKey(c *workgraph.Call, name string) (key string, part bool) {
	if !parted(c) {
		return thread.SharedKey(c.RunID, name), false
	}
	return thread.SharedKey(c.Thread, c.GraphName, placeOf(c, name)), true
}

func parted(c *workgraph.Call) bool { return c.Thread != "" && !c.Standing.Apart && c.Item == 0 }

// placeOf is a name below the nodes that lead to the run.
func placeOf(c *workgraph.Call, name string) string {
	return strings.TrimPrefix(c.Standing.Path+"/"+name, "/")
}

// HoldWhole has the root of a run hold the thread of which a loop works on a part, so that no other run works
// on it meanwhile. The error is one of Error.
func HoldWhole(ctx context.Context, threads thread.Reader, c *workgraph.Call, id string) (thread.Thread, error) {
	if err := threads.HoldThread(ctx, actor.NamespaceOf(ctx), id, Holders(c)[:1]); err != nil {
		return thread.Thread{}, Error(err)
	}
	t, err := threads.Thread(ctx, actor.NamespaceOf(ctx), id)
	if err != nil {
		return t, Error(err)
	}
	return t, nil
}
