package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// Visit is one attempt, as its function sees it.
type Visit struct {
	RunID, NodeID string
	// RootRunID is the root of the run: the run itself if no other run spawned it.
	RootRunID string
	// Number is the number of the visit at its node, Item the index of a mapped item, Attempt the number of
	// the try. Number and Attempt count from 1.
	Number, Item, Attempt int
	Actor                 string
	Args                  []json.RawMessage
	Named                 map[string]json.RawMessage
	// EffectKey stays the same over repetitions of one effect: send it along as an idempotency key.
	EffectKey string
	Effect    EffectKind
	// Details are those of the last heartbeat of an earlier attempt, to go on from; nil if there are none.
	Details json.RawMessage
	// AttemptToken is what CompleteAttempt takes when the function returns AwaitCompletion, and SendAs takes
	// meanwhile.
	AttemptToken string
	// Message is everything as it came.
	Message *executorv1.Attempt

	tell func(*executorv1.WorkRequest) error
}

type visitKey struct{}

// Call is the visit for which ctx was made; nil outside of one.
func Call(ctx context.Context) *Visit {
	v, _ := ctx.Value(visitKey{}).(*Visit)
	return v
}

func newVisit(t *executorv1.Attempt) *Visit {
	v := &Visit{RunID: t.GetRunId(), RootRunID: t.GetRootRunId(), NodeID: t.GetVisit().GetNodeId(), Number: int(t.GetVisit().GetVisit()), Item: int(t.GetVisit().GetItem()),
		Attempt: int(t.GetAttempt()), Actor: t.GetActor(), EffectKey: t.GetEffectKey(), Effect: EffectKind(t.GetEffect()), Details: t.GetDetails().GetJson(),
		AttemptToken: t.GetAttemptToken(), Message: t}
	for _, a := range t.GetArgs() {
		v.Args = append(v.Args, a.GetJson())
	}
	if len(t.GetNamed()) > 0 {
		v.Named = make(map[string]json.RawMessage, len(t.GetNamed()))
		for k, p := range t.GetNamed() {
			v.Named[k] = p.GetJson()
		}
	}
	return v
}

// Heartbeat reports that the call goes on, and restarts its idle timeout. Details, if not nil, report its
// progress: watchers of the run see them, and the next attempt after a lost one receives the last.
func (v *Visit) Heartbeat(details any) error {
	beat := &executorv1.AttemptHeartbeat{Token: v.Message.GetToken()}
	if details != nil {
		raw, err := json.Marshal(details)
		if err != nil {
			return err
		}
		beat.Details = &graphv1.Payload{Json: raw}
	}
	return v.tell(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Progress{Progress: beat}})
}

// Text shows a piece of text, as a model writes it, to whoever watches the run.
func (v *Visit) Text(piece string) error {
	return v.tell(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Tokens{Tokens: &executorv1.AttemptTokens{Token: v.Message.GetToken(), Text: piece}}})
}

func (v *Visit) decode(named bool, in any) error {
	var raw json.RawMessage
	switch {
	case !named && len(v.Args) == 0:
		return nil
	case !named:
		raw = v.Args[0]
	default:
		var b bytes.Buffer
		b.WriteByte('{')
		for k, val := range v.Named {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			key, err := json.Marshal(k)
			if err != nil {
				return err
			}
			b.Write(key)
			b.WriteByte(':')
			b.Write(val)
		}
		b.WriteByte('}')
		raw = b.Bytes()
	}
	if err := json.Unmarshal(raw, in); err != nil {
		return &Error{Type: PermanentError, Reason: "ARGUMENTS_INVALID", Message: err.Error()}
	}
	return nil
}

// ErrorType says what is known about a failed call.
type ErrorType executorv1.ErrorType

// Kinds of errors. An error without a type counts as unknown for UNSAFE actors and as retryable for others.
const (
	RetryableError    = ErrorType(executorv1.ErrorType_ERROR_TYPE_RETRYABLE)
	PermanentError    = ErrorType(executorv1.ErrorType_ERROR_TYPE_PERMANENT)
	UnknownError      = ErrorType(executorv1.ErrorType_ERROR_TYPE_UNKNOWN)
	NotPerformedError = ErrorType(executorv1.ErrorType_ERROR_TYPE_NOT_PERFORMED)
)

// Error is the typed failure of a call.
type Error struct {
	Type            ErrorType
	Reason, Message string
	// RetryAfter delays the next attempt at least so long, an hour at most.
	RetryAfter time.Duration
	// Usage is what models used all the same.
	Usage []*executorv1.ModelUsage
	cause error
}

// Error reads "REASON: message".
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap is what the error was made of.
func (e *Error) Unwrap() error { return e.cause }

func typed(t ErrorType, reason string, err error) error {
	e := &Error{Type: t, Reason: reason, cause: err}
	if err != nil {
		e.Message = err.Error()
	}
	return e
}

// Retryable is a definite failure that another attempt may mend; reason is a stable upper-case word.
func Retryable(reason string, err error) error { return typed(RetryableError, reason, err) }

// RetryAfter is Retryable with a delay of the next attempt, an hour at most.
func RetryAfter(d time.Duration, reason string, err error) error {
	return &Error{Type: RetryableError, Reason: reason, Message: fmt.Sprint(err), RetryAfter: d, cause: err}
}

// Permanent is a failure that no attempt will mend.
func Permanent(reason string, err error) error { return typed(PermanentError, reason, err) }

// Unknown says that the effect may have happened.
func Unknown(reason string, err error) error { return typed(UnknownError, reason, err) }

// NotPerformed says that the effect surely has not happened.
func NotPerformed(reason string, err error) error { return typed(NotPerformedError, reason, err) }

func callError(ctx context.Context, err error) *executorv1.AttemptError {
	if e, ok := errors.AsType[*Error](err); ok {
		m := &executorv1.AttemptError{Type: executorv1.ErrorType(e.Type), Reason: e.Reason, Message: cut(e.Message), Usage: e.Usage}
		if e.RetryAfter > 0 {
			m.RetryAfter = durationpb.New(e.RetryAfter)
		}
		return m
	}
	m := &executorv1.AttemptError{Message: cut(err.Error())}
	if ctx.Err() == nil {
		m.Reason = "ACTOR_ERROR"
	}
	return m
}

// cut shortens a message to the accepted length.
func cut(s string) string {
	const limit = 8 << 10
	r := []rune(s)
	if len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
