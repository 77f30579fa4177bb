package rest

import (
	"context"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

// withOthers adds to the fields that a body has and its message does not what else is wrong with the graph in
// it, as far as the executor says it: who writes a graph by hand is told all faults at once. The request
// itself is refused, so that nothing else may be asked of a service.
func (s *Server) withOthers(ctx context.Context, md protoreflect.MessageDescriptor, body []byte, err *errs.Error) error {
	g := graphOf(md, body)
	if g == nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.RequestTimeout, errRequestTimeout)
	defer cancel()
	r, asked := executorv1.NewExecutorServiceClient(s.Cells.Conn(cells.Executor)).ValidateGraph(ctx, &executorv1.ValidateGraphRequest{Graph: g})
	if asked != nil {
		return jsonview.Join(err, md, errs.From(fromCall(asked)).Violations)
	}
	return jsonview.Join(err, md, graphpb.Violations(r.GetFaults()))
}

// graphOf is the graph of a body, without the fields that are not known; nil if it has none.
func graphOf(md protoreflect.MessageDescriptor, body []byte) *graphv1.Graph {
	fd := md.Fields().ByName("graph")
	mt, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName())
	if fd == nil || fd.Message() == nil || fd.IsList() || fd.IsMap() || err != nil {
		return nil
	}
	m := mt.New()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, m.Interface()); err != nil || !m.Has(fd) {
		return nil
	}
	g, _ := m.Get(fd).Message().Interface().(*graphv1.Graph)
	return g
}
