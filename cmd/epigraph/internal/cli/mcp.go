package cli

import (
	"io"
	"log/slog"

	"github.com/epigraph-run/epigraph/services/gateway/mcpserver"
)

type mcpCmd struct{}

// Run serves one client until it closes standard input. Standard output has the messages of the
// protocol alone.
func (c *mcpCmd) Run(e *env) error {
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	server, err := mcpserver.New(mcpserver.Options{
		Planner: s.planner, Executor: s.executor, Registry: s.registry, Workflows: s.workflows, Memory: s.memory,
		Log: slog.New(slog.NewTextHandler(e.io.Err, &slog.HandlerOptions{Level: slog.LevelWarn})), RequestTimeout: e.client.Timeout,
	})
	if err != nil {
		return err
	}
	return server.Run(e.ctx, io.NopCloser(e.io.In), nopWriter{e.io.Out})
}

// nopWriter is a writer that others close.
type nopWriter struct{ io.Writer }

// Close does nothing: the process has the output, and ends it.
func (nopWriter) Close() error { return nil }
