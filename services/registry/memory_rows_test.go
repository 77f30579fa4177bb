package registry_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// memoryRows has a world in which two keys may do everything, and the log of its server.
type memoryRows struct {
	ada, ben, service registryv1.MemoryServiceClient
	log               testkit.LogBuffer
}

func onRows(t *testing.T, run func(t *testing.T, w *memoryRows)) {
	t.Helper()
	key := func(name string) grpckit.APIKey {
		return grpckit.APIKey{Name: name, Namespace: "acme", Secret: conf.NewSecret("secret-of-" + name), Scopes: access.Scopes()}
	}
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &memoryRows{}
			tel := obs.Noop()
			tel.Logger = slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{key("ada"), key("ben")}}, tel)
			w.ada, w.ben = registryv1.NewMemoryServiceClient(dial("secret-of-ada")), registryv1.NewMemoryServiceClient(dial("secret-of-ben"))
			w.service = registryv1.NewMemoryServiceClient(dial("of-services"))
			run(t, w)
		})
	}
}

// largest is an entry whose texts and vector are as large as they may be, or nearly so.
func largest(key string) *registryv1.WriteMemoryRequest {
	vector := make([]float32, 4096)
	for i := range vector {
		vector[i] = float32(i + 1)
	}
	text := strings.Repeat(large, 2)
	return &registryv1.WriteMemoryRequest{
		Memory: &registryv1.Memory{
			Scope: userScope(strings.Repeat("u", 1024)), Key: key + strings.Repeat("k", 200), Text: text,
			Value: &graphv1.Payload{Json: []byte(`{"big":"` + text + text + `"}`)}, Tags: []string{strings.Repeat("t", 128)}, UserId: strings.Repeat("v", 1024),
		},
		Embedding: &registryv1.MemoryEmbedding{Model: strings.Repeat("m", 128), Values: vector},
	}
}

