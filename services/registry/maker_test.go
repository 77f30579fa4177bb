package registry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestMaker makes epics as executors and as clients do. The maker is what an executor says of its run,
// and nothing that a client says.
func TestMaker(t *testing.T) {
	t.Parallel()
	for store, config := range onBothStores() {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			as, _ := serveAs(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{
				{Name: "ben", Namespace: "acme", Secret: conf.NewSecret("secret-of-ben"), Scopes: access.Scopes()}}}, obs.Noop())
			run := access.WithRun(grpckit.WithNamespace(t.Context(), "acme"), "run_2")
			made := access.WithMaker(run, access.Maker{Root: "run_0", Principal: "key:ada"})
			label := map[string]string{"created_by_root": "run_9"}
			for name, c := range map[string]struct {
				ctx       context.Context
				key       string
				in        *registryv1.Epic
				root, who string
			}{
				"OfARun":                  {made, "of-services", &registryv1.Epic{}, "run_0", "key:ada"},
				"OfARun/WhateverItsLabel": {made, "of-services", &registryv1.Epic{Labels: label}, "run_0", "key:ada"},
				"OfAnExecutorBefore":      {run, "of-services", &registryv1.Epic{Labels: label}, "run_9", ""},
				"OfAClient":               {made, "secret-of-ben", &registryv1.Epic{}, "", "key:ben"},
				"OfAClient/WhateverItsLabel": {
					made, "secret-of-ben",
					&registryv1.Epic{Labels: label, MakerRootRunId: "run_0", MakerPrincipal: "key:ada"}, "", "key:ben",
				},
			} {
				t.Run(name, func(t *testing.T) {
					c.in.Title = "goal"
					e, err := as(c.key).CreateEpic(c.ctx, &registryv1.CreateEpicRequest{Epic: c.in})
					require.NoError(t, err)
					require.Equal(t, []string{c.root, c.who}, []string{e.GetMakerRootRunId(), e.GetMakerPrincipal()})
				})
			}
			t.Run("StaysWhoeverChangesIt", func(t *testing.T) {
				e, err := as("of-services").CreateEpic(made, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
				require.NoError(t, err)
				_, err = as("secret-of-ben").UpdateEpic(t.Context(), &registryv1.UpdateEpicRequest{UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
					Epic: &registryv1.Epic{Id: e.GetId(), Labels: label, MakerRootRunId: "run_9"}})
				require.NoError(t, err)
				e, err = as("secret-of-ben").GetEpic(t.Context(), &registryv1.GetEpicRequest{EpicId: e.GetId()})
				require.NoError(t, err)
				require.Equal(t, []string{"run_0", "key:ada", "key:ben", "run_9"},
					[]string{e.GetMakerRootRunId(), e.GetMakerPrincipal(), e.GetPrincipal(), e.GetLabels()["created_by_root"]})
			})
		})
	}
}
