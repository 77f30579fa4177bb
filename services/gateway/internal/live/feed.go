package live

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Feed serves GET /v1/events:watch: the feed of the caller's namespace, without an end. The id of an
// event is its cursor.
func Feed(o Options, registry registryv1.RegistryServiceClient, w http.ResponseWriter, r *http.Request) {
	req, err := parseFeed(r)
	if err != nil {
		o.Fail(w, r, err)
		return
	}
	s := &feedStream{connection: newConnection(o, w, r)}
	s.opening, s.again = "retry: "+strconv.FormatInt(s.Retry.Milliseconds(), 10)+"\n\n", "connect again"
	err = serve(&s.connection, s, func(ctx context.Context) (interface {
		Recv() (*registryv1.FeedEvent, error)
	}, error,
	) {
		return registry.WatchEvents(ctx, req)
	})
	if err != nil {
		o.Log.InfoContext(r.Context(), "event stream cut off", "err", err)
	}
}

// feedStream writes the events of a feed.
type feedStream struct{ connection }

var _ writer[*registryv1.FeedEvent] = (*feedStream)(nil)

func (s *feedStream) take(ev *registryv1.FeedEvent) (over bool, err error) {
	if alive := ev.GetKeepAlive(); alive != nil {
		// An id without data moves the cursor of an EventSource and is no event to it: events that the
		// filters leave out need not be looked at again.
		s.buf.WriteString(s.silence + "id: " + strconv.FormatInt(alive.GetCursor(), 10) + "\n\n")
		return false, nil
	}
	id := strconv.FormatInt(ev.GetSeq(), 10)
	data, err := s.Encode(ev)
	if err != nil {
		// Stopping here would stop every later attempt here too.
		e := errs.From(err).Set("fatal", "false").Set("event", feedName(ev)).Set("seq", id)
		if data, err = s.Encode(s.Describe(s.r, e)); err != nil {
			return false, err
		}
		s.event(id, "error", data)
		return false, nil
	}
	s.event(id, feedName(ev), data)
	return false, nil
}

// end is never reached in good order: a feed has no end. A client that connects again goes on.
func (s *feedStream) end() error { return s.stop(nil) }

func (s *feedStream) fail(cause error) error {
	if errs.ReasonOf(cause) == errs.ReasonStopping {
		return s.stop(nil)
	}
	data, err := s.Encode(s.Describe(s.r, errs.From(cause).Set("fatal", "true")))
	if err != nil {
		return err
	}
	s.event("", "error", data)
	return nil
}

func (s *feedStream) stop(error) error {
	s.buf.WriteString(": stopping, connect again\n\n")
	return nil
}

// feedName is the name of an event in the proto, for example "task_updated".
func feedName(ev *registryv1.FeedEvent) string {
	m := ev.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("event")); f != nil {
		return string(f.Name())
	}
	return "event"
}

// parseFeed reads the cursor and the filters.
func parseFeed(r *http.Request) (*registryv1.WatchEventsRequest, error) {
	req := &registryv1.WatchEventsRequest{}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "INVALID_QUERY", "the query cannot be read: %v", err)
	}
	var names []string
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := query.Get(name)
		switch name {
		case "after":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return nil, feedFault(name, "WRONG_TYPE", strconv.Quote(errs.Clip(value, 64))+" is no cursor")
			}
			req.After = &n
		case "epic_id", "epicId":
			req.EpicId = value
		case "workflow_slug", "workflowSlug":
			req.WorkflowSlug = value
		case "run_id", "runId":
			req.RunId = value
		case "thread_id", "threadId":
			req.ThreadId = value
		case "kinds":
			req.Kinds = query[name]
		default:
			return nil, feedFault(name, "UNKNOWN_FIELD", "there is no such parameter")
		}
	}
	// The header wins: an EventSource repeats its URL and moves its cursor in the header.
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < 0 {
			return nil, errs.New(errs.InvalidArgument, "LAST_EVENT_ID_INVALID", "Last-Event-ID %.64q is no id of an event", last).
				Hint("send the id of the last event received, or leave the header out to begin with what happens now")
		}
		req.After = &n
	}
	return req, nil
}

func feedFault(name, reason, text string) error {
	return errs.New(errs.InvalidArgument, reason, "%s", "query parameter "+name+": "+text).Violate(name, reason, text).
		Hint("there are after, epic_id, workflow_slug, run_id, thread_id and kinds")
}
