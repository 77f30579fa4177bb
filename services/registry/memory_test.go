package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/learned"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// memoryWorld is a registry with keys: ada may run, root administers, eve administers another
// namespace, and the services have a token.
type memoryWorld struct {
	ada, root, eve, service registryv1.MemoryServiceClient
	epics                   registryv1.RegistryServiceClient
}

func TestMemory(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{ServiceToken: conf.NewSecret("of-services"), Keys: []grpckit.APIKey{
				{Name: "ada", Namespace: "acme", Secret: conf.NewSecret("secret-of-ada"), Scopes: []access.Scope{access.Run}},
				{Name: "root", Namespace: "acme", Secret: conf.NewSecret("secret-of-root"), Scopes: []access.Scope{access.Admin, access.Run}},
				{Name: "eve", Namespace: "other", Secret: conf.NewSecret("secret-of-eve"), Scopes: []access.Scope{access.Admin, access.Run}},
			}}, nil)
			w := &memoryWorld{
				eve: registryv1.NewMemoryServiceClient(dial("secret-of-eve")),
				ada: registryv1.NewMemoryServiceClient(dial("secret-of-ada")), root: registryv1.NewMemoryServiceClient(dial("secret-of-root")),
				service: registryv1.NewMemoryServiceClient(dial("of-services")), epics: registryv1.NewRegistryServiceClient(dial("secret-of-ada")),
			}
			for name, run := range map[string]func(*testing.T, context.Context, *memoryWorld){
				"Write/LargeEntriesComeBackWhole": memoryLarge, "Write/RepeatsAreOne": memoryRepeat, "Write/OriginIsThatOfTheCaller": memoryOrigin,
				"Requests/FaultsAreTold": memoryRefused, "Rights/ExportAndForgetAreOfAdmins": memoryRights,
				"Life/SearchListExportDeleteForget": memoryLife, "Export/TellsAllInOrder": memoryExport, "Learned/IsFoundAndListedByItsAgent": memoryLearned, "Learned/InTheOrderOfTheSteps": memoryLearnedInOrder, "Procedure/IsFoundByTheWordsOfTheGoal": memoryProcedure,
				"Vectors/AreMadeByServicesAndFindEntries": memoryVectors,
			} {
				t.Run(name, func(t *testing.T) { run(t, t.Context(), w) })
			}
		})
	}
}

func userScope(name string) *registryv1.MemoryScope {
	return &registryv1.MemoryScope{Level: registryv1.MemoryLevel_MEMORY_LEVEL_USER, Subject: name}
}

func (w *memoryWorld) write(t *testing.T, m *registryv1.Memory) *registryv1.Memory {
	t.Helper()
	out, err := w.ada.WriteMemory(t.Context(), &registryv1.WriteMemoryRequest{Memory: m})
	require.NoError(t, err)
	require.Empty(t, out.GetGaveWay())
	return out.GetMemory()
}

func memoryLarge(t *testing.T, ctx context.Context, w *memoryWorld) {
	m := w.write(t, &registryv1.Memory{
		Scope: userScope("large"), Key: strings.Repeat("k", 256), Text: large, Value: &graphv1.Payload{Json: []byte(`{"big":"` + large + `"}`)},
		Kind: registryv1.MemoryKind_MEMORY_KIND_PREFERENCE, Tags: []string{strings.Repeat("t", 128)}, Confidence: proto.Float64(0.25),
		ExpireTime: timestamppb.New(time.Now().Add(time.Hour)),
	})
	require.Equal(t, large, m.GetText())
	require.JSONEq(t, `{"big":"`+large+`"}`, string(m.GetValue().GetJson()))
	got, err := w.ada.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: m.GetId()})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(m, got, protocmp.Transform()))
	found, err := w.ada.SearchMemory(ctx, &registryv1.SearchMemoryRequest{Query: "kilobytes", Scopes: []*registryv1.MemoryScope{userScope("large")}})
	require.NoError(t, err)
	require.Len(t, found.GetMatches(), 1)
	require.Empty(t, cmp.Diff(m, found.GetMatches()[0].GetMemory(), protocmp.Transform()))
	require.Equal(t, []string{"kilobyte"}, found.GetMatches()[0].GetWords())
	list, err := w.ada.ListMemory(ctx, &registryv1.ListMemoryRequest{Scope: userScope("large")})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(m, list.GetMemories()[0], protocmp.Transform()))
	_, err = w.ada.DeleteMemory(ctx, &registryv1.DeleteMemoryRequest{MemoryId: m.GetId(), Etag: `"9"`})
	requireError(t, err, errs.Conflict, "ETAG_MISMATCH")
	_, err = w.ada.DeleteMemory(ctx, &registryv1.DeleteMemoryRequest{MemoryId: m.GetId(), Etag: m.GetEtag()})
	require.NoError(t, err)
}

