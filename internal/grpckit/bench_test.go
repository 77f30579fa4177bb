package grpckit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

type starter struct {
	executorv1.UnimplementedExecutorServiceServer
}

func (starter) StartRun(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: "run_1"}, nil
}

// BenchmarkStartRun is a call with credentials and a graph of twenty nodes through the whole chain: with the
// same graph each time, with a new one, and with the same one on a server that shares no graphs.
func BenchmarkStartRun(b *testing.B) {
	for _, c := range []struct {
		name          string
		fresh, intern bool
	}{{"SameGraph", false, true}, {"NewGraph", true, true}, {"SameGraphWithoutIntern", false, false}} {
		b.Run(c.name, func(b *testing.B) {
			net := &grpckit.BufNet{}
			key := conf.NewSecret("key-a")
			s, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{Keys: []grpckit.APIKey{{Name: "a", Namespace: "a", Secret: key}}}})
			require.NoError(b, err)
			executorv1.RegisterExecutorServiceServer(s, starter{})
			if c.intern {
				s.Intern((*executorv1.StartRunRequest)(nil), "graph")
			}
			lis, err := net.Listen("x")
			require.NoError(b, err)
			go func() { _ = s.Serve(lis) }()
			defer s.Stop()
			conn, err := grpckit.Dial("x", grpckit.DialOptions{Token: key, Buf: net})
			require.NoError(b, err)
			defer func() { _ = conn.Close() }()
			client := executorv1.NewExecutorServiceClient(conn)
			g := &graphv1.Graph{Name: "g"}
			for i := range 20 {
				g.Nodes = append(g.Nodes, &graphv1.Node{Id: fmt.Sprint("n", i), Actor: "llm", Named: map[string]*graphv1.Payload{"prompt": {Json: []byte(`"say something about this"`)}}})
				if i > 0 {
					g.Edges = append(g.Edges, &graphv1.Edge{From: fmt.Sprint("n", i-1), To: fmt.Sprint("n", i)})
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if c.fresh {
					g.Name = fmt.Sprint("g", i)
				}
				if _, err := client.StartRun(b.Context(), &executorv1.StartRunRequest{Graph: g, Labels: map[string]string{"a": "b"}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
