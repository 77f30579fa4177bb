package rpc

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// ReasonAccountUnknown is the reason when another service names a model account that this executor's
// configuration does not have.
const ReasonAccountUnknown = "MODEL_ACCOUNT_UNKNOWN"

// Accounts answers the part of epigraph.executor.v1.PeerService that is about model accounts.
type Accounts struct {
	// Governor admits the calls; it is nil if there are no accounts.
	Governor llm.Governor
	// Limits are those of the accounts, by name.
	Limits map[string]llm.AccountLimits
}

// Govern implements the service.
func (a Accounts) Govern(stream grpc.BidiStreamingServer[executorv1.GovernRequest, executorv1.GovernResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	call := first.GetCall()
	if call == nil || !grpckit.ValidNamespace(call.GetNamespace()) {
		return errs.New(errs.InvalidArgument, "REQUEST_INVALID", "the first request must carry a call with a namespace")
	}
	limits, known := a.Limits[call.GetAccount()]
	if a.Governor == nil || !known {
		return errs.New(errs.FailedPrecondition, ReasonAccountUnknown, "the executor has no model account %q", errs.Clip(call.GetAccount(), 100)).
			Hint("give planner and executor the same models.accounts; the executor has: " + strings.Join(slices.Sorted(maps.Keys(a.Limits)), ", "))
	}
	permit, err := a.Governor.Admit(stream.Context(), llm.Account{Name: call.GetAccount(), AccountLimits: limits}, call.GetNamespace(), tokens(call.GetEstimate()))
	if refused, ok := errors.AsType[*llm.Error](err); ok {
		return stream.Send(&executorv1.GovernResponse{Refusal: &executorv1.ModelCallRefusal{Message: refused.Message, RetryAfter: durationpb.New(refused.RetryAfter)}})
	}
	if err != nil {
		return err
	}
	// What is not known of the call counts as if it had used its estimate.
	used, failed := llm.Usage{}, &llm.Error{Class: llm.Unknown}
	defer func() { permit.Done(used, failed) }()
	if err := stream.Send(&executorv1.GovernResponse{}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.GetSent() != nil:
			permit.Sent()
		case m.GetEnd() != nil:
			used, failed = tokens(m.GetEnd().GetUsed()), failure(m.GetEnd().GetFailure())
			used.Known = m.GetEnd().GetUsed() != nil
			return nil
		}
	}
}

func tokens(m *executorv1.ModelTokens) llm.Usage {
	return llm.Usage{Input: max(m.GetInput(), 0), CachedInput: max(m.GetCachedInput(), 0), Output: max(m.GetOutput(), 0)}
}

func failure(m *executorv1.ModelCallFailure) *llm.Error {
	if m == nil {
		return nil
	}
	e := &llm.Error{Class: llm.Permanent, Status: int(m.GetStatus()), Code: errs.Clip(m.GetCode(), 100), RetryAfter: max(m.GetRetryAfter().AsDuration(), 0)}
	switch {
	case m.GetNotPerformed():
		e.Class = llm.NotPerformed
	case m.GetRetryable():
		e.Class = llm.Retryable
	case m.GetUnknown():
		e.Class = llm.Unknown
	}
	return e
}