func memoryRepeat(t *testing.T, ctx context.Context, w *memoryWorld) {
	req := &registryv1.WriteMemoryRequest{Memory: &registryv1.Memory{Scope: userScope("repeat"), Key: "k", Text: "one"}, RequestId: "once"}
	one, err := w.ada.WriteMemory(ctx, req)
	require.NoError(t, err)
	two, err := w.ada.WriteMemory(ctx, req)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(one, two, protocmp.Transform()))
	req.Memory.Text = "two"
	_, err = w.ada.WriteMemory(ctx, req)
	requireError(t, err, errs.InvalidArgument, "REQUEST_ID_REUSED")
}

func memoryOrigin(t *testing.T, ctx context.Context, w *memoryWorld) {
	in := &registryv1.Memory{Scope: userScope("origin"), Key: "k", Text: "x", Origin: registryv1.MemoryOrigin_MEMORY_ORIGIN_EPIC, Source: "ep_1", Principal: "key:forged"}
	m := w.write(t, in)
	require.Equal(t, registryv1.MemoryOrigin_MEMORY_ORIGIN_CLIENT, m.GetOrigin())
	require.Equal(t, "key:ada", m.GetPrincipal())
	in.Origin = registryv1.MemoryOrigin_MEMORY_ORIGIN_RUN
	out, err := w.service.WriteMemory(grpckit.WithNamespace(ctx, "acme"), &registryv1.WriteMemoryRequest{Memory: in})
	require.NoError(t, err)
	require.Equal(t, registryv1.MemoryOrigin_MEMORY_ORIGIN_RUN, out.GetMemory().GetOrigin())
}

func memoryRefused(t *testing.T, ctx context.Context, w *memoryWorld) {
	ok := &registryv1.Memory{Scope: userScope("x"), Text: "x"}
	for name, c := range map[string]struct {
		change func(*registryv1.Memory)
		reason string
	}{
		"scope": {func(m *registryv1.Memory) { m.Scope = nil }, "MEMORY_SCOPE_INVALID"},
		"text":  {func(m *registryv1.Memory) { m.Text = "" }, "MEMORY_INVALID"},
		"long":  {func(m *registryv1.Memory) { m.Text = strings.Repeat("x", 8193) }, ""},
		"json":  {func(m *registryv1.Memory) { m.Value = &graphv1.Payload{Json: []byte("{")} }, "MEMORY_INVALID"},
		"sure":  {func(m *registryv1.Memory) { m.Confidence = proto.Float64(2) }, ""},

		"procedure": {func(m *registryv1.Memory) { m.Key = "procedure:ep_1" }, "MEMORY_KEY_RESERVED"},
		"learned":   {func(m *registryv1.Memory) { m.Key = "learned:x" }, "MEMORY_KEY_RESERVED"},
	} {
		m := proto.CloneOf(ok)
		c.change(m)
		_, err := w.ada.WriteMemory(ctx, &registryv1.WriteMemoryRequest{Memory: m})
		require.True(t, errs.Is(err, errs.InvalidArgument), "%s: %v", name, err)
		if c.reason != "" {
			require.Equal(t, c.reason, errs.ReasonOf(err), name)
		}
	}
	for _, key := range []string{"procedure:ep_1", "learned:x"} {
		m := proto.CloneOf(ok)
		m.Key, m.Origin = key, registryv1.MemoryOrigin_MEMORY_ORIGIN_RUN
		_, err := w.service.WriteMemory(grpckit.WithNamespace(ctx, "acme"), &registryv1.WriteMemoryRequest{Memory: m})
		requireError(t, err, errs.InvalidArgument, "MEMORY_KEY_RESERVED")
		_, err = w.root.WriteMemory(ctx, &registryv1.WriteMemoryRequest{Memory: m})
		require.NoError(t, err, "who may export may restore")
	}
	for _, req := range []*registryv1.ForgetMemoryRequest{{}, {UserId: "a", Everything: true}, {Scope: userScope("a"), UserId: "a"}} {
		_, err := w.root.ForgetMemory(ctx, req)
		requireError(t, err, errs.InvalidArgument, "FORGET_WHAT")
	}
	_, err := w.ada.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: "mem_none"})
	requireError(t, err, errs.NotFound, "MEMORY_NOT_FOUND")
}

