package cli

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// otherHTTP is in what gRPC says of a server that speaks HTTP/2 and answers no gRPC call.
const otherHTTP = "unexpected HTTP status code received from server"

// behindGateway says that the address is right, and that the service behind it is unreachable.
func (e *env) behindGateway(x *errs.Error, behind string) *errs.Error {
	at := e.client.of(behind)
	return errs.New(errs.Unavailable, x.Reason, "the gateway at %s answers, and the %s behind it does not", at, behind).
		Hint("look at the " + behind + "'s process; /readyz at " + at + " says what is missing")
}

// misaddressed says what answers in the place of the service that was asked, and which address is wanted; nil
// if that is not to be found out.
func (e *env) misaddressed(x *errs.Error) *errs.Error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	if strings.Contains(x.Message, otherHTTP) {
		for _, addr := range e.client.addresses() {
			if !e.client.secure() && speaks(ctx, addr) == webServer {
				return webFault(ctx, addr)
			}
		}
		return nil
	}
	_, rest, ok := strings.Cut(x.Message, "unknown service epigraph.")
	wanted, _, _ := strings.Cut(rest, ".")
	if !ok {
		return nil
	}
	at := e.client.of(wanted)
	for _, name := range []string{"planner", "executor", "registry"} {
		if name != wanted && e.client.serves(ctx, at, name) {
			return errs.New(errs.InvalidArgument, "ADDRESS_INVALID", "%s is the address of the %s, and this command asks the %s", at, name, wanted).
				Hint("give the address of the gateway or of `epigraph dev`, which serve everything, with --addr or EPIGRAPH_ADDR, or that of the " + wanted +
					" alone with EPIGRAPH_" + strings.ToUpper(wanted) + "_ADDR")
		}
	}
	return nil
}

// of is where a service is looked for.
func (c client) of(service string) string {
	return c.named(map[string]string{"planner": c.PlannerAddr, "executor": c.ExecutorAddr, "registry": c.RegistryAddr}[service])
}

// serves reports whether a server has a service: it refuses a method that no service has in another way then.
func (c client) serves(ctx context.Context, addr, service string) bool {
	conn, err := c.dial(addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing is left to lose
	name := strings.ToUpper(service[:1]) + service[1:] + "Service"
	err = conn.Invoke(ctx, "/epigraph."+service+".v1."+name+"/Which", &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(false))
	return err != nil && strings.Contains(errs.From(err).Message, "unknown method")
}

// webFault says what a web server at addr is.
func webFault(ctx context.Context, addr string) *errs.Error {
	const hint = "give the address of the gRPC API: `epigraph dev` serves it at " + DefaultAddr + ", a gateway at the port of its REST API"
	if isAdmin(ctx, addr) {
		return errs.New(errs.Unavailable, "SERVICE_UNAVAILABLE", "%s is the admin port of a process of the suite, with its probes and metrics", addr).Hint(hint)
	}
	return errs.New(errs.Unavailable, "SERVICE_UNAVAILABLE", "a web server answers at %s, and no gRPC server", addr).Hint(hint)
}

// isAdmin reports whether a web server has the probes of a process of the suite.
func isAdmin(ctx context.Context, addr string) bool {
	for _, path := range []string{"/livez", "/readyz"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			return false
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = r.Body.Close() // nothing is read of it
		if r.StatusCode != http.StatusOK && (path == "/livez" || r.StatusCode != http.StatusServiceUnavailable) {
			return false
		}
	}
	return true
}
