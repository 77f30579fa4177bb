package mcpserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/sleep"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// methodListen is the request by which a client of the newest version of the protocol hears of changes.
	methodListen = "subscriptions/listen"
	// firstPause is how long changes are gathered before a client is told of them, and changePause the
	// shortest time between two notifications.
	firstPause, changePause = 100 * time.Millisecond, 5 * time.Second
	// feedPause is the first pause before a watch of the feed that broke is opened again, and maxFeedPause
	// the longest.
	feedPause, maxFeedPause = time.Second, time.Minute

	kindWorkflow = "workflow_published"
)

// changing are the capabilities of a server that tells of changes of its lists.
func changing() *mcp.ServerCapabilities {
	return &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}, Resources: &mcp.ResourceCapabilities{ListChanged: true}}
}

// constant are the same capabilities for a client that cannot be told of changes.
func constant(c *mcp.ServerCapabilities) *mcp.ServerCapabilities {
	out := *c
	out.Tools, out.Resources = &mcp.ToolCapabilities{}, &mcp.ResourceCapabilities{}
	return &out
}

// listenerKey is the key of the server of a request that listens.
type listenerKey struct{}

// serverOf is the server of the library that answers a request over HTTP.
func (s *Server) serverOf(r *http.Request) *mcp.Server {
	if own, ok := r.Context().Value(listenerKey{}).(*mcp.Server); ok {
		return own
	}
	return s.server
}

// listen watches the feed for a request that listens, until the returned function is called. The library
// tells all sessions of a server of a change, so that such a request has a server of its own: what changes in
// one namespace is not told in another one. The context ends when the server drains.
func (s *Server) listen(ctx context.Context) (context.Context, func()) {
	own := mcp.NewServer(&mcp.Implementation{Name: "epigraph", Title: "Epigraph", Version: toolsVersion}, &mcp.ServerOptions{
		Logger: slog.New(slog.DiscardHandler), Capabilities: changing(),
	})
	draining := s.Stopping(ctx)
	ctx, stop := context.WithCancel(context.WithValue(ctx, listenerKey{}, own))
	var watch sync.WaitGroup
	watch.Go(func() { s.watchChanges(ctx, func(tools, resources bool) { s.tell(own, tools, resources) }) })
	watch.Go(func() {
		select {
		case <-draining:
			stop()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		watch.Wait()
	}
}

// tell tells the sessions of a server that lists have changed. The library does so when something is added.
func (s *Server) tell(to *mcp.Server, tools, resources bool) {
	if tools {
		s.addWorkflowTool(to)
	}
	if resources {
		s.addRunTemplate(to)
	}
}

// watchChanges calls told when the tools or the resources of the namespace are others, until ctx ends. A
// client that may not watch the feed is told nothing.
func (s *Server) watchChanges(ctx context.Context, told func(tools, resources bool)) {
	list := s.toolsOf(ctx)
	for pause := feedPause; ctx.Err() == nil; pause = min(2*pause, maxFeedPause) {
		began := time.Now()
		err := s.followChanges(ctx, &list, told)
		if errs.Is(err, errs.PermissionDenied) || errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.InvalidArgument) {
			s.Log.DebugContext(ctx, "changes are not told", "err", err)
			return
		}
		if time.Since(began) > maxFeedPause {
			pause = feedPause
		}
		sleep.For(ctx, pause)
	}
}

// toolsOf stands for the tools of workflows: it is another one when a client would get another list. It is
// empty where they cannot be listed.
func (s *Server) toolsOf(ctx context.Context) string {
	list, err := s.exposed(ctx)
	if err != nil {
		return ""
	}
	sum := sha256.New()
	for _, w := range list {
		fmt.Fprintf(sum, "%q %q %d %q %q\n", w.GetSlug(), w.GetExposed(), version(w), w.GetName(), w.GetDescription())
	}
	return string(sum.Sum(nil))
}

// followChanges follows the feed until it breaks. What has changed before it began is told, too.
func (s *Server) followChanges(ctx context.Context, list *string, told func(tools, resources bool)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := s.Registry.WatchEvents(ctx, &registryv1.WatchEventsRequest{Kinds: []string{kindWorkflow, "run_started", "epic_created", "epic_deleted"}})
	if err != nil {
		return err
	}
	events, failed := grpckit.Events(ctx, stream)
	tools, resources := true, false
	due := time.NewTimer(firstPause)
	defer due.Stop()
	var last time.Time
	for {
		select {
		case ev, more := <-events:
			if !more {
				if err := <-failed; err != io.EOF { //nolint:errorlint // gRPC returns it as it is
					return err
				}
				return nil
			}
			if !tools && !resources {
				due.Reset(max(firstPause, time.Until(last.Add(changePause))))
			}
			// Where nothing happens the tools are looked at, since the watch may have begun late.
			published := ev.GetWorkflowPublished() != nil
			tools = tools || published || ev.GetKeepAlive() != nil
			resources = resources || ev.GetKeepAlive() == nil && (!published || ev.GetWorkflowPublished().GetChange() != registryv1.Publication_PUBLICATION_UPDATED)
		case <-due.C:
			if tools {
				now := s.toolsOf(ctx)
				tools = now != "" && now != *list
				if tools {
					*list = now
				}
			}
			if tools || resources {
				last = time.Now()
				told(tools, resources)
			}
			tools, resources = false, false
		}
	}
}
