package access_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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
	t.Run("ReadsNeedNoMoreThanReadOrRun", func(t *testing.T) {
		t.Parallel()
		for _, m := range access.Methods() {
			service, name, _ := strings.Cut(m, "/")
			if strings.HasSuffix(service, ".KeyService") || strings.HasSuffix(service, ".AuditService") {
				continue // who else has a key, and what others did, is for administrators
			}
			if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") || strings.HasPrefix(name, "Watch") {
				require.Contains(t, access.Needed(m), access.Run, m)
				require.Contains(t, access.Needed(m), access.Read, m)
			}
		}
	})
	t.Run("WhatReadersDoIsOpenToRun", func(t *testing.T) {
		t.Parallel()
		for _, m := range access.Methods() {
			if slices.Contains(access.Needed(m), access.Read) {
				require.Contains(t, access.Needed(m), access.Run, m)
			}
		}
	})
}

// TestChanges compares what counts as a change with the names of methods.
func TestChanges(t *testing.T) {
	t.Parallel()
	reading := []string{"Get", "List", "Watch", "Search", "Export", "Explain", "Validate", "Compare", "Forecast", "Diff", "Discover", "Resolve", "Report", "Parse", "Compile", "PriceUsage", "Work"}
	short := map[string]string{}
	for _, m := range access.Methods() {
		t.Run(m, func(t *testing.T) {
			_, name, _ := strings.Cut(m, "/")
			reads := slices.ContainsFunc(reading, func(verb string) bool { return name == verb || verb != "Work" && strings.HasPrefix(name, verb) })
			services := slices.Contains(access.Needed(m), access.Service)
			require.Equal(t, !reads && !services, access.Changes("/"+m))
			if access.Changes(m) {
				require.Empty(t, short[name], "the audit log is filtered by the last part of a method")
				short[name] = m
			}
		})
	}
	t.Run("FullMethod", func(t *testing.T) {
		for in, want := range map[string]string{"CancelRun": "epigraph.executor.v1.ExecutorService/CancelRun", "GetRun": "GetRun", "": "",
			"/epigraph.executor.v1.ExecutorService/CancelRun": "epigraph.executor.v1.ExecutorService/CancelRun"} {
			require.Equal(t, want, access.FullMethod(in))
		}
	})
	t.Run("Unknown", func(t *testing.T) { require.False(t, access.Changes("/epigraph.executor.v1.NewService/Do")) })
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	o := access.Origin{Remote: "2001:db8::1", UserAgent: "a&b=c; ü"}
	require.Equal(t, o, access.DecodeOrigin(o.Encode()))
	for _, bad := range []string{"", "%zz", "other=1"} {
		require.Zero(t, access.DecodeOrigin(bad), bad)
	}
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
		{"Read/Reads", key(access.Read), executor + "GetRun", true},
		{"Read/Starts", key(access.Read), executor + "StartRun", false},
		{"Read/Answers", key(access.Read), executor + "AnswerInterrupt", false},
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

func TestRoles(t *testing.T) {
	t.Parallel()
	for role, want := range map[access.Role][]access.Scope{
		access.Viewer: {access.Read}, access.Operator: {access.Run}, access.Approver: {access.Approve},
		access.Administrator: {access.Read, access.Run, access.Approve, access.Admin}, "owner": nil,
	} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, role.Scopes())
			if want != nil {
				require.Equal(t, role, access.Principal{Kind: access.Key, Scopes: want}.Role())
			}
		})
	}
	t.Run("OtherScopesAreNoRole", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, access.Principal{Kind: access.Key, Scopes: []access.Scope{access.Run, access.Worker}}.Role())
	})
	t.Run("AKeyGrantsWhatItHas", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []access.Scope{access.Run, access.Approve}, access.Principal{Kind: access.Key, Scopes: []access.Scope{access.Approve, access.Run, access.Service}}.Grants())
		require.Equal(t, access.Scopes(), access.Principal{Kind: access.Open}.Grants())
	})
}

var update = flag.Bool("update", false, "write the table of docs/access.md")

// TestDocs compares the table of docs/access.md with that of the methods.
func TestDocs(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- table -->\n", "<!-- end of table -->"
	b, err := os.ReadFile("../../docs/access.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(b), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + docsTable() + end + after
	if *update {
		require.NoError(t, os.WriteFile("../../docs/access.md", []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(b), "run go test ./internal/access -run TestDocs -update")
}

// docsTable has a row for each method, with a cell for each role and one for the scope worker.
func docsTable() string {
	var out strings.Builder
	service := ""
	for _, m := range access.Methods() {
		name, method, _ := strings.Cut(m, "/")
		if name != service {
			service = name
			out.WriteString("\n| " + name[strings.LastIndexByte(name, '.')+1:])
			for _, r := range access.Roles() {
				out.WriteString(" | " + string(r))
			}
			out.WriteString(" | `worker` |\n|" + strings.Repeat("---|", len(access.Roles())+2) + "\n")
		}
		out.WriteString("| `" + method + "` |")
		for _, scopes := range append(perRole(), []access.Scope{access.Worker}) {
			if access.Authorize(access.Principal{Kind: access.Key, Scopes: scopes}, "/"+m) == nil {
				out.WriteString(" yes")
			}
			out.WriteString(" |")
		}
		out.WriteString("\n")
	}
	return out.String() + "\n"
}

func perRole() (out [][]access.Scope) {
	for _, r := range access.Roles() {
		out = append(out, r.Scopes())
	}
	return out
}

func TestPrincipal(t *testing.T) {
	t.Parallel()
	for _, p := range []access.Principal{
		{Kind: access.Open},
		{Kind: access.Key, Name: "Zoë & co=;,", Scopes: []access.Scope{access.Run, access.Approve}},
		{Kind: access.Key, Name: "ci", Expires: time.UnixMicro(1_800_000_000_000_001).UTC()},
		{Kind: access.User, Name: "corp/zoë@example.com", Scopes: []access.Scope{access.Read}},
	} {
		got, err := access.Decode(p.Encode())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, bad := range []string{"", "kind=service", "kind=", "kind=key%", "kind=key&expires=soon", access.Principal{Kind: access.Internal}.Encode(), access.Principal{}.Encode()} {
		_, err := access.Decode(bad)
		require.Error(t, err, bad)
	}
	got, err := access.Decode("kind=open&scope=service")
	require.NoError(t, err)
	require.Error(t, access.Authorize(got, "/epigraph.registry.v1.RegistryService/ClaimTask"), "nobody acts on behalf of a service")
}
