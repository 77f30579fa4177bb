package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// DefaultAddr is where `epigraph dev` serves gRPC.
const DefaultAddr = "127.0.0.1:7400"

// ClientEnv are the variables that client commands read; they are not settings of servers.
var ClientEnv = []string{
	"EPIGRAPH_ADDR", "EPIGRAPH_PLANNER_ADDR", "EPIGRAPH_EXECUTOR_ADDR", "EPIGRAPH_REGISTRY_ADDR", "EPIGRAPH_API_KEY", "EPIGRAPH_NAMESPACE", "EPIGRAPH_TLS",
	"EPIGRAPH_CA_FILE",
	"EPIGRAPH_WEBHOOK_SECRET",
}

// client says how the services are reached.
type client struct {
	Addr         string        `help:"Address of the gRPC API; default ${default_addr}." default:"${default_addr}" env:"EPIGRAPH_ADDR" placeholder:"HOST:PORT"`
	PlannerAddr  string        `help:"Address of the planner, if it is not behind the gateway." env:"EPIGRAPH_PLANNER_ADDR" placeholder:"HOST:PORT" hidden:""`
	ExecutorAddr string        `help:"Address of the executor, if it is not behind the gateway." env:"EPIGRAPH_EXECUTOR_ADDR" placeholder:"HOST:PORT" hidden:""`
	RegistryAddr string        `help:"Address of the registry, if it is not behind the gateway." env:"EPIGRAPH_REGISTRY_ADDR" placeholder:"HOST:PORT" hidden:""`
	APIKey       string        `help:"API key." name:"api-key" env:"EPIGRAPH_API_KEY" placeholder:"KEY"`
	Namespace    string        `help:"Namespace, if the API key does not name it." env:"EPIGRAPH_NAMESPACE" short:"n"`
	TLS          bool          `help:"Connect with TLS." name:"tls" env:"EPIGRAPH_TLS"`
	CAFile       string        `help:"PEM certificate of the authority of the server, in place of those of this machine; implies --tls." name:"ca-file" env:"EPIGRAPH_CA_FILE" placeholder:"FILE"`
	Timeout      time.Duration `help:"Time limit of one request." default:"30s"`
}

func (c client) dial(addr string) (*grpc.ClientConn, error) {
	flag := "--addr"
	switch {
	case addr == "": // the service has no address of its own
		addr = c.Addr
	case addr == c.PlannerAddr:
		flag = "--planner-addr"
	case addr == c.ExecutorAddr:
		flag = "--executor-addr"
	case addr == c.RegistryAddr:
		flag = "--registry-addr"
	}
	if err := target(flag, addr); err != nil {
		return nil, err
	}
	o := grpckit.DialOptions{Token: conf.NewSecret(c.APIKey), Namespace: c.Namespace}
	if c.secure() {
		cfg, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		o.TLS = cfg
	}
	conn, err := grpckit.Dial(addr, o)
	if errs.Is(err, errs.InvalidArgument) {
		return nil, usage(err)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return conn, nil
}

// addresses are where the services are looked for, for messages.
func (c client) addresses() (out []string) {
	for _, a := range []string{c.PlannerAddr, c.ExecutorAddr, c.RegistryAddr} {
		if a == "" {
			a = c.Addr
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// services are clients of the three services, each on a connection that opens when it is first used.
type services struct {
	planner  plannerv1.PlannerServiceClient
	executor executorv1.ExecutorServiceClient
	registry registryv1.RegistryServiceClient
	// The registry's other faces.
	workflows registryv1.WorkflowServiceClient
	memory    registryv1.MemoryServiceClient
	keys      registryv1.KeyServiceClient
	audit     registryv1.AuditServiceClient
	// The executor's other faces.
	schedules executorv1.ScheduleServiceClient
	triggers  executorv1.TriggerServiceClient
	threads   executorv1.ThreadServiceClient
	limits    executorv1.LimitServiceClient
	workers   executorv1.WorkerServiceClient

	conns []*grpc.ClientConn
	// stop ends the look-out for servers that cannot be reached.
	stop context.CancelFunc
}

func (e *env) connect() (*services, error) {
	s := &services{stop: func() {}}
	byAddr := map[string]*grpc.ClientConn{}
	open := func(addr string) (*grpc.ClientConn, error) {
		if c, ok := byAddr[addr]; ok {
			return c, nil
		}
		c, err := e.client.dial(addr)
		if err == nil {
			byAddr[addr] = c
			s.conns = append(s.conns, c)
		}
		return c, err
	}
	p, err := open(e.client.PlannerAddr)
	if err != nil {
		return nil, err
	}
	x, err := open(e.client.ExecutorAddr)
	if err != nil {
		return nil, err
	}
	r, err := open(e.client.RegistryAddr)
	if err != nil {
		return nil, err
	}
	s.planner, s.executor, s.registry = plannerv1.NewPlannerServiceClient(p), executorv1.NewExecutorServiceClient(x), registryv1.NewRegistryServiceClient(r)
	s.workflows, s.memory, s.keys = registryv1.NewWorkflowServiceClient(r), registryv1.NewMemoryServiceClient(r), registryv1.NewKeyServiceClient(r)
	s.audit = registryv1.NewAuditServiceClient(r)
	e.lookOut(s, byAddr)
	s.schedules, s.limits, s.workers = executorv1.NewScheduleServiceClient(x), executorv1.NewLimitServiceClient(x), executorv1.NewWorkerServiceClient(x)
	s.triggers = executorv1.NewTriggerServiceClient(x)
	s.threads = executorv1.NewThreadServiceClient(x)
	return s, nil
}

// waiting is the time after which a command without a connection says what it waits for.
const waiting = time.Second

// lookOut ends the command with a fault that does not pass by itself, as soon as a connection cannot be made;
// else the call would be retried for seconds. It names the server if the wait lasts, and ends with the first
// connection, since a server that was there may come back.
func (e *env) lookOut(s *services, byAddr map[string]*grpc.ClientConn) {
	if e.ctx == nil {
		return
	}
	within, give := context.WithCancelCause(e.ctx)
	ctx, stop := context.WithCancel(within)
	e.ctx, e.give, s.stop = within, give, stop
	begun := time.AfterFunc(waiting, func() {
		for addr, conn := range byAddr {
			if st := conn.GetState(); ctx.Err() == nil && !e.json && (st == connectivity.Connecting || st == connectivity.TransientFailure) {
				e.note("waiting for %s …", e.client.named(addr))
			}
		}
	})
	for addr, conn := range byAddr {
		go func() {
			defer begun.Stop()
			for st := conn.GetState(); st != connectivity.Ready; st = conn.GetState() {
				if st == connectivity.TransientFailure {
					if x, lasting := e.client.unreachable(ctx, e.client.named(addr)); lasting && ctx.Err() == nil {
						e.give(x)
						return
					}
				}
				if !conn.WaitForStateChange(ctx, st) {
					return
				}
			}
		}()
	}
}

// named is the address of a service, which is the common one if it has none of its own.
func (c client) named(addr string) string {
	if addr == "" {
		return c.Addr
	}
	return addr
}

func (s *services) close() {
	s.stop()
	for _, c := range s.conns {
		_ = c.Close() // nothing is left to lose on a client connection
	}
}

// with connects, bounds the time of one request, and closes again.
func (e *env) with(f func(ctx context.Context, s *services) error) error {
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	return f(ctx, s)
}
