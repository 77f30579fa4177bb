package epigraph

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"google.golang.org/protobuf/types/known/durationpb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// NamespaceLimit is the name of the limit of the namespace as a whole.
const NamespaceLimit = "namespace"

// ActorLimit is the name of the limit of an actor's calls.
func ActorLimit(actor string) string { return "actor/" + actor }

// KeyLimit returns the name of the limit for calls with a concurrency key. Without a limit of its own a key
// admits one call at a time.
func KeyLimit(key string) string { return "key/" + key }

// LimitOption is one bound of a limit.
type LimitOption func(*executorv1.Limit)

// AtOnce bounds how many calls run at once.
func AtOnce(n int) LimitOption { return func(l *executorv1.Limit) { l.MaxConcurrent = int32(n) } }

// Rate bounds how many calls begin in an interval.
func Rate(n int, per time.Duration) LimitOption {
	return func(l *executorv1.Limit) { l.MaxRate, l.RateInterval = int32(n), durationpb.New(per) }
}

// OpenRuns bounds how many runs of the namespace are open; more wait for their start.
func OpenRuns(n int64) LimitOption { return func(l *executorv1.Limit) { l.MaxOpenRuns = n } }

// PendingRuns bounds how many runs of the namespace wait for their start; more are refused.
func PendingRuns(n int64) LimitOption { return func(l *executorv1.Limit) { l.MaxPendingRuns = n } }

// FanOut bounds the nodes of a graph and the children of a visit in the namespace.
func FanOut(n int) LimitOption { return func(l *executorv1.Limit) { l.MaxFanOut = int32(n) } }

// Bytes bounds what the open runs of the namespace hold; further starts are refused.
func Bytes(n int64) LimitOption { return func(l *executorv1.Limit) { l.MaxBytes = n } }

// Retention is how long ended runs of the namespace are kept. It replaces the setting of the installation.
func Retention(d time.Duration) LimitOption {
	return func(l *executorv1.Limit) { l.Retention = durationpb.New(d) }
}

// SetLimit creates or replaces the limit of that name. A bound that is not given does not apply.
func (c *Client) SetLimit(ctx context.Context, name string, bounds ...LimitOption) (*executorv1.Limit, error) {
	l := &executorv1.Limit{Name: name}
	for _, f := range bounds {
		f(l)
	}
	return c.limits().UpdateLimit(ctx, &executorv1.UpdateLimitRequest{Limit: l, UpdateMask: &fieldmaskpb.FieldMask{Paths: everything}, AllowMissing: true})
}

// Limits returns the limits of the namespace by name, with their current use.
func (c *Client) Limits(ctx context.Context) ([]*executorv1.Limit, error) {
	var out []*executorv1.Limit
	for l, err := range all(func(token string) ([]*executorv1.Limit, string, error) {
		m, err := c.limits().ListLimits(ctx, &executorv1.ListLimitsRequest{PageSize: largePage, PageToken: token})
		return m.GetLimits(), m.GetNextPageToken(), err
	}) {
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// Limit returns the limit of that name with its current use. If there is none the reason is LIMIT_NOT_FOUND.
func (c *Client) Limit(ctx context.Context, name string) (*executorv1.Limit, error) {
	all, err := c.Limits(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.GetName() == name {
			return l, nil
		}
	}
	return nil, &Error{Reason: "LIMIT_NOT_FOUND", Message: "there is no limit \"" + name + "\"", Hint: "Limits lists the existing ones"}
}

// DeleteLimit deletes a limit. If there is none the reason is LIMIT_NOT_FOUND.
func (c *Client) DeleteLimit(ctx context.Context, name string) error {
	_, err := c.limits().DeleteLimit(ctx, &executorv1.DeleteLimitRequest{Name: name})
	return err
}

func (c *Client) limits() executorv1.LimitServiceClient {
	return executorv1.NewLimitServiceClient(c.conn)
}
