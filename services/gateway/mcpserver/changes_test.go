package mcpserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestChanges tells clients over a process that lists have changed.
func TestChanges(t *testing.T) {
	t.Parallel()
	published := func(change registryv1.Publication) *registryv1.FeedEvent {
		return &registryv1.FeedEvent{Event: &registryv1.FeedEvent_WorkflowPublished{WorkflowPublished: &registryv1.WorkflowPublished{Slug: "letter", Change: change}}}
	}
	expose := func(f *fake, version int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.exposed = []*registryv1.Workflow{{Id: "wf_1", Slug: "letter", Name: "Letter", Exposed: "latest", LatestVersion: version}}
	}
	for name, version := range versions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.feed = make(chan *registryv1.FeedEvent)
				heard := make(chan string, 10)
				s, hangUp := session(t, f, &mcp.ClientOptions{
					ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { heard <- "tools" },
					ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { heard <- "resources" },
				}, version)
				f.feed <- published(registryv1.Publication_PUBLICATION_UPDATED)
				f.feed <- &registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunStarted{RunStarted: &registryv1.RunChanged{RunId: "run_1"}}}
				require.Equal(t, "resources", <-heard, "the tools are the same")
				expose(f, 1)
				f.feed <- published(registryv1.Publication_PUBLICATION_UPDATED)
				require.Equal(t, "tools", <-heard)
				list, err := s.ListTools(t.Context(), nil)
				require.NoError(t, err)
				require.Equal(t, "workflow_letter", list.Tools[len(list.Tools)-1].Name)
				hangUp()
			})
		})
	}
}

// TestWaitWithoutAWatch ends a wait when the feed tells of the end of the run, before the next look at it.
func TestWaitWithoutAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.ofRun = make(chan *registryv1.FeedEvent)
		s, hangUp := session(t, f, nil, "")
		began := time.Now()
		go func() {
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a bubble; the next look is after 7 seconds
			f.mu.Lock()
			f.ends(`"done"`)
			f.mu.Unlock()
			f.ofRun <- &registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunEnded{RunEnded: &registryv1.RunChanged{RunId: "run_1"}}}
		}()
		_, got := call(t, s, "watch_run", map[string]any{"run_id": "run_1", "wait_seconds": 60})
		require.Equal(t, "done", got["result"])
		require.Equal(t, 5*time.Second, time.Since(began))
		hangUp()
	})
}