// TestMemoryLargeValues calls every RPC of the memory with large values. An RPC without a case fails it.
func TestMemoryLargeValues(t *testing.T) {
	t.Parallel()
	written := func(t *testing.T, w *memoryRows) *registryv1.Memory {
		t.Helper()
		req := largest(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:])
		out, err := w.ada.WriteMemory(t.Context(), req)
		require.NoError(t, err)
		whole(t, req.GetMemory(), out.GetMemory())
		return out.GetMemory()
	}
	// in finds the entry among others.
	in := func(t *testing.T, m *registryv1.Memory, list []*registryv1.Memory) {
		t.Helper()
		i := slices.IndexFunc(list, func(o *registryv1.Memory) bool { return o.GetId() == m.GetId() })
		require.GreaterOrEqual(t, i, 0)
		require.Empty(t, cmp.Diff(m, list[i], protocmp.Transform()))
	}
	cases := map[string]func(*testing.T, *memoryRows){
		"WriteMemory": func(t *testing.T, w *memoryRows) { written(t, w) },
		"SearchMemory": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			found, err := w.ada.SearchMemory(t.Context(), &registryv1.SearchMemoryRequest{
				Query: strings.Repeat("kilobytes ", 400), Scopes: []*registryv1.MemoryScope{m.GetScope()}, Tags: m.GetTags(), Embedding: largest("").GetEmbedding(),
			})
			require.NoError(t, err)
			var list []*registryv1.Memory
			for _, match := range found.GetMatches() {
				require.InDelta(t, 1, match.GetSimilarity(), 1e-3)
				list = append(list, match.GetMemory())
			}
			in(t, m, list)
		},
		"GetMemory": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			got, err := w.ada.GetMemory(t.Context(), &registryv1.GetMemoryRequest{MemoryId: m.GetId()})
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(m, got, protocmp.Transform()))
		},
		"ListMemory": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			got, err := w.ada.ListMemory(t.Context(), &registryv1.ListMemoryRequest{Scope: m.GetScope(), UserId: m.GetUserId(), PageSize: 1000})
			require.NoError(t, err)
			in(t, m, got.GetMemories())
		},
		"ExportMemory": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			in(t, m, exported(t, w.ada))
		},
		"DeleteMemory": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			_, err := w.ada.DeleteMemory(t.Context(), &registryv1.DeleteMemoryRequest{MemoryId: m.GetId(), Etag: m.GetEtag()})
			require.NoError(t, err)
		},
		"ForgetMemory": func(t *testing.T, w *memoryRows) {
			got, err := w.ada.ForgetMemory(t.Context(), &registryv1.ForgetMemoryRequest{UserId: written(t, w).GetUserId()})
			require.NoError(t, err)
			require.Positive(t, got.GetForgotten())
		},
		"ListMemoryReads": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			_, err := w.ada.SearchMemory(t.Context(), &registryv1.SearchMemoryRequest{Query: large, Scopes: []*registryv1.MemoryScope{m.GetScope()}})
			require.NoError(t, err)
			got, err := w.ada.ListMemoryReads(t.Context(), &registryv1.ListMemoryReadsRequest{PageSize: 1})
			require.NoError(t, err)
			require.Equal(t, []string{"user/" + m.GetScope().GetSubject()}, got.GetReads()[0].GetScopes())
			require.True(t, strings.HasPrefix(got.GetReads()[0].GetQuery(), large[:400]), "what is long is cut")
		},
		"LeaseUnembedded": func(t *testing.T, w *memoryRows) {
			req := largest(t.Name()[strings.LastIndexByte(t.Name(), '/')+1:])
			req.Embedding = nil // one of the client's own stays
			req.Memory.Scope = userScope("unembedded")
			kept, err := w.ada.WriteMemory(t.Context(), req)
			require.NoError(t, err)
			m := kept.GetMemory()
			got, err := w.service.LeaseUnembedded(t.Context(), &registryv1.LeaseUnembeddedRequest{Model: "another"})
			require.NoError(t, err)
			i := slices.IndexFunc(got.GetMemories(), func(o *registryv1.UnembeddedMemory) bool { return o.GetMemoryId() == m.GetId() })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, []string{m.GetText(), string(m.GetValue().GetJson())}, []string{got.GetMemories()[i].GetText(), string(got.GetMemories()[i].GetValue())})
		},
		"EmbedMemory": func(t *testing.T, w *memoryRows) {
			m := written(t, w)
			_, err := w.service.EmbedMemory(grpckit.WithNamespace(t.Context(), "acme"), &registryv1.EmbedMemoryRequest{MemoryId: m.GetId(), Etag: m.GetEtag(), Embedding: largest("").GetEmbedding()})
			require.NoError(t, err)
		},
	}
	t.Run("Cases/EveryRPCHasOne", func(t *testing.T) {
		t.Parallel()
		var have []string
		for _, m := range registryv1.MemoryService_ServiceDesc.Methods {
			have = append(have, m.MethodName)
		}
		for _, m := range registryv1.MemoryService_ServiceDesc.Streams {
			have = append(have, m.StreamName)
		}
		slices.Sort(have)
		require.Equal(t, have, slices.Sorted(maps.Keys(cases)), "each RPC has a case here")
	})
	onRows(t, func(t *testing.T, w *memoryRows) {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			t.Run(name, func(t *testing.T) { cases[name](t, w) })
		}
	})
}

func whole(t *testing.T, want, got *registryv1.Memory) {
	t.Helper()
	require.Equal(t, []any{want.GetText(), want.GetKey(), want.GetTags(), want.GetUserId(), want.GetScope().GetSubject()},
		[]any{got.GetText(), got.GetKey(), got.GetTags(), got.GetUserId(), got.GetScope().GetSubject()})
	require.JSONEq(t, string(want.GetValue().GetJson()), string(got.GetValue().GetJson()))
}

