package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var oneValue = []json.RawMessage{json.RawMessage("1")}

var noop = ActorFunc(func(context.Context, *Call) (Outcome, error) { return Outcome{Values: oneValue}, nil })

// chainGraph and fanGraph have n nodes each.
func chainGraph(n int) *Graph {
	g := &Graph{Nodes: make([]Node, n)}
	for i := range n {
		g.Nodes[i] = Node{ID: fmt.Sprintf("n%d", i), Actor: "noop"}
		if i > 0 {
			g.Edges = append(g.Edges, Edge{From: g.Nodes[i-1].ID, To: g.Nodes[i].ID})
		}
	}
	return g
}

func fanGraph(n int) *Graph {
	g := &Graph{Nodes: make([]Node, n)}
	for i := range n {
		g.Nodes[i] = Node{ID: fmt.Sprintf("n%d", i), Actor: "noop"}
		if i > 0 && i < n-1 {
			g.Edges = append(g.Edges, Edge{From: "n0", To: g.Nodes[i].ID}, Edge{From: g.Nodes[i].ID, To: fmt.Sprintf("n%d", n-1)})
		}
	}
	return g
}

// layeredGraph has layers of ten nodes, each joined to three of the layer before.
func layeredGraph(n int) *Graph {
	g := &Graph{Nodes: make([]Node, n)}
	for i := range n {
		g.Nodes[i] = Node{ID: fmt.Sprintf("n%d", i), Actor: "noop"}
		if l := i / 10; l > 0 {
			for k := range 3 {
				g.Edges = append(g.Edges, Edge{From: fmt.Sprintf("n%d", (l-1)*10+(i+k)%10), To: g.Nodes[i].ID})
			}
		}
	}
	return g
}

// drive runs a program on the bare machine, one attempt after the other.
func drive(tb testing.TB, p *Program) int {
	s := New(p, "run")
	now := time.Unix(0, 0)
	_, fx, err := s.Advance(Begin{Now: now})
	require.NoError(tb, err)
	queue := fx.Starts
	out := &Outcome{Values: oneValue}
	visits := 0
	for i := 0; i < len(queue); i++ {
		_, fx, err := s.Advance(Ended{Ref: queue[i].Ref, Attempt: 1, Outcome: out, Now: now})
		if err != nil {
			tb.Fatal(err)
		}
		queue = append(queue, fx.Starts...)
		visits++
	}
	require.Equal(tb, StatusCompleted, s.End().Status)
	return visits
}

func BenchmarkMachine(b *testing.B) {
	for _, shape := range []struct {
		name string
		make func(int) *Graph
	}{{"chain", chainGraph}, {"fan", fanGraph}, {"layered", layeredGraph}} {
		for _, n := range []int{100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				p, err := Compile(b.Context(), shape.make(n), Actors{"noop": noop})
				require.NoError(b, err)
				b.ReportAllocs()
				visits := 0
				for b.Loop() {
					visits += drive(b, p)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(visits), "ns/node")
			})
		}
	}
}

func BenchmarkMapItems(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := &Graph{Nodes: []Node{{ID: "m", Actor: "noop", Map: &Map{Over: "args[0]"}}}}
			p, err := Compile(b.Context(), g, Actors{"noop": noop})
			require.NoError(b, err)
			list := make([]int, n)
			raw, err := json.Marshal(list)
			require.NoError(b, err)
			items := 0
			for b.Loop() {
				s := New(p, "run")
				_, fx, err := s.Advance(Begin{Input: Input{Args: []json.RawMessage{raw}}})
				require.NoError(b, err)
				queue := fx.Starts
				for i := 0; i < len(queue); i++ {
					_, fx, _ := s.Advance(Ended{Ref: queue[i].Ref, Attempt: 1, Outcome: &Outcome{Values: oneValue}})
					queue = append(queue, fx.Starts...)
					items++
				}
				require.NotNil(b, s.End())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(items), "ns/item")
		})
	}
}

// cpuTime is the processor time of this process. Other work on the machine does not change it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRun reports nodes per second of the in-memory runner over many runs of ten nodes.
func BenchmarkRun(b *testing.B) {
	for _, shape := range []struct {
		name string
		make func(int) *Graph
	}{{"chain", chainGraph}, {"fan", fanGraph}} {
		for _, par := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/parallel=%v", shape.name, par), func(b *testing.B) {
				actors := Actors{"noop": noop}
				p, err := Compile(b.Context(), shape.make(10), actors)
				require.NoError(b, err)
				b.ReportAllocs()
				before := cpuTime()
				run := func() {
					res, err := p.Run(context.Background(), actors, Input{})
					if err != nil || res.Status != StatusCompleted {
						b.Error(err, res.Status)
					}
				}
				if par {
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							run()
						}
					})
				} else {
					for b.Loop() {
						run()
					}
				}
				b.ReportMetric(10*float64(b.N)/b.Elapsed().Seconds(), "nodes/s")
				b.ReportMetric(10*float64(b.N)/(cpuTime()-before).Seconds(), "nodes/cpu-s")
			})
		}
	}
}