func memoryRights(t *testing.T, ctx context.Context, w *memoryWorld) {
	stream, err := w.ada.ExportMemory(ctx, &registryv1.ExportMemoryRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.True(t, errs.Is(grpckit.FromStatus(err), errs.PermissionDenied), "%v", err)
	_, err = w.ada.ForgetMemory(ctx, &registryv1.ForgetMemoryRequest{Everything: true})
	require.True(t, errs.Is(err, errs.PermissionDenied), "%v", err)
}

// exported are all entries of an export.
func exported(t *testing.T, c registryv1.MemoryServiceClient) (out []*registryv1.Memory) {
	t.Helper()
	stream, err := c.ExportMemory(t.Context(), &registryv1.ExportMemoryRequest{})
	require.NoError(t, err)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, m)
	}
}

func memoryLife(t *testing.T, ctx context.Context, w *memoryWorld) {
	for i := range 5 {
		w.write(t, &registryv1.Memory{Scope: userScope("life"), Key: fmt.Sprint(i), Text: "goal"})
	}
	list, err := w.ada.ListMemory(ctx, &registryv1.ListMemoryRequest{Scope: userScope("life"), PageSize: 2})
	require.NoError(t, err)
	_, err = w.ada.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: list.GetMemories()[0].GetId()})
	require.NoError(t, err)
	exported(t, w.root)
	audit, err := w.root.ListMemoryReads(ctx, &registryv1.ListMemoryReadsRequest{PageSize: 3})
	require.NoError(t, err)
	for i, want := range []*registryv1.MemoryRead{
		{Method: "ExportMemory", Principal: "key:root"},
		{Method: "GetMemory", Principal: "key:ada", Scopes: []string{"user/life"}, Told: 1, MemoryIds: []string{list.GetMemories()[0].GetId()}},
		{Method: "ListMemory", Principal: "key:ada", Scopes: []string{"user/life"}, Told: 2, MemoryIds: []string{list.GetMemories()[0].GetId(), list.GetMemories()[1].GetId()}},
	} {
		got := audit.GetReads()[i]
		want.Id, want.Time = got.GetId(), got.GetTime()
		if i == 0 {
			require.GreaterOrEqual(t, got.GetTold(), int32(5))
			want.Told, want.MemoryIds = got.GetTold(), got.GetMemoryIds()
		}
		require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	}
	none, err := w.ada.SearchMemory(ctx, &registryv1.SearchMemoryRequest{Query: "goal", Scopes: []*registryv1.MemoryScope{userScope("other")}, RunId: "run_1", NodeId: "n", UserId: "other"})
	require.NoError(t, err)
	require.Empty(t, none.GetMatches())
	reads, err := w.root.ListMemoryReads(ctx, &registryv1.ListMemoryReadsRequest{PageSize: 1})
	require.NoError(t, err)
	require.Equal(t, []any{"run_1", "n", "other", "key:ada", "goal", []string{"user/other"}}, []any{reads.GetReads()[0].GetRunId(), reads.GetReads()[0].GetNodeId(),
		reads.GetReads()[0].GetUserId(), reads.GetReads()[0].GetPrincipal(), reads.GetReads()[0].GetQuery(), reads.GetReads()[0].GetScopes()})
	var keys []string
	for _, m := range exported(t, w.root) {
		if m.GetScope().GetSubject() == "life" {
			keys = append(keys, m.GetKey())
		}
	}
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, keys)
	gone, err := w.root.ForgetMemory(ctx, &registryv1.ForgetMemoryRequest{UserId: "life"})
	require.NoError(t, err)
	require.EqualValues(t, 5, gone.GetForgotten())
}

// memoryExport exports more entries than are read at once, and none of another namespace.
func memoryExport(t *testing.T, ctx context.Context, w *memoryWorld) {
	var want, keys []string
	for i := range 405 {
		_, err := w.eve.WriteMemory(ctx, &registryv1.WriteMemoryRequest{Memory: &registryv1.Memory{Scope: userScope("eve"), Key: fmt.Sprint(i), Text: "x"}})
		require.NoError(t, err)
		want = append(want, fmt.Sprint(i))
	}
	for _, m := range exported(t, w.eve) {
		keys = append(keys, m.GetKey())
	}
	require.Equal(t, want, keys)
}

