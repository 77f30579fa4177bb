package epigraph

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// KeyOption is one property of a key that is to be made.
type KeyOption func(*registryv1.CreateKeyRequest)

// KeyRole gives a key the scopes of a role: viewer, operator, approver or admin.
func KeyRole(name string) KeyOption { return func(r *registryv1.CreateKeyRequest) { r.Role = name } }

// KeyScopes gives a key scopes: read, run, worker, approve, admin.
func KeyScopes(names ...string) KeyOption {
	return func(r *registryv1.CreateKeyRequest) { r.Scopes = names }
}

// KeyExpiresAt ends a key by itself.
func KeyExpiresAt(t time.Time) KeyOption {
	return func(r *registryv1.CreateKeyRequest) { r.ExpireTime = timestamppb.New(t) }
}

// CreateKey makes a key of the namespace and returns its secret, which nobody can read again. The key
// may do no more than the caller's own.
func (c *Client) CreateKey(ctx context.Context, name string, opts ...KeyOption) (key *registryv1.Key, secret string, err error) {
	req := &registryv1.CreateKeyRequest{Name: name}
	for _, f := range opts {
		f(req)
	}
	r, err := c.keys().CreateKey(ctx, req)
	return r.GetKey(), r.GetSecret(), err
}

// Keys returns the keys of the namespace that were made by CreateKey, the newest first.
func (c *Client) Keys(ctx context.Context) ([]*registryv1.Key, error) {
	var out []*registryv1.Key
	for k, err := range all(func(token string) ([]*registryv1.Key, string, error) {
		m, err := c.keys().ListKeys(ctx, &registryv1.ListKeysRequest{PageSize: largePage, PageToken: token})
		return m.GetKeys(), m.GetNextPageToken(), err
	}) {
		if err != nil {
			return nil, err
		}
		out = append(out, k)
	}
	return out, nil
}

// RevokeKey ends a key for good. It opens nothing any more within seconds.
func (c *Client) RevokeKey(ctx context.Context, id string) (*registryv1.Key, error) {
	return c.keys().RevokeKey(ctx, &registryv1.RevokeKeyRequest{KeyId: id})
}

// Caller tells who the client is to the services, and what it may do.
func (c *Client) Caller(ctx context.Context) (*registryv1.Caller, error) {
	return c.keys().GetCaller(ctx, &registryv1.GetCallerRequest{})
}

func (c *Client) keys() registryv1.KeyServiceClient { return registryv1.NewKeyServiceClient(c.book) }
