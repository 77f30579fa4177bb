package obs

import (
	"bytes"
	"context"
	stdlog "log" //nolint:depguard // lines that libraries write with it go to slog
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// traceHandler adds the ids of the span in ctx to each record, so that a log line leads to its trace.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}

// levelHandler drops records below level for a handler that has no threshold of its own.
type levelHandler struct {
	slog.Handler
	level slog.Level
}

func (h levelHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelHandler{h.Handler.WithAttrs(attrs), h.level}
}

func (h levelHandler) WithGroup(name string) slog.Handler {
	return levelHandler{h.Handler.WithGroup(name), h.level}
}

func localHandler(cfg Config, level slog.Level) slog.Handler {
	w := cfg.LogWriter
	if w == nil {
		w = os.Stderr
	}
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewJSONHandler(w, opts)
	if cfg.LogFormat == "text" {
		h = slog.NewTextHandler(w, opts)
	}
	if cfg.ServiceName != "" {
		h = h.WithAttrs([]slog.Attr{slog.String("service", cfg.ServiceName)})
	}
	return traceHandler{h}
}

// HandleErrors sends the faults of exporters to log instead of standard error. It sets a process-wide
// hook of the OpenTelemetry library, so only a command calls it, once.
func HandleErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("telemetry export failed", "err", err)
	}))
}

// maxLine bounds the logged part of a line of a library, in bytes: it may quote input from outside.
const maxLine = 200

// HandleLog sends what libraries write with package log, net/http above all, to log instead of standard
// error. Of lines that begin alike it passes one in half a minute: any caller can make net/http write one for
// each connection. It sets the process-wide output of package log, so only a command calls it, once.
func HandleLog(log *slog.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetPrefix("")
	stdlog.SetOutput(&lineWriter{log: log})
}

// lineWriter takes the lines of package log.
type lineWriter struct {
	log    *slog.Logger
	seldom Seldom
}

// Write implements io.Writer: package log writes one line at a time.
func (w *lineWriter) Write(b []byte) (int, error) {
	line := string(bytes.TrimSpace(b))
	words := strings.Fields(line)
	level, left := w.seldom.Level(strings.Join(words[:min(len(words), 3)], " "), slog.LevelWarn)
	w.log.Log(context.Background(), level, "a library wrote to the log", "line", errs.Clip(line, maxLine), "lines_left_out", left)
	return len(b), nil
}
