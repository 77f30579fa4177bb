package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
)

// limits measures commits of one row and of many.
type limits struct{ floor }

func (l *limits) Run(context.Context, *drive.Run) error      { return errNoLoads }
func (l *limits) Verify(context.Context, int64, int64) error { return nil }

func (l *limits) Measure(ctx context.Context, req drive.Request) (map[string]float64, error) {
	out := map[string]float64{}
	for _, c := range []struct{ clients, rows int }{{1, 1}, {8, 1}, {32, 1}, {1, 100}, {1, 1000}} {
		if c.clients > l.table.most()*2 {
			continue
		}
		prefix := fmt.Sprintf("limit_%d_%d_%d_", c.clients, c.rows, time.Now().UnixNano())
		n, d, err := repeat(ctx, c.clients, req.MaxWall/5, func(ctx context.Context, client, turn int) error {
			rows := make([]row, c.rows)
			for i := range rows {
				rows[i] = row{run: fmt.Sprintf("%s%d", prefix, client), seq: int64(turn*c.rows + i), node: i, at: time.Now(), data: load.Result(time.Now())}
			}
			return l.table.insert(ctx, rows)
		})
		if err != nil {
			return nil, err
		}
		if c.rows == 1 {
			out[fmt.Sprintf("commits/s, clients=%d", c.clients)] = float64(n) / d.Seconds()
		} else {
			out[fmt.Sprintf("rows/s in commits of %d", c.rows)] = float64(n*int64(c.rows)) / d.Seconds()
		}
	}
	return out, nil
}

// repeat calls f from several goroutines until wall is over. A turn is identified by its client and number.
func repeat(ctx context.Context, clients int, wall time.Duration, f func(ctx context.Context, client, turn int) error) (int64, time.Duration, error) {
	var wg sync.WaitGroup
	var n atomic.Int64
	faults := make([]error, clients)
	began := time.Now()
	for c := range clients {
		wg.Go(func() {
			for turn := 0; faults[c] == nil && time.Since(began) < wall; turn++ {
				faults[c] = f(ctx, c, turn)
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return n.Load(), time.Since(began), errors.Join(faults...)
}

// echo measures unary calls over a loopback connection, server and client in this process, without
// interceptors.
type echo struct {
	server *grpc.Server
	conn   *grpc.ClientConn
}

const echoMethod = "/bench.Echo/Echo"

func openEcho() (drive.Engine, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &echo{server: grpc.NewServer()}
	e.server.RegisterService(&grpc.ServiceDesc{ServiceName: "bench.Echo", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.BytesValue
			err := decode(&in)
			return &in, err
		},
	}}}, nil)
	go func() { _ = e.server.Serve(lis) }() // ends with Stop
	if e.conn, err = grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		e.server.Stop()
		return nil, err
	}
	return e, nil
}

func (e *echo) Run(context.Context, *drive.Run) error      { return errNoLoads }
func (e *echo) Verify(context.Context, int64, int64) error { return nil }

func (e *echo) Measure(ctx context.Context, req drive.Request) (map[string]float64, error) {
	out := map[string]float64{}
	in := wrapperspb.Bytes(load.Result(time.Now()))
	for _, clients := range []int{1, 64} {
		n, d, err := repeat(ctx, clients, req.MaxWall/2, func(ctx context.Context, _, _ int) error {
			return e.conn.Invoke(ctx, echoMethod, in, new(wrapperspb.BytesValue))
		})
		if err != nil {
			return nil, err
		}
		out[fmt.Sprintf("calls/s, in flight=%d", clients)] = float64(n) / d.Seconds()
	}
	return out, nil
}

func (e *echo) Close() error {
	err := e.conn.Close()
	e.server.Stop()
	return err
}