// TestMemoryRepeats sends every request of the memory that has a request id again, as TestRepeats does. An
// entry that was removed since is not made again.
func TestMemoryRepeats(t *testing.T) {
	t.Parallel()
	var have []string
	methods := registryv1.File_epigraph_registry_v1_memory_proto.Services().ByName("MemoryService").Methods()
	for i := range methods.Len() {
		if methods.Get(i).Input().Fields().ByName("request_id") != nil {
			have = append(have, string(methods.Get(i).Name()))
		}
	}
	require.Equal(t, []string{"WriteMemory"}, have, "say here how it is sent twice")
	onRows(t, func(t *testing.T, w *memoryRows) {
		req := &registryv1.WriteMemoryRequest{Memory: &registryv1.Memory{Scope: userScope("ada"), Key: "k", Text: "one"}, RequestId: "req"}
		other := proto.CloneOf(req)
		other.Memory.Text = "two"
		first, err := w.ada.WriteMemory(t.Context(), req)
		require.NoError(t, err)
		again, err := w.ada.WriteMemory(t.Context(), req)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(first, again, protocmp.Transform()))
		_, err = w.ada.WriteMemory(t.Context(), other)
		requireError(t, err, errs.InvalidArgument, "REQUEST_ID_REUSED")
		_, err = w.ada.DeleteMemory(t.Context(), &registryv1.DeleteMemoryRequest{MemoryId: first.GetMemory().GetId()})
		require.NoError(t, err)
		_, err = w.ada.WriteMemory(t.Context(), req)
		requireError(t, err, errs.NotFound, "MEMORY_NOT_FOUND")
		_, err = w.ada.WriteMemory(t.Context(), other)
		requireError(t, err, errs.InvalidArgument, "REQUEST_ID_REUSED")
	})
}

// TestMemoryPrincipal writes by one key what another has made, by every method of the memory that writes,
// and reads back which of them it was.
func TestMemoryPrincipal(t *testing.T) {
	t.Parallel()
	onRows(t, func(t *testing.T, w *memoryRows) {
		ctx := t.Context()
		const forged = "key:root"
		entry := func(t *testing.T, c registryv1.MemoryServiceClient) *registryv1.Memory {
			out, err := c.WriteMemory(ctx, &registryv1.WriteMemoryRequest{Memory: &registryv1.Memory{Scope: userScope("x"), Key: "k", Text: "x", Principal: forged}})
			require.NoError(t, err)
			return out.GetMemory()
		}
		// read is who read last, as the records have it.
		read := func(t *testing.T, err error) string {
			require.NoError(t, err)
			list, err := w.ada.ListMemoryReads(ctx, &registryv1.ListMemoryReadsRequest{PageSize: 1})
			require.NoError(t, err)
			return list.GetReads()[0].GetPrincipal()
		}
		const service = "epigraph.registry.v1.MemoryService/"
		// nil stands for methods that only services may call, and for those that leave no trace by design.
		table := map[string]func(t *testing.T) string{
			"LeaseUnembedded": nil, "EmbedMemory": nil, "ListMemoryReads": nil,
			"ForgetMemory": func(t *testing.T) string {
				_, err := w.ben.ForgetMemory(ctx, &registryv1.ForgetMemoryRequest{UserId: "x"})
				return read(t, err)
			},
			"WriteMemory": func(t *testing.T) string {
				require.Equal(t, "key:ada", entry(t, w.ada).GetPrincipal())
				got, err := w.ada.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: entry(t, w.ben).GetId()})
				require.NoError(t, err)
				return got.GetPrincipal()
			},
			"DeleteMemory": func(t *testing.T) string {
				id := entry(t, w.ada).GetId()
				_, err := w.ben.DeleteMemory(ctx, &registryv1.DeleteMemoryRequest{MemoryId: id})
				require.NoError(t, err)
				for _, d := range w.log.Deletions(t, "deleted") {
					if d.Kind == "memory" && d.ID == id {
						return d.Principal
					}
				}
				return ""
			},
			"SearchMemory": func(t *testing.T) string {
				_, err := w.ben.SearchMemory(ctx, &registryv1.SearchMemoryRequest{Query: "x"})
				return read(t, err)
			},
			"GetMemory": func(t *testing.T) string {
				_, err := w.ben.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: entry(t, w.ada).GetId()})
				return read(t, err)
			},
			"ListMemory": func(t *testing.T) string {
				_, err := w.ben.ListMemory(ctx, &registryv1.ListMemoryRequest{})
				return read(t, err)
			},
			"ExportMemory": func(t *testing.T) string {
				exported(t, w.ben)
				return read(t, nil)
			},
		}
		for _, method := range access.Methods() {
			name, ours := strings.CutPrefix(method, service)
			if !ours {
				continue
			}
			does, known := table[name]
			require.True(t, known, "say how it is told who called %s", name)
			if does != nil {
				require.Equal(t, "key:ben", does(t), name)
			}
		}
	})
}