func memoryLearned(t *testing.T, ctx context.Context, w *memoryWorld) {
	for _, agent := range []string{"agent/x", "agent/y"} {
		_, err := w.service.WriteMemory(grpckit.WithNamespace(ctx, "acme"), &registryv1.WriteMemoryRequest{Memory: &registryv1.Memory{
			Scope: userScope("learns"), Key: learned.Key(agent, "drink"), Text: "likes tea", Origin: registryv1.MemoryOrigin_MEMORY_ORIGIN_AGENT, UserId: "learns"}})
		require.NoError(t, err)
	}
	found, err := w.ada.SearchMemory(ctx, &registryv1.SearchMemoryRequest{Query: "tea", Agent: "agent/x", Scopes: []*registryv1.MemoryScope{userScope("learns")}})
	require.NoError(t, err)
	require.Len(t, found.GetMatches(), 1)
	list, err := w.ada.ListMemory(ctx, &registryv1.ListMemoryRequest{Agent: "agent/x", UserId: "learns"})
	require.NoError(t, err)
	require.Len(t, list.GetMemories(), 1)
	require.Equal(t, "learned:agent/x:drink", list.GetMemories()[0].GetKey())
}

// memoryLearnedInOrder has what was learned in the last step stay, whichever comes first.
func memoryLearnedInOrder(t *testing.T, ctx context.Context, w *memoryWorld) {
	for i, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
		var last *registryv1.Memory
		for _, step := range order {
			value, err := json.Marshal(learned.Value{Agent: "agent/x", Name: "drink", Time: time.UnixMicro(int64(step))})
			require.NoError(t, err)
			r, err := w.service.WriteMemory(grpckit.WithNamespace(ctx, "acme"), &registryv1.WriteMemoryRequest{RequestId: fmt.Sprint("learned/", i, "/", step), Memory: &registryv1.Memory{
				Scope: userScope(fmt.Sprint("in order ", i)), Key: learned.Key("agent/x", "drink"), Text: fmt.Sprint("drink ", step), Value: &graphv1.Payload{Json: value},
				Origin: registryv1.MemoryOrigin_MEMORY_ORIGIN_AGENT}})
			require.NoError(t, err)
			last = r.GetMemory()
		}
		require.Equal(t, "drink 3", last.GetText(), "%v", order)
	}
}

func memoryProcedure(t *testing.T, ctx context.Context, w *memoryWorld) {
	e, err := w.epics.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "Join Moltbook", Tags: []string{"moltbook"}}})
	require.NoError(t, err)
	for _, state := range []registryv1.EpicState{registryv1.EpicState_EPIC_STATE_ACTIVE, registryv1.EpicState_EPIC_STATE_COMPLETED} {
		_, err = w.epics.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: e.GetId(), State: state, ResultSummary: "Done."})
		require.NoError(t, err)
	}
	found, err := w.ada.SearchMemory(ctx, &registryv1.SearchMemoryRequest{Query: "how to join Moltbook", Kinds: []registryv1.MemoryKind{registryv1.MemoryKind_MEMORY_KIND_PROCEDURE}})
	require.NoError(t, err)
	require.Len(t, found.GetMatches(), 1)
	require.Equal(t, "procedure:"+e.GetId(), found.GetMatches()[0].GetMemory().GetKey())
	require.Equal(t, registryv1.MemoryOrigin_MEMORY_ORIGIN_EPIC, found.GetMatches()[0].GetMemory().GetOrigin())
	events, err := w.epics.ListEvents(ctx, &registryv1.ListEventsRequest{Kinds: []string{"memory_written"}, PageSize: 100})
	require.NoError(t, err)
	last := events.GetEvents()[len(events.GetEvents())-1].GetMemoryWritten()
	require.Equal(t, []string{"procedure:" + e.GetId(), "procedure", "namespace"}, []string{last.GetKey(), last.GetFactType(), last.GetScope()})
}

