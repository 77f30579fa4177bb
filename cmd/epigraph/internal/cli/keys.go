package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type keysCreateCmd struct {
	Name      string        `arg:"" help:"What the use of the key is recorded under."`
	Role      string        `help:"What it may do: viewer, operator, approver or admin." placeholder:"ROLE" xor:"what"`
	Scopes    []string      `help:"What it may do: read, run, worker, approve, admin." placeholder:"SCOPE" xor:"what"`
	For       time.Duration `help:"How long it opens anything; default for ever." placeholder:"DURATION"`
	RequestID string        `help:"Makes the command repeatable; a repetition does not print the secret." placeholder:"ID"`
}

// Help gives examples.
func (keysCreateCmd) Help() string {
	return `The secret is printed once and cannot be read again. Nobody makes a key that may do more than their own.

Examples:

    epigraph keys create dashboard --role viewer
    epigraph keys create worker-1 --scopes worker --for 2160h`
}

// Run makes a key.
func (c *keysCreateCmd) Run(e *env) error {
	req := &registryv1.CreateKeyRequest{Name: c.Name, Role: c.Role, Scopes: c.Scopes, RequestId: c.RequestID}
	if c.For > 0 {
		req.ExpireTime = timestamppb.New(time.Now().Add(c.For))
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.keys.CreateKey(ctx, req)
		if err != nil {
			return err
		}
		if !e.json {
			e.note("%s: the secret is shown only now", r.GetKey().GetId())
		}
		return e.print(r, func() string { return view.OneLine(r.GetSecret(), 300) + "\n" })
	})
}

type keysListCmd struct {
	page
}

// Run lists.
func (c *keysListCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.keys.ListKeys(ctx, &registryv1.ListKeysRequest{PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetKeys()) == 0 {
				return "no keys but those of the configuration\n"
			}
			var rows [][]string
			for _, k := range r.GetKeys() {
				rows = append(rows, []string{view.OneLine(k.GetId(), 40), view.OneLine(k.GetName(), 64), keyGrants(k), keyState(k), view.When(k.GetCreateTime()), view.OneLine(k.GetPrincipal(), 40), view.When(k.GetLastUseTime())})
			}
			return view.Table(e.io.style(), []string{"KEY", "NAME", "MAY", "STATE", "CREATED", "BY", "USED"}, rows)
		})
	})
}

// keyGrants is the role of a key, or else its scopes.
func keyGrants(k *registryv1.Key) string {
	if k.GetRole() != "" {
		return view.OneLine(k.GetRole(), 20)
	}
	return view.OneLine(strings.Join(k.GetScopes(), ", "), 60)
}

func keyState(k *registryv1.Key) string {
	switch {
	case k.GetRevokeTime() != nil:
		return "revoked"
	case k.GetExpireTime() == nil:
		return "open"
	case k.GetExpireTime().AsTime().Before(time.Now()):
		return "expired"
	}
	return "until " + k.GetExpireTime().AsTime().Format(time.DateOnly)
}

type keysShowCmd struct {
	ID string `arg:"" help:"The key."`
}

// Run shows.
func (c *keysShowCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		k, err := s.keys.GetKey(ctx, &registryv1.GetKeyRequest{KeyId: c.ID})
		if err != nil {
			return err
		}
		return e.print(k, func() string {
			return fmt.Sprintf("%s %s: %s, %s\n", view.OneLine(k.GetId(), 40), view.OneLine(k.GetName(), 64), keyGrants(k), keyState(k))
		})
	})
}

type keysRevokeCmd struct {
	ID string `arg:"" help:"The key."`
}

// Run revokes.
func (c *keysRevokeCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		k, err := s.keys.RevokeKey(ctx, &registryv1.RevokeKeyRequest{KeyId: c.ID})
		if err != nil {
			return err
		}
		return e.print(k, func() string { return view.OneLine(k.GetName(), 64) + " is revoked\n" })
	})
}

type keysWhoamiCmd struct{}

// Run tells.
func (keysWhoamiCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.keys.GetCaller(ctx, &registryv1.GetCallerRequest{})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			may := r.GetRole()
			if may == "" {
				may = strings.Join(r.GetScopes(), ", ")
			}
			return fmt.Sprintf("%s in %s: %s\n", view.OneLine(r.GetPrincipal(), 80), view.OneLine(r.GetNamespace(), 63), view.OneLine(may, 80))
		})
	})
}
