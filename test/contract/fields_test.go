package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// unread are the fields of requests that no code of their service reads, each with the reason why that is
// right: a client that sets one is not misled.
var unread = map[string]string{
	"epigraph.registry.v1.Order.reason":      "who acknowledges an order passes back what was leased, of which the names alone count",
	"epigraph.registry.v1.Order.create_time": "as reason",
	"epigraph.registry.v1.Order.confirmed":   "as reason",
	"epigraph.registry.v1.Order.kind":        "as reason",
}

// reads is what the code of some packages reads of generated messages.
type reads struct {
	// fields are by the name of the generated type and of the field, as in executorv1.StartRunRequest.Graph.
	fields map[string]bool
	// any are getters that are called on an interface, for every message behind it.
	any map[string]bool
	// cases are the types in the cases of a type switch.
	cases map[string]bool
}

func readsOf(packages map[string]source) reads {
	r := reads{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, p := range packages {
		written := map[ast.Node]bool{}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok {
					for _, l := range a.Lhs {
						written[l] = true
					}
				}
				if c, ok := n.(*ast.CaseClause); ok { // of a switch on the types of a oneof
					for _, x := range c.List {
						if ptr, ok := p.info.TypeOf(x).(*types.Pointer); ok {
							r.cases[types.TypeString(ptr.Elem(), nil)] = true
						}
					}
				}
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || written[sel] || p.info.Selections[sel] == nil {
					return true
				}
				of := p.info.Selections[sel].Recv()
				if ptr, ok := of.(*types.Pointer); ok {
					of = ptr.Elem()
				}
				name := strings.TrimPrefix(sel.Sel.Name, "Get")
				if named, ok := of.(*types.Named); ok && !types.IsInterface(of) && named.Obj().Pkg() != nil {
					r.fields[named.Obj().Pkg().Path()+"."+named.Obj().Name()+"."+name] = true
				} else if name != sel.Sel.Name {
					r.any[name] = true
				}
				return true
			})
		}
	}
	return r
}

// TestEveryFieldOfARequestIsRead checks that a service reads every field of every request that it serves. A
// field that nothing reads would be accepted and ignored, and its caller would never know. The graph of a run
// has a test of its own, which sets each field.
func TestEveryFieldOfARequestIsRead(t *testing.T) {
	t.Parallel()
	found, outputOnly := map[string]bool{}, onlyShown(t, "executor", "registry")
	for service, api := range map[string]protoreflect.FileDescriptor{
		"executor": executorv1.File_epigraph_executor_v1_executor_proto, "planner": plannerv1.File_epigraph_planner_v1_planner_proto,
		"registry": registryv1.File_epigraph_registry_v1_registry_proto,
	} {
		t.Run(service, func(t *testing.T) {
			read := readsOf(load(t, "services/"+service+"/...", "internal/..."))
			files := []protoreflect.FileDescriptor{api}
			if service == "executor" {
				files = append(files, executorv1.File_epigraph_executor_v1_schedule_proto, executorv1.File_epigraph_executor_v1_limit_proto,
					// requests among executors come from no client
					executorv1.File_epigraph_executor_v1_worker_proto)
			}
			seen := map[protoreflect.FullName]bool{}
			var walk func(m protoreflect.MessageDescriptor)
			walk = func(m protoreflect.MessageDescriptor) {
				if seen[m.FullName()] || !strings.HasPrefix(string(m.FullName()), "epigraph."+service+".") {
					return
				}
				seen[m.FullName()] = true
				for i := range m.Fields().Len() {
					f := m.Fields().Get(i)
					name := string(f.FullName())
					if _, ok := unread[name]; ok {
						found[name] = true
						require.False(t, read.has(f), "%s is read after all", name)
						continue
					}
					if outputOnly[typeOf(f.ContainingMessage())+"."+goName(f)] {
						continue
					}
					if !read.has(f) {
						t.Errorf("%s is accepted and read by nobody", name)
					}
					inner := f.Message()
					if f.IsMap() {
						inner = f.MapValue().Message()
					}
					if inner != nil {
						walk(inner)
					}
				}
			}
			methods := 0
			for _, file := range files {
				for i := range file.Services().Len() {
					s := file.Services().Get(i)
					for k := range s.Methods().Len() {
						methods++
						walk(s.Methods().Get(k).Input())
					}
				}
			}
			require.Positive(t, methods)
		})
	}
	for name := range unread {
		require.True(t, found[name], "%s is no field of a request", name)
	}
}

// has reports whether the field of a message is read.
func (r reads) has(f protoreflect.FieldDescriptor) bool {
	of, name := typeOf(f.ContainingMessage()), goName(f)
	if f.ContainingOneof() != nil && !f.HasOptionalKeyword() && (r.cases[of+"_"+name] || r.fields[of+"_"+name+"."+name]) {
		return true
	}
	return r.any[name] || r.fields[of+"."+name]
}

// typeOf names the message's generated type, with its package.
func typeOf(m protoreflect.MessageDescriptor) string {
	if outer, ok := m.Parent().(protoreflect.MessageDescriptor); ok {
		return typeOf(outer) + "_" + string(m.Name())
	}
	return module + "proto/gen/go/" + strings.ReplaceAll(string(m.ParentFile().Package()), ".", "/") + "." + string(m.Name())
}

// goName is the name of the field in the generated type.
func goName(f protoreflect.FieldDescriptor) string {
	var name strings.Builder
	for word := range strings.SplitSeq(string(f.Name()), "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// onlyShown are the fields that the proto documents as output only, by type and name: values of callers are
// ignored there, as documented.
func onlyShown(t *testing.T, services ...string) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	for _, s := range services {
		path := "proto/gen/go/epigraph/" + s + "/v1"
		files, err := filepath.Glob(filepath.Join("..", "..", path, "*.pb.go"))
		require.NoError(t, err)
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				ts, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if st, ok := ts.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						if text := strings.Join(strings.Fields(field.Doc.Text()), " "); strings.Contains(text, "Output only.") {
							got[module+path+"."+ts.Name.Name+"."+field.Names[0].Name] = true
						}
					}
				}
				return false
			})
		}
		require.NotEmpty(t, got)
	}
	return got
}
