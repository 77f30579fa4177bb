package rest

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

// withOthers adds the other faults of the graph in a faulty body, as far as the executor reports them: the
// author of a graph sees all faults at once. body is the body without the faulty parts. The request itself is
// refused, so that no service is called for it otherwise.
func (s *Server) withOthers(ctx context.Context, md protoreflect.MessageDescriptor, body []byte, err *errs.Error) error {
	place, ask := question(md, body)
	if len(ask.GetGraph().GetNodes()) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.RequestTimeout, errRequestTimeout)
	defer cancel()
	r, asked := executorv1.NewExecutorServiceClient(s.Cells.Conn(cells.Executor)).ValidateGraph(ctx, ask)
	more := graphpb.Violations(r.GetFaults())
	if asked != nil {
		more = errs.From(fromCall(asked)).Violations
	}
	seen := map[string]bool{}
	for _, v := range err.Violations {
		seen[v.Field] = true
	}
	byNumber := numbered(ask.GetGraph())
	var others []errs.Violation
	for _, v := range more {
		if v.Field = place + v.Field; !seen[v.Field] && !seen[byNumber(v.Field)] {
			others = append(others, v)
		}
	}
	return jsonview.Join(err, md, others)
}

// numbered gives a function that turns the place of a node by its id, as the executor names it, into that by
// its number, as the reader of bodies does.
func numbered(g *graphv1.Graph) func(field string) string {
	number := make(map[string]int, len(g.GetNodes()))
	for i, n := range g.GetNodes() {
		number[n.GetId()] = i
	}
	const nodes = "graph.nodes["
	return func(field string) string {
		before, rest, ok := strings.Cut(field, nodes)
		id, rest, _ := strings.Cut(rest, "]")
		i, known := number[id]
		if !ok || !known {
			return field
		}
		return before + nodes + strconv.Itoa(i) + "]" + rest
	}
}

// question builds the validation request for the graph of a body, with the input beside it if the body starts
// a run. place is the path of the graph in the body.
func question(md protoreflect.MessageDescriptor, body []byte) (place string, ask *executorv1.ValidateGraphRequest) {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(md.FullName())
	if err != nil {
		return "", nil
	}
	m := mt.New().Interface()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, m); err != nil {
		return "", nil
	}
	return asked(m)
}

func asked(m proto.Message) (place string, ask *executorv1.ValidateGraphRequest) {
	start := func(place string, r *executorv1.StartRunRequest) (string, *executorv1.ValidateGraphRequest) {
		return place, &executorv1.ValidateGraphRequest{Graph: r.GetGraph(), Input: &executorv1.RunInput{Args: r.GetArgs(), Named: r.GetNamed()}}
	}
	switch m := m.(type) {
	case *executorv1.ValidateGraphRequest:
		return "", m
	case *executorv1.StartRunRequest:
		return start("", m)
	case *executorv1.SignalWithStartRequest:
		return start("start.", m.GetStart())
	case *executorv1.Schedule:
		return start("start.", m.GetStart())
	case *executorv1.CreateScheduleRequest:
		return start("schedule.start.", m.GetSchedule().GetStart())
	case *executorv1.ForkRunRequest:
		return "", &executorv1.ValidateGraphRequest{Graph: m.GetGraph()}
	}
	return "", nil
}
