package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/keys"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// KeyServer serves epigraph.registry.v1.KeyService. It is safe for concurrent use.
type KeyServer struct {
	registryv1.UnimplementedKeyServiceServer
	keys *keys.Keys
}

var _ registryv1.KeyServiceServer = (*KeyServer)(nil)

// NewKeys returns a server of these use cases.
func NewKeys(k *keys.Keys) *KeyServer { return &KeyServer{keys: k} }

// CreateKey implements registryv1.KeyServiceServer.
func (s *KeyServer) CreateKey(ctx context.Context, req *registryv1.CreateKeyRequest) (*registryv1.CreateKeyResponse, error) {
	w, o, err := prepared(req, req.GetRequestId(), func() (w keys.Wanted, err error) {
		w = keys.Wanted{Name: req.GetName(), Role: req.GetRole(), Scopes: req.GetScopes()}
		w.Expires, err = instant("expire_time", req.GetExpireTime())
		return w, err
	})
	if err != nil {
		return nil, err
	}
	k, secret, err := s.keys.Create(ctx, grpckit.Namespace(ctx), o, w)
	if err != nil {
		return nil, err
	}
	return &registryv1.CreateKeyResponse{Key: keyTo(k), Secret: secret}, nil
}

// GetKey implements registryv1.KeyServiceServer.
func (s *KeyServer) GetKey(ctx context.Context, req *registryv1.GetKeyRequest) (*registryv1.Key, error) {
	k, err := s.keys.Get(ctx, grpckit.Namespace(ctx), req.GetKeyId())
	if err != nil {
		return nil, err
	}
	return keyTo(k), nil
}

// ListKeys implements registryv1.KeyServiceServer.
func (s *KeyServer) ListKeys(ctx context.Context, req *registryv1.ListKeysRequest) (*registryv1.ListKeysResponse, error) {
	p, err := paged(ctx, "ListKeys", req)
	if err != nil {
		return nil, err
	}
	rows, err := s.keys.List(ctx, store.APIKeyQuery{Namespace: grpckit.Namespace(ctx), After: p.After, Limit: p.Limit + 1})
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, rows, func(k store.APIKey) page.Cursor { return page.Cursor{CreateTime: k.CreateTime, ID: k.ID} })
	return &registryv1.ListKeysResponse{Keys: each(rows, keyTo), NextPageToken: next}, nil
}

// RevokeKey implements registryv1.KeyServiceServer.
func (s *KeyServer) RevokeKey(ctx context.Context, req *registryv1.RevokeKeyRequest) (*registryv1.Key, error) {
	k, err := s.keys.Revoke(ctx, grpckit.Namespace(ctx), req.GetKeyId())
	if err != nil {
		return nil, err
	}
	return keyTo(k), nil
}

// GetCaller implements registryv1.KeyServiceServer.
func (s *KeyServer) GetCaller(ctx context.Context, _ *registryv1.GetCallerRequest) (*registryv1.Caller, error) {
	who := access.Of(ctx)
	return &registryv1.Caller{
		Principal: who.String(), Namespace: grpckit.Namespace(ctx), Role: string(who.Role()),
		Scopes: each(who.Grants(), func(s access.Scope) string { return string(s) }),
	}, nil
}

// ResolveKey implements registryv1.KeyServiceServer.
func (s *KeyServer) ResolveKey(ctx context.Context, req *registryv1.ResolveKeyRequest) (*registryv1.ResolveKeyResponse, error) {
	k, found, err := s.keys.Resolve(ctx, grpckit.Namespace(ctx), req.GetKeyId(), [32]byte(req.GetHash()))
	if err != nil || !found {
		return &registryv1.ResolveKeyResponse{}, err
	}
	return &registryv1.ResolveKeyResponse{Key: keyTo(k), Hash: k.Hash[:]}, nil
}

func keyTo(k store.APIKey) *registryv1.Key {
	return &registryv1.Key{
		Id: k.ID, Namespace: k.Namespace, Name: k.Name, Role: string(access.Principal{Scopes: k.Scopes}.Role()),
		Scopes:    each(k.Scopes, func(s access.Scope) string { return string(s) }),
		Principal: k.Principal, CreateTime: stamp(k.CreateTime), ExpireTime: stamp(k.ExpireTime), RevokeTime: stamp(k.RevokeTime),
		RevokedBy: k.RevokedBy, LastUseTime: stamp(k.LastUseTime),
	}
}
