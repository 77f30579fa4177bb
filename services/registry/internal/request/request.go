// Package request owns what changes of the registry have in common: that they can be repeated, the etag
// that a caller has seen, and who the caller is. It must not know what is changed.
package request

import (
	"cmp"
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// ReasonReused refuses a request id that came earlier with another body.
const ReasonReused = "REQUEST_ID_REUSED"

// Once makes a request repeatable: a second one with the same id and body is answered from what the
// first one did. The zero value does not.
type Once struct {
	ID       string
	BodyHash [32]byte
}

// Change is what every change of something that exists carries.
type Change struct {
	Once
	// Etag, if set, is what the resource must still have.
	Etag string
}

// Earlier remembers a request. If it was served before it returns what it made or changed, else "".
func (o Once) Earlier(ctx context.Context, tx store.Tx, namespace, method, resource string, now time.Time) (earlier string, err error) {
	if o.ID == "" {
		return "", nil
	}
	r, seen, err := tx.Remember(ctx, store.Request{
		Namespace: namespace, Method: method, ID: o.ID, BodyHash: o.BodyHash, Resource: resource, Time: now,
	})
	if err != nil || !seen {
		return "", err
	}
	return o.same(r)
}

// Before is what a request made or changed that was served before, else "". Two at the same time may both
// be told of none: Earlier decides.
func (o Once) Before(ctx context.Context, r store.Reader, namespace, method string) (earlier string, err error) {
	found, seen, err := r.Request(ctx, namespace, method, o.ID)
	if err != nil || !seen {
		return "", err
	}
	return o.same(found)
}

// same is the resource of an earlier request, which must have had the same body.
func (o Once) same(r store.Request) (string, error) {
	if r.BodyHash != o.BodyHash {
		return "", errs.New(errs.InvalidArgument, ReasonReused, "request_id %q came earlier with another request", o.ID).
			Set("resource", r.Resource).Violate("request_id", ReasonReused, "came earlier with another request").
			Hint("use a fresh request_id for every new request")
	}
	return r.Resource, nil
}

// Caller is the caller's recorded name; empty for the services themselves, which only report results of runs.
func Caller(ctx context.Context) string {
	who := access.Of(ctx)
	if who.Kind == access.Internal {
		return ""
	}
	return who.String()
}

// labelRoot is the label in which executors of the version before name the root of the run that makes
// an epic.
const labelRoot = "created_by_root"

// Maker is who makes something by the call: for a run of an executor the maker that the executor names,
// else the caller. Labels count only from an executor of the version before, which names the root in
// one.
func Maker(ctx context.Context, labels map[string]string) access.Maker {
	run := access.RunOf(ctx)
	if run == "" || !access.Of(ctx).IsService() {
		return access.Maker{Principal: Caller(ctx)}
	}
	m := access.MakerOf(ctx)
	m.Root = cmp.Or(m.Root, labels[labelRoot], run)
	return m
}
