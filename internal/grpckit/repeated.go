package grpckit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// HeaderRepeated is the header of an answer to a request that an earlier one with the same id was answered
// with.
const HeaderRepeated = "x-epigraph-repeated"

// MarkRepeated says that the answer of the call is that of an earlier request with the same id. Outside of a
// call it does nothing.
func MarkRepeated(ctx context.Context) {
	_ = grpc.SetHeader(ctx, metadata.Pairs(HeaderRepeated, "true"))
}

// Repeated reports whether the headers of an answer say that it is that of an earlier request.
func Repeated(header metadata.MD) bool { return len(header.Get(HeaderRepeated)) > 0 }
