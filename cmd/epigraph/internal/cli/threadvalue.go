package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

type threadsExportCmd struct {
	ID  string `arg:"" help:"The thread."`
	Out string `help:"The file to write; default standard output." short:"o" placeholder:"FILE"`
}

// Help gives an example.
func (threadsExportCmd) Help() string {
	return `The value is JSON: the items of the thread, and those of all its parts, such as the threads of the members of
a team. Another server makes the thread anew from it. No open run may hold the thread meanwhile.

    epigraph threads export thr_01h455vb4pex5vsknk084sn02q -o talk.json
    epigraph threads import talk.json`
}

// Run exports.
func (c *threadsExportCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.threads.ExportThread(ctx, &executorv1.ExportThreadRequest{ThreadId: c.ID})
		if err != nil {
			return err
		}
		text := append(r.GetValue().GetJson(), '\n')
		if c.Out == "" {
			return e.say(string(text))
		}
		if err := os.WriteFile(c.Out, text, 0o600); err != nil {
			return errs.New(errs.InvalidArgument, "FILE_UNWRITABLE", "%v", err)
		}
		return e.print(&executorv1.ExportThreadRequest{ThreadId: c.ID}, func() string { return fmt.Sprintf("wrote %s\n", view.OneLine(c.Out, 200)) })
	})
}

type threadsImportCmd struct {
	File      string `arg:"" help:"A thread as \"epigraph threads export\" wrote it; - is standard input."`
	Key       string `help:"Key of the thread, which is unique." placeholder:"KEY"`
	Title     string `help:"Title of the thread; default that of the value." placeholder:"TEXT"`
	Agent     string `help:"Agent of the thread; default that of the value." placeholder:"NAME"`
	Lifetime  string `help:"How long it is kept: ${enum}." enum:"conversation,ephemeral" default:"conversation"`
	RequestID string `help:"Make the command repeatable: the same id makes one thread." placeholder:"ID"`
}

// Help gives an example.
func (threadsImportCmd) Help() string {
	return `The thread and its parts are made anew, under new ids, whole or not at all.

    epigraph threads import talk.json --key ann:desk
    epigraph threads export thr_01h455vb4pex5vsknk084sn02q | epigraph --addr other:9090 threads import -`
}

// Run imports.
func (c *threadsImportCmd) Run(e *env) error {
	text, err := e.readText(c.File)
	if err != nil {
		return err
	}
	lifetime := executorv1.ThreadLifetime_value["THREAD_LIFETIME_"+strings.ToUpper(c.Lifetime)]
	return e.with(func(ctx context.Context, s *services) error {
		t, err := s.threads.ImportThread(ctx, &executorv1.ImportThreadRequest{Value: &graphv1.Payload{Json: []byte(strings.TrimSpace(text))}, RequestId: c.RequestID,
			Thread: &executorv1.Thread{Key: c.Key, Title: c.Title, Agent: c.Agent, Lifetime: executorv1.ThreadLifetime(lifetime)}})
		if err != nil {
			return err
		}
		return e.print(t, func() string { return threadText(e, t, nil) })
	})
}
