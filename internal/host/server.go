package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// DefaultGrace is how long a server waits for calls under way before it cuts them off.
const DefaultGrace = 15 * time.Second

// Limits of an HTTP connection: the time until its request is read, and the time it may be idle.
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// CheckAddress refuses a value that is no TCP address to listen on. It does not listen.
func CheckAddress(ctx context.Context, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	}
	if err != nil {
		return errs.New(errs.InvalidArgument, "ADDRESS_INVALID", "%q is no host:port", addr).Hint("write host:port, for example 127.0.0.1:8080").With(err)
	}
	return nil
}

// Listen takes a TCP address. A port that is taken is AlreadyExists with a hint.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	if err := CheckAddress(ctx, addr); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		return lis, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, errs.New(errs.AlreadyExists, "PORT_TAKEN", "address %s is already in use", addr).
			Hint("stop the process that listens there, or choose another address").With(err)
	case errors.Is(err, syscall.EACCES):
		return nil, errs.New(errs.PermissionDenied, "PORT_DENIED", "may not listen on %s", addr).
			Hint("ports below 1024 need privileges, choose a higher one").With(err)
	}
	return nil, errs.New(errs.InvalidArgument, "ADDRESS_INVALID", "cannot listen on %s", addr).
		Hint("host:port, for example 127.0.0.1:8080").With(err)
}

// GRPC serves s on lis. It reports healthy while it runs, and stops gracefully: grpckit.Draining signals
// streams without an end, calls under way get grace to end (0 means DefaultGrace), and the rest is cut off.
func GRPC(s *grpckit.Server, lis net.Listener, grace time.Duration) Service {
	if grace <= 0 {
		grace = DefaultGrace
	}
	run := func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- s.Serve(lis) }()
		s.SetServing(true)
		select {
		case err := <-served:
			return fmt.Errorf("serve gRPC on %s: %w", lis.Addr(), err)
		case <-ctx.Done():
		}
		s.SetServing(false)
		s.Drain()
		hard := time.AfterFunc(grace, s.Stop)
		defer hard.Stop()
		s.GracefulStop()
		<-served
		return nil
	}
	return Func(run, func() error {
		s.Stop()
		return closeListener(lis)
	})
}

// HTTPOptions limit an HTTP server; zero fields mean the defaults named at them.
type HTTPOptions struct {
	Logger *slog.Logger
	// MaxBodyBytes bounds a request body; default 16 MiB, negative means no bound.
	MaxBodyBytes int64
	// BodyTimeout bounds the reading of a body; default 30s. Responses may stream for ever.
	BodyTimeout time.Duration
	// Grace is how long requests under way may last when stopping; default DefaultGrace.
	Grace time.Duration
	// TLS, if not nil, secures the connections; then no plain text is spoken.
	TLS *tls.Config
	// Connections is shared by the servers of the process and bounds their connections; nil means one of this
	// server, with the default bounds.
	Connections *conns.Pool
}

type drainKey struct{}

// Draining returns a channel that closes when the server of this request begins to stop, so that
// handlers which stream without end can end in good order. Outside of a request it never closes.
func Draining(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(drainKey{}).(chan struct{})
	return c
}

// HTTP serves h on lis, HTTP/1.1 and HTTP/2, unencrypted unless there is a TLS configuration, with limits
// against slow and oversized requests, and stops gracefully. Connections are bounded: h calls conns.Know and
// conns.Trust for the authenticated ones.
func HTTP(h http.Handler, lis net.Listener, o HTTPOptions) Service {
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = 16 << 20
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	draining := make(chan struct{})
	if o.Connections == nil {
		o.Connections = conns.New(conns.DefaultBounds())
	}
	open := o.Connections.List()
	lis = open.Listen(lis)
	if o.TLS != nil {
		lis = newEncrypted(lis, o.TLS)
	}
	// The server sees plain text, whether or not it was encrypted: see encrypted.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:           limit(h, o),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), drainKey{}, draining)
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return open.Tag(ctx, c.RemoteAddr()) },
	}
	run := func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- s.Serve(lis) }()
		select {
		case err := <-served:
			return fmt.Errorf("serve HTTP on %s: %w", lis.Addr(), err)
		case <-ctx.Done():
		}
		close(draining)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
		defer cancel()
		err := s.Shutdown(stop)
		if errors.Is(err, context.DeadlineExceeded) {
			o.Logger.WarnContext(ctx, "requests cut off", "grace", o.Grace)
			err = s.Close()
		}
		<-served
		return err
	}
	return Func(run, func() error { return errors.Join(s.Close(), closeListener(lis)) })
}

// limit bounds size and time of request bodies, and counts requests under way. Server.ReadTimeout would bound
// the time as well, but it also ends long responses.
func limit(h http.Handler, o HTTPOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer conns.Begin(r.Context())()
		if r.Body != nil && r.Body != http.NoBody {
			if o.MaxBodyBytes > 0 {
				r.Body = http.MaxBytesReader(w, r.Body, o.MaxBodyBytes)
			}
			rc := http.NewResponseController(w)
			if err := rc.SetReadDeadline(time.Now().Add(o.BodyTimeout)); err == nil {
				r.Body = &timedBody{ReadCloser: r.Body, clear: sync.OnceFunc(func() { _ = rc.SetReadDeadline(time.Time{}) })}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// timedBody lifts the deadline when the body has been read.
type timedBody struct {
	io.ReadCloser
	clear func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.clear()
	}
	return n, err
}

// AdminOptions say what the admin pages show.
type AdminOptions struct {
	// Ready answers /readyz; nil means always ready.
	Ready *Readiness
	// Metrics answers /metrics; nil means none.
	Metrics http.Handler
	// Pprof serves /debug/pprof/, which shows much of the process: loopback or a private port only.
	Pprof bool
	// Pages are further pages by path prefix. They must check access by themselves.
	Pages map[string]http.Handler
}

// Admin returns the pages for probes, metrics and profiles: /livez, /readyz, /metrics, /debug/pprof/.
func Admin(o AdminOptions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if o.Ready != nil {
			ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
			defer cancel()
			if err := o.Ready.Check(ctx); err != nil {
				answer(w, http.StatusServiceUnavailable, err.Error())
				return
			}
		}
		answer(w, http.StatusOK, "ok")
	})
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	for path, h := range o.Pages {
		mux.Handle(path, h)
		mux.Handle(path+"/", h)
	}
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n")
}

func closeListener(lis net.Listener) error {
	if err := lis.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
