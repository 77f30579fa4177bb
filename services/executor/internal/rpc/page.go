package rpc

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
)

// listing is a request for a page of a list that its other fields narrow.
type listing interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

// listedPage checks a request for a page. A page token belongs to the namespace, the method and the fields
// that narrow the list.
func listedPage(ctx context.Context, method string, req listing) (page.Page, error) {
	filter := proto.CloneOf(req)
	m := filter.ProtoReflect()
	for _, name := range []protoreflect.Name{"page_size", "page_token"} {
		m.Clear(m.Descriptor().Fields().ByName(name))
	}
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(filter)
	if err != nil {
		return page.Page{}, fmt.Errorf("hash filter: %w", err)
	}
	return page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{Method: method, Parent: grpckit.Namespace(ctx), Filter: string(key)})
}
