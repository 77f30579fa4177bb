package grpckit

import (
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// StandIn is a server that refuses every call with why, and reads nothing. Its health service answers
// NOT_SERVING, with the name under which an unreachable database is reported. nil for secure is plain text.
func StandIn(why *errs.Error, secure *tls.Config) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return ToStatus(s.Context(), why).Err() }),
		grpc.MaxRecvMsgSize(4 << 10), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderBytes), grpc.ConnectionTimeout(connectionTimeout),
	}
	if secure != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := grpc.NewServer(opts...)
	h := health.NewServer()
	database := HealthDatabase
	if why.Reason == errs.ReasonDatabaseNotReady {
		database = HealthDatabaseReady
	}
	for _, name := range []string{"", database} {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
	}
	healthpb.RegisterHealthServer(s, h)
	return s
}
