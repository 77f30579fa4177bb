package gateway

import (
	"context"
	"crypto/sha256"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/apikey"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// LookUpKey returns a lookup of keys at a registry. The call is the service's own, in the namespace
// that the secret names, and so goes to the cell of that.
func LookUpKey(c registryv1.KeyServiceClient) apikey.Lookup {
	return func(ctx context.Context, t apikey.Token) (k apikey.Key, found bool, err error) {
		ctx = grpckit.AsService(grpckit.WithNamespace(ctx, t.Namespace))
		r, err := c.ResolveKey(ctx, &registryv1.ResolveKeyRequest{KeyId: t.ID, Hash: t.Hash[:]})
		if err != nil || r.GetKey() == nil || len(r.GetHash()) != sha256.Size {
			return k, false, err
		}
		k = apikey.Key{Name: r.GetKey().GetName(), Hash: [sha256.Size]byte(r.GetHash())}
		for _, s := range r.GetKey().GetScopes() {
			k.Scopes = append(k.Scopes, access.Scope(s))
		}
		if r.GetKey().GetExpireTime() != nil {
			k.Expires = r.GetKey().GetExpireTime().AsTime()
		}
		return k, true, nil
	}
}
