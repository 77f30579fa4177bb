package command

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonSenderReserved is the reason for a message in the name of a node that no running call of the node
// sends.
const ReasonSenderReserved = "SENDER_RESERVED"

// verifySender refuses a message in the name of a node, or of the run's input, unless it carries the
// attempt token of a call of that node that is under way. It returns the call, or the zero value for a
// sender outside. The machine checks again when it applies the message, since the graph may have changed.
func (h *Handler) verifySender(ctx context.Context, row journal.Run, nodes map[string]workgraph.Node, req *MessageRequest) (attempttoken.Token, error) {
	reserved := func(format string, args ...any) error {
		return errs.New(errs.PermissionDenied, ReasonSenderReserved, format, args...).Set("sender", req.From).
			Hint("send in another name, or as the node's call does: in the node's name, with the call's attempt_token, while the call is under way")
	}
	if req.Token == "" {
		if workgraph.ReservedSender(req.From, func(id string) bool { _, ok := nodes[id]; return ok }) {
			return attempttoken.Token{}, reserved("%q is the name of a node of the run, or of its input: nobody else sends messages in it", req.From)
		}
		return attempttoken.Token{}, nil
	}
	tok, err := h.tokens.Parse(req.Namespace, req.Token)
	switch {
	case err != nil:
		return attempttoken.Token{}, err
	case tok.RunID != req.RunID:
		return attempttoken.Token{}, reserved("the attempt token is one of another run")
	case tok.Node != req.From:
		return attempttoken.Token{}, reserved("the attempt token is one of node %q, whose calls do not send as %q", tok.Node, req.From)
	case row.State.Ended():
		return tok, nil // an ended run refuses every message
	}
	look, _, err := h.Inspect(ctx, req.Namespace, req.RunID)
	if err != nil {
		return attempttoken.Token{}, err
	}
	speaks := false
	look(func(s *workgraph.State) { speaks = s.Speaks(tok.Ref(), tok.Attempt) })
	if !speaks {
		return attempttoken.Token{}, reserved("%s, attempt %d, is not under way", tok.Ref(), tok.Attempt)
	}
	return tok, nil
}
