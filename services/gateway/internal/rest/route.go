package rest

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

// route is one method on one path. Routes to a gRPC method know its request, so that bodies and query
// parameters can be checked before anything is sent.
type route struct {
	method   string
	template string // as shown: /v1/runs/{run_id}:cancel
	segments []string
	verb     string

	rpc   protoreflect.MethodDescriptor // nil when the gateway answers itself
	body  string                        // "", "*", or the name of a field
	bound []string                      // field paths that come from the path
	// rest says that the last variable takes the rest of the path, slashes and colons included
	rest bool

	open   bool // needs no credentials
	behind bool // needs credentials and no right: the calls that are made for it need theirs
	// guests answers callers without a credential, or whose session ended; nil refuses them.
	guests  http.Handler
	stream  bool // has no deadline
	socket  bool // is a WebSocket
	handler http.Handler
	// render writes an error for the clients of this route; nil is as for all.
	render func(*errorsv1.Error) []byte
}

func newRoute(method, template string) *route {
	r := &route{method: method, template: strings.ReplaceAll(template, ".", "_")}
	r.segments = strings.Split(strings.TrimPrefix(template, "/"), "/")
	last := len(r.segments) - 1
	if before, ok := strings.CutSuffix(r.segments[last], "=**}"); ok {
		r.segments[last], r.rest = before+"}", true
		r.template = strings.ReplaceAll(r.template, "=**}", "}")
	}
	if before, verb, ok := strings.Cut(r.segments[last], ":"); ok {
		r.segments[last], r.verb = before, verb
	}
	for _, s := range r.segments {
		if isVariable(s) {
			r.bound = append(r.bound, s[1:len(s)-1])
		}
	}
	return r
}

// fileRoute is a route whose template has dots that are not field paths.
func fileRoute(method, path string) *route {
	r := newRoute(method, path)
	r.template = path
	return r
}

// serviceRoutes reads the google.api.http annotations of a service.
func serviceRoutes(sd protoreflect.ServiceDescriptor) []*route {
	var out []*route
	for i := range sd.Methods().Len() {
		m := sd.Methods().Get(i)
		rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if !ok || rule == nil {
			continue
		}
		for _, one := range append([]*annotations.HttpRule{rule}, rule.GetAdditionalBindings()...) {
			method, path := verbOf(one)
			r := newRoute(method, path)
			r.rpc, r.body = m, one.GetBody()
			out = append(out, r)
		}
	}
	return out
}

func verbOf(rule *annotations.HttpRule) (method, path string) {
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	case *annotations.HttpRule_Custom:
		return p.Custom.GetKind(), p.Custom.GetPath()
	default:
		return "", ""
	}
}

func isVariable(segment string) bool { return strings.HasPrefix(segment, "{") }

// matches reports whether a path, split at its slashes, is one of the route's.
func (r *route) matches(path []string) bool {
	if r.rest {
		path = joined(path, len(r.segments))
	}
	if len(path) != len(r.segments) {
		return false
	}
	for i, s := range r.segments {
		p := path[i]
		if r.rest && i == len(path)-1 {
			return p != ""
		}
		if i == len(path)-1 && r.verb != "" {
			var ok bool
			if p, ok = strings.CutSuffix(p, ":"+r.verb); !ok {
				return false
			}
		}
		// No name here contains a colon: a verb follows it, known or not.
		if isVariable(s) && (p == "" || strings.Contains(p, ":")) || !isVariable(s) && p != s {
			return false
		}
	}
	return true
}

// joined makes one segment of the n-th and all that follow.
func joined(path []string, n int) []string {
	if len(path) <= n {
		return path
	}
	return append(slices.Clone(path[:n-1]), strings.Join(path[n-1:], "/"))
}

// procedure is the full name of the method that is called. The events are those of WatchRun.
func (r *route) procedure() string {
	if r.rpc == nil {
		return executorv1.ExecutorService_WatchRun_FullMethodName
	}
	return "/" + string(r.rpc.Parent().FullName()) + "/" + string(r.rpc.Name())
}

// service names who answers: "planner", "executor" or "registry". The events come from the executor.
func (r *route) service() string {
	if r.rpc == nil {
		return "executor"
	}
	parts := strings.Split(string(r.rpc.ParentFile().Package()), ".") // epigraph.SERVICE.v1
	return parts[len(parts)-2]
}

// bind sets the variables of the path, by their proto names.
func (r *route) bind(req *http.Request) {
	parts := strings.Split(strings.TrimPrefix(req.URL.Path, "/"), "/")
	if r.rest {
		parts = joined(parts, len(r.segments))
	}
	for i, s := range r.segments {
		if isVariable(s) {
			req.SetPathValue(s[1:len(s)-1], strings.TrimSuffix(parts[i], ":"+r.verb))
		}
	}
}

type routes []*route

// find returns the route of a request and the methods that its path has. Both are empty for an
// unknown path. A route that takes the rest of the path gives way to others.
func (rs routes) find(method, path string) (found *route, allowed []string) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for _, r := range rs {
		if r.matches(parts) {
			if r.method == method && (found == nil || !r.rest) {
				found = r
			}
			allowed = append(allowed, r.method)
		}
	}
	slices.Sort(allowed)
	return found, slices.Compact(allowed)
}

// near lists up to three templates that look like path.
func (rs routes) near(path string) []string {
	type candidate struct {
		shown string
		cost  int
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var all []candidate
	for _, r := range rs {
		cost := 3 * max(len(parts)-len(r.segments), len(r.segments)-len(parts))
		for i := range min(len(parts), len(r.segments)) {
			want, got := r.segments[i], parts[i]
			if i == len(r.segments)-1 && r.verb != "" {
				before, verb, _ := strings.Cut(got, ":")
				cost += jsonview.Distance(r.verb, verb)
				got = before
			}
			if !isVariable(want) {
				cost += jsonview.Distance(want, got)
			}
		}
		all = append(all, candidate{r.template, cost})
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.cost, b.cost) })
	var out []string
	for _, c := range all {
		if len(out) == 3 || c.cost > 8 {
			break
		}
		if !slices.Contains(out, c.shown) {
			out = append(out, c.shown)
		}
	}
	return out
}