func memoryVectors(t *testing.T, ctx context.Context, w *memoryWorld) {
	of := func(values ...float32) *registryv1.MemoryEmbedding {
		return &registryv1.MemoryEmbedding{Model: "vec", Values: values}
	}
	scope := userScope("vectors")
	write := &registryv1.WriteMemoryRequest{Memory: &registryv1.Memory{Scope: scope, Key: "tea", Text: "likes tea"}, Embedding: of(1, 0), RequestId: "vector"}
	one, err := w.ada.WriteMemory(ctx, write)
	require.NoError(t, err)
	write.Embedding = of(1, 0.001)
	two, err := w.ada.WriteMemory(ctx, write)
	require.NoError(t, err, "a repetition may have another vector")
	require.Empty(t, cmp.Diff(one, two, protocmp.Transform()))
	bare := w.write(t, &registryv1.Memory{Scope: scope, Key: "bike", Text: "rides a bike", Tags: []string{"sport"}})
	search := &registryv1.SearchMemoryRequest{Query: "beverage", Scopes: []*registryv1.MemoryScope{scope}, Embedding: of(2, 0)}
	found, err := w.ada.SearchMemory(ctx, search)
	require.NoError(t, err)
	require.Len(t, found.GetMatches(), 1)
	require.Equal(t, "tea", found.GetMatches()[0].GetMemory().GetKey())
	require.InDelta(t, 1, found.GetMatches()[0].GetSimilarity(), 1e-6)

	lease, embed := &registryv1.LeaseUnembeddedRequest{Model: "vec"}, &registryv1.EmbedMemoryRequest{MemoryId: bare.GetId(), Etag: bare.GetEtag(), Embedding: of(0, 1)}
	for _, c := range []registryv1.MemoryServiceClient{w.ada, w.root} {
		_, err = c.LeaseUnembedded(ctx, lease)
		require.True(t, errs.Is(err, errs.PermissionDenied), "%v", err)
		_, err = c.EmbedMemory(ctx, embed)
		require.True(t, errs.Is(err, errs.PermissionDenied), "%v", err)
	}
	var given *registryv1.UnembeddedMemory
	for given == nil { // entries of other cases are handed out, too, each once
		handed, err := w.service.LeaseUnembedded(ctx, lease)
		require.NoError(t, err)
		require.NotEmpty(t, handed.GetMemories())
		for _, m := range handed.GetMemories() {
			if m.GetMemoryId() == bare.GetId() {
				given = m
			}
		}
	}
	require.Empty(t, cmp.Diff(&registryv1.UnembeddedMemory{Namespace: "acme", MemoryId: bare.GetId(), Etag: bare.GetEtag(), Key: "bike", Text: "rides a bike", Tags: []string{"sport"}},
		given, protocmp.Transform()))
	_, err = w.service.EmbedMemory(grpckit.WithNamespace(ctx, "acme"), embed)
	require.NoError(t, err)
	search.Embedding = of(0.1, 1)
	found, err = w.ada.SearchMemory(ctx, search)
	require.NoError(t, err)
	require.Equal(t, "bike", found.GetMatches()[0].GetMemory().GetKey())
	_, err = w.service.EmbedMemory(grpckit.WithNamespace(ctx, "acme"), &registryv1.EmbedMemoryRequest{MemoryId: bare.GetId(), Etag: `"9"`, Embedding: of(1)})
	requireError(t, err, errs.Conflict, "ETAG_MISMATCH")
	fault := &registryv1.EmbeddingFault{Model: "vec", Message: "too long\x01: " + strings.Repeat("x", 490)}
	embed.Fault = fault
	_, err = w.service.EmbedMemory(grpckit.WithNamespace(ctx, "acme"), embed)
	requireError(t, err, errs.InvalidArgument, "MEMORY_INVALID")
	embed.Embedding = nil
	_, err = w.service.EmbedMemory(grpckit.WithNamespace(ctx, "acme"), embed)
	require.NoError(t, err)
	refused, err := w.ada.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: bare.GetId()})
	require.NoError(t, err)
	require.Contains(t, refused.GetVectorFault(), "is asked again: too long : x")
	embed.Fault = nil
	_, err = w.service.EmbedMemory(grpckit.WithNamespace(ctx, "acme"), embed)
	requireError(t, err, errs.InvalidArgument, "MEMORY_INVALID")
	search.Embedding = of(make([]float32, 4097)...)
	_, err = w.ada.SearchMemory(ctx, search)
	require.True(t, errs.Is(err, errs.InvalidArgument), "%v", err)
	search.Embedding = of(0)
	_, err = w.ada.SearchMemory(ctx, search)
	requireError(t, err, errs.InvalidArgument, "MEMORY_INVALID")
}
