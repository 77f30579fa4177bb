package grpckit

import (
	"context"
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// deletion is what a method removes, by the name of the method; the zero value removes nothing.
type deletion struct {
	// kind is the kind of the resource, like "run".
	kind string
	// bulk says that the request names no resource: the handler calls Deleted.
	bulk bool
}

// deletionOf reads a full method name: DeleteRun removes the run that its request names, BulkDeleteRuns many.
func deletionOf(method string) deletion {
	short := method[strings.LastIndexByte(method, '/')+1:]
	if many, ok := strings.CutPrefix(short, "BulkDelete"); ok {
		return deletion{kind: strings.ToLower(strings.TrimSuffix(many, "s")), bulk: true}
	}
	one, _ := strings.CutPrefix(short, "Delete")
	if one == short {
		return deletion{}
	}
	return deletion{kind: strings.ToLower(one)}
}

type deletedKey struct{}

// Deleted names resources that a call removed, for the log. Only the handler of a bulk method needs it: in
// other methods the request names the resource. It may be called although the call fails in the end.
func Deleted(ctx context.Context, ids ...string) {
	if list, ok := ctx.Value(deletedKey{}).(*[]string); ok {
		*list = append(*list, ids...)
	}
}

// handle calls the handler of a method that removes d, and logs the removed resources and the caller.
func (k *chain) handle(ctx context.Context, c *call, d deletion, req any, handler grpc.UnaryHandler) (any, error) {
	if d.kind == "" {
		return handler(ctx, req)
	}
	var gone []string
	resp, err := handler(context.WithValue(ctx, deletedKey{}, &gone), req)
	maybe := !d.bulk && err != nil && unclear(ctx, err)
	if !d.bulk && (err == nil || maybe) {
		gone = append(gone, named(req, d.kind))
	}
	for _, id := range gone {
		attrs := []slog.Attr{slog.String("kind", d.kind), slog.String("id", id), slog.String("namespace", Namespace(ctx)),
			slog.String("principal", c.principal), slog.String("request_id", RequestID(ctx))}
		// These are warnings because a deleted resource keeps no record of its deletion: the line must be
		// written at every level in use.
		if maybe {
			k.log.LogAttrs(ctx, slog.LevelWarn, "may have been deleted", attrs...)
		} else {
			k.log.LogAttrs(ctx, slog.LevelWarn, "deleted", attrs...)
		}
	}
	return resp, err
}

// unclear reports whether a deletion that failed so may have been committed.
func unclear(ctx context.Context, err error) bool {
	switch ToStatus(ctx, err).Code() {
	case codes.Internal, codes.Canceled, codes.DeadlineExceeded:
		return true
	case codes.Unavailable:
		return errs.ReasonOf(err) != errs.ReasonNotReady
	}
	return false
}

// named is the resource of this kind that a request names.
func named(req any, kind string) string {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	r := m.ProtoReflect()
	for _, name := range []string{kind + "_id", "name"} {
		if f := r.Descriptor().Fields().ByName(protoreflect.Name(name)); f != nil && f.Kind() == protoreflect.StringKind {
			return r.Get(f).String()
		}
	}
	return ""
}
