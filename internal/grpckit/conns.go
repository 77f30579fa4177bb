package grpckit

import (
	"context"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// maxChecks bounds the health checks under way on one connection, since they need no credentials.
const maxChecks = 8

// tagger ties calls to their connections.
type tagger struct{ list *conns.List }

type checksKey struct{}

// TagConn implements stats.Handler.
func (t tagger) TagConn(ctx context.Context, i *stats.ConnTagInfo) context.Context {
	return context.WithValue(t.list.Tag(ctx, i.RemoteAddr), checksKey{}, new(atomic.Int32))
}

// HandleConn implements stats.Handler.
func (tagger) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (tagger) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (tagger) HandleRPC(context.Context, stats.RPCStats) {}

// plainText shows the plain text of encrypted connections to the list of connections.
type plainText struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (p plainText) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := p.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return conns.Secured(raw, c), info, nil
}

// Clone implements credentials.TransportCredentials.
func (p plainText) Clone() credentials.TransportCredentials {
	return plainText{p.TransportCredentials.Clone()}
}

// check lets a health check begin; done is called when it has ended.
func check(ctx context.Context) (done func(), err error) {
	under, ok := ctx.Value(checksKey{}).(*atomic.Int32)
	if !ok {
		return func() {}, nil
	}
	done = func() { under.Add(-1) }
	if under.Add(1) > maxChecks {
		done()
		return nil, errs.New(errs.ResourceExhausted, "TOO_MANY_HEALTH_CHECKS", "more than %d health checks at once on one connection", maxChecks)
	}
	return done, nil
}
