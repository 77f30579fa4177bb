package access_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	_ "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// methods are all of the suite, by the descriptors.
func methods() []string {
	var out []string
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(f.Package()), "epigraph.") {
			for i := range f.Services().Len() {
				s := f.Services().Get(i)
				for j := range s.Methods().Len() {
					out = append(out, string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
				}
			}
		}
		return true
	})
	return out
}

func TestTable(t *testing.T) {
	t.Parallel()
	t.Run("EveryMethodHasAScopeAndNoOther", func(t *testing.T) {
		t.Parallel()
		require.ElementsMatch(t, methods(), access.Methods(), "a method is missing in internal/access/table.go, or is no more")
	})
	t.Run("ReadsNeedNoMoreThanRun", func(t *testing.T) {
		t.Parallel()
		for _, m := range access.Methods() {
			_, name, _ := strings.Cut(m, "/")
			if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Watch") {
				require.Contains(t, access.Needed(m), access.Run, m)
			}
		}
	})
}

// TestPrincipalBesideNames checks that every field in which a caller names itself has a principal beside it:
// in the same message, or in the message that embeds it.
func TestPrincipalBesideNames(t *testing.T) {
	t.Parallel()
	has := func(m protoreflect.MessageDescriptor, names ...protoreflect.Name) bool {
		return slices.ContainsFunc(names, func(n protoreflect.Name) bool { return m.Fields().ByName(n) != nil })
	}
	seen := map[protoreflect.FullName]bool{}
	var names []protoreflect.MessageDescriptor
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		m := mt.Descriptor()
		if !strings.HasPrefix(string(m.FullName()), "epigraph.") || strings.HasSuffix(string(m.Name()), "Request") {
			return true
		}
		if has(m, "by", "author") {
			names = append(names, m)
		}
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); has(m, "principal") && f.ContainingOneof() != nil && f.Message() != nil {
				seen[f.Message().FullName()] = true
			}
		}
		return true
	})
	require.NotEmpty(t, names)
	for _, m := range names {
		require.True(t, has(m, "principal") || seen[m.FullName()], "%s names somebody, and has no principal", m.FullName())
	}
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	key := func(scopes ...access.Scope) access.Principal {
		return access.Principal{Kind: access.Key, Name: "k", Scopes: scopes}
	}
	const (
		executor = "/epigraph.executor.v1.ExecutorService/"
		limits   = "/epigraph.executor.v1.LimitService/"
		workers  = "/epigraph.executor.v1.WorkerService/"
		registry = "/epigraph.registry.v1.RegistryService/"
	)
	all := key(access.Scopes()...)
	open, unguarded := access.Principal{Kind: access.Open}, access.Principal{Kind: access.Open, Scopes: []access.Scope{access.Service}}
	for _, tt := range []struct {
		name   string
		who    access.Principal
		method string
		want   bool
	}{
		{"Run/Starts", key(access.Run), executor + "StartRun", true},
		{"Run/Answers", key(access.Run), executor + "AnswerInterrupt", false},
		{"Run/Works", key(access.Run), workers + "Work", false},
		{"Run/Limits", key(access.Run), limits + "UpdateLimit", false},
		{"Run/Prices", key(access.Run), registry + "CreatePrice", false},
		{"Worker/Works", key(access.Worker), workers + "Work", true},
		{"Worker/Reads", key(access.Worker), executor + "GetRun", false},
		{"Approve/Answers", key(access.Approve), executor + "AnswerInterrupt", true},
		{"Approve/Starts", key(access.Approve), executor + "StartRun", false},
		{"Admin/Limits", key(access.Admin), limits + "UpdateLimit", true},
		{"Admin/Reads", key(access.Admin), executor + "GetRun", false},
		{"Several", key(access.Run, access.Approve), executor + "AnswerInterrupt", true},
		{"None/Reads", key(), executor + "GetRun", false},
		{"All/Claims", all, registry + "ClaimTask", false},
		{"All/Settles", all, registry + "SettleClaim", false},
		{"All/Peers", all, "/epigraph.executor.v1.PeerService/Invoke", false},
		{"All/UnknownMethod", all, "/epigraph.executor.v1.NewService/Do", false},
		{"All/MadeUpScope", key("service"), registry + "ClaimTask", false},
		{"Reflection", key(access.Worker), "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true},
		{"Nobody", access.Principal{}, executor + "GetRun", false},
		{"Open/Limits", open, limits + "UpdateLimit", true},
		{"Open/Claims", open, registry + "ClaimTask", false},
		{"Unguarded/Claims", unguarded, registry + "ClaimTask", true},
		{"Service/Claims", access.Principal{Kind: access.Internal}, registry + "ClaimTask", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := access.Authorize(tt.who, tt.method)
			if tt.want {
				require.NoError(t, err)
				return
			}
			require.Equal(t, access.ReasonScope, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.PermissionDenied))
			require.NotEmpty(t, errs.From(err).HintText())
		})
	}
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	for _, p := range []access.Principal{
		{Kind: access.Open},
		{Kind: access.Key, Name: "Zoë & co=;,", Scopes: []access.Scope{access.Run, access.Approve}},
	} {
		got, err := access.Decode(p.Encode())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, bad := range []string{"", "kind=service", "kind=", "kind=key%", access.Principal{Kind: access.Internal}.Encode(), access.Principal{}.Encode()} {
		_, err := access.Decode(bad)
		require.Error(t, err, bad)
	}
	got, err := access.Decode("kind=open&scope=service")
	require.NoError(t, err)
	require.Error(t, access.Authorize(got, "/epigraph.registry.v1.RegistryService/ClaimTask"), "nobody acts on behalf of a service")
}
