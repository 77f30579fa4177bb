package grpckit

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// HeaderWatching is the header of a stream that has begun to watch. It tells a client that the stream was
// not refused, however long its first message takes.
const HeaderWatching = "x-epigraph-watching"

// MarkWatching sends the headers of a stream that has begun to watch, once.
func MarkWatching(stream grpc.ServerStream) {
	// A stream that has broken off fails with its next message.
	_ = stream.SendHeader(metadata.Pairs(HeaderWatching, "true"))
}

// Watching reports whether the headers of a stream say that it has begun to watch.
func Watching(header metadata.MD) bool { return len(header.Get(HeaderWatching)) > 0 }
