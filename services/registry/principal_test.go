package registry_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
)

// TestPrincipal writes by two keys, and reads back which of them it was.
func TestPrincipal(t *testing.T) {
	key := func(name string) grpckit.APIKey {
		return grpckit.APIKey{Name: name, Namespace: "acme", Secret: conf.NewSecret("secret-of-" + name), Scopes: access.Scopes()}
	}
	for name, config := range map[string]func(*testing.T) registry.Config{
		"SQLite": sqliteConfig,
		"Postgres": func(t *testing.T) registry.Config {
			cfg := registry.DefaultConfig()
			cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret(pgtest.New(t))
			return cfg
		},
	} {
		t.Run(name, func(t *testing.T) {
			as := serveKeys(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{key("ada"), key("ben")}})
			ada, ben, ctx := as("secret-of-ada"), as("secret-of-ben"), t.Context()
			forged := "key:root"
			e, err := ada.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal", Principal: forged}})
			require.NoError(t, err)
			require.Equal(t, "key:ada", e.GetPrincipal())
			task, err := ada.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: e.GetId(), Title: "work", Principal: forged}})
			require.NoError(t, err)
			require.Equal(t, "key:ada", task.GetPrincipal())
			task, err = ben.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: task.GetId(), Title: "other work"}})
			require.NoError(t, err)
			require.Equal(t, "key:ben", task.GetPrincipal())
			e, err = ben.UpdateEpic(ctx, &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: e.GetId(), Title: "other goal"}})
			require.NoError(t, err)
			require.Equal(t, "key:ben", e.GetPrincipal())
			_, err = ada.TransitionTask(ctx, &registryv1.TransitionTaskRequest{TaskId: task.GetId(), State: registryv1.TaskState_TASK_STATE_CANCELLED})
			require.NoError(t, err)
			task, err = ben.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: task.GetId()})
			require.NoError(t, err)
			require.Equal(t, "key:ada", task.GetPrincipal(), "who canceled it")
			_, err = ada.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: e.GetId(), State: registryv1.EpicState_EPIC_STATE_CANCELLED})
			require.NoError(t, err)
			e, err = ben.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: e.GetId()})
			require.NoError(t, err)
			require.Equal(t, "key:ada", e.GetPrincipal(), "who canceled it")
			_, err = ben.CreatePrice(ctx, &registryv1.CreatePriceRequest{Price: &registryv1.Price{Provider: "p", Model: "m", ValidFrom: timestamppb.Now(), Principal: forged}})
			require.NoError(t, err)
			prices, err := ada.ListPrices(ctx, &registryv1.ListPricesRequest{Provider: "p"})
			require.NoError(t, err)
			require.Equal(t, "key:ben", prices.GetPrices()[0].GetPrincipal())
		})
	}
}
