package grpckit

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// HeaderOrigin says where a call comes from that a service passes on, as access.Origin.Encode writes it. What
// others say of it is not heard.
const HeaderOrigin = "x-epigraph-origin"

// maxOrigin bounds HeaderOrigin, in bytes.
const maxOrigin = 2048

// Auditor keeps the entries of the audit log. It is safe for concurrent use and must not wait.
type Auditor interface {
	// Record keeps an entry. refused says that the call changed nothing.
	Record(e audit.Entry, refused bool)
}

// caught is what the audit log says of a call, as far as it is known.
type caught struct {
	who            Principal
	namespace, run string
	origin         access.Origin
	resource       string
}

// usageOfRuns is the method by which runs book what they use. The ledger records that.
const usageOfRuns = "/epigraph.registry.v1.RegistryService/RecordUsage"

// audit records calls of methods that change something. Calls that services make for themselves are left out,
// but for those that they make within a run.
func (k *chain) audit(ctx context.Context, c *call, next func(context.Context) error) error {
	if k.auditor == nil || !access.Changes(c.method) {
		return next(ctx)
	}
	began := time.Now()
	c.audited = &caught{}
	err := next(ctx)
	a := c.audited
	if a.who.Kind == "" || a.who.Kind == access.Internal && (a.run == "" || c.method == usageOfRuns) {
		return err
	}
	e := AuditEntry(ctx, c.method, a.who, a.namespace, began, err)
	e.Resource, e.RunID, e.Remote, e.UserAgent = a.resource, a.run, a.origin.Remote, a.origin.UserAgent
	k.auditor.Record(e, Refused(ctx, err))
	return err
}

// AuditEntry is the entry of a call that ended with err, without what it was about and where it came from.
func AuditEntry(ctx context.Context, method string, who Principal, namespace string, began time.Time, err error) audit.Entry {
	e := audit.Entry{Namespace: namespace, Time: began, Principal: who.String(), Method: strings.TrimPrefix(method, "/"), RequestID: RequestID(ctx), Code: codes.OK.String()}
	if who.Kind == access.Internal {
		e.Principal = audit.ByRun
	}
	if err != nil {
		e.Code, e.Reason = ToStatus(ctx, err).Code().String(), errs.ReasonOf(err)
	}
	return e
}

// Refused reports whether a call that ended with err has certainly changed nothing.
func Refused(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	switch ToStatus(ctx, err).Code() {
	case codes.PermissionDenied, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted,
		codes.ResourceExhausted, codes.Unauthenticated, codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}

// from notes who calls, and from where.
func (a *caught) from(ctx context.Context) {
	if a == nil {
		return
	}
	a.who, a.namespace, a.run, a.origin = PrincipalOf(ctx), Namespace(ctx), access.RunOf(ctx), access.OriginOf(ctx)
	if a.run != "" && a.who.IsService() {
		// The address would be that of a service.
		a.who, a.origin = Principal{Kind: access.Internal}, access.Origin{}
	}
}

// about notes what the call is about, by its request.
func (a *caught) about(method string, req any) {
	if a == nil || a.resource != "" {
		return
	}
	if m, ok := req.(proto.Message); ok {
		a.resource = strings.Clone(resource(method, m.ProtoReflect()))
	}
}

// made notes what the call has made, by its answer.
func (a *caught) made(method string, resp any) {
	if a == nil || a.resource != "" && !makes(method) {
		return
	}
	if m, ok := resp.(proto.Message); ok && m.ProtoReflect().IsValid() {
		if id := resource(method, m.ProtoReflect()); id != "" {
			a.resource = strings.Clone(id)
		}
	}
}

// makes reports whether a method makes what it is about, so that only its answer names that.
func makes(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, verb := range []string{"Create", "Start", "Import", "RunAndWait", "SignalWithStart", "Fork"} {
		if strings.HasPrefix(name, verb) {
			return true
		}
	}
	return false
}

// resource is the id or name of what a message is about: of the kind that the method names, of itself, of the
// first message in it that has one, or the first id that it names.
func resource(method string, m protoreflect.Message) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	fields := m.Descriptor().Fields()
	for _, field := range []protoreflect.Name{protoreflect.Name(nounOf(name) + "_id"), "id", "name", "slug"} {
		if id := textOf(m, fields.ByName(field)); id != "" {
			return id
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || f.IsList() || f.IsMap() || !m.Has(f) {
			continue
		}
		inner := m.Get(f).Message()
		for _, field := range []protoreflect.Name{"id", "name", "slug"} {
			if id := textOf(inner, inner.Descriptor().Fields().ByName(field)); id != "" {
				return id
			}
		}
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if strings.HasSuffix(string(f.Name()), "_id") && f.Name() != "request_id" {
			if id := textOf(m, f); id != "" {
				return id
			}
		}
	}
	return ""
}

// nounOf is what the name of a method is about: "run" of CancelRun, "schedule" of PauseSchedule.
func nounOf(name string) string {
	last := strings.LastIndexFunc(name, func(r rune) bool { return r >= 'A' && r <= 'Z' })
	if last <= 0 {
		return strings.ToLower(name)
	}
	return strings.ToLower(name[last:])
}

// textOf is the text of a field, "" if there is no such field.
func textOf(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

// originOf is where a call comes from: by what a service says that passes it on, else by its connection.
func originOf(ctx context.Context, service bool) access.Origin {
	if said := metadata.ValueFromIncomingContext(ctx, HeaderOrigin); service && len(said) == 1 && len(said[0]) <= maxOrigin {
		return access.DecodeOrigin(said[0])
	}
	var o access.Origin
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		o.Remote = Host(p.Addr.String())
	}
	if agent := metadata.ValueFromIncomingContext(ctx, "user-agent"); len(agent) > 0 {
		o.UserAgent = agent[0]
	}
	return o
}

// Host is an address without its port.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
