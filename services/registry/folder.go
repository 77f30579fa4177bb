package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/registry/internal/rpc"
	"github.com/epigraph-run/epigraph/services/registry/workflowfiles"
)

// folderInterval is the pause between two looks at the folder of workflows.
const folderInterval = 30 * time.Second

// folder keeps the workflows of a folder in the catalog. It is for one goroutine.
type folder struct {
	files   *workflowfiles.Folder
	catalog *rpc.WorkflowServer
	log     *slog.Logger
	// done are the files that are in the catalog, told those whose refusal was logged, as they were then.
	done, told map[string]workflowfiles.File
}

// openFolder puts what a folder has into the catalog; without one it returns nil.
func openFolder(ctx context.Context, dir string, c *rpc.WorkflowServer, log *slog.Logger) (*folder, error) {
	if dir == "" {
		return nil, nil
	}
	files, err := workflowfiles.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("registry.workflows: %w", err)
	}
	d := &folder{files: files, catalog: c, log: log, done: map[string]workflowfiles.File{}, told: map[string]workflowfiles.File{}}
	if err := d.keep(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("registry.workflows: %w", err), files.Close())
	}
	return d, nil
}

// keep puts what is new in the folder into the catalog. A file that is refused is told, and does not keep the
// others from being taken. The error is that of the folder or of the store: it is worth another try.
func (d *folder) keep(ctx context.Context) error {
	files, faults, err := d.files.Files()
	if err != nil {
		return err
	}
	for _, fault := range faults {
		d.refused(ctx, workflowfiles.File{Path: fault.Error()}, fault)
	}
	for _, f := range files {
		if d.done[f.Path] == f {
			continue
		}
		if err := d.one(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (d *folder) one(ctx context.Context, f workflowfiles.File) error {
	text, err := d.files.Read(f)
	if err != nil {
		d.refused(ctx, f, err) // it may be written just now, or be gone
		return nil
	}
	n, err := workflowfiles.Keep(grpckit.WithNamespace(ctx, cmp.Or(f.Namespace, grpckit.DefaultNamespace)), d.catalog, f, text)
	switch {
	case err == nil:
		d.done[f.Path] = f
		d.log.InfoContext(ctx, "the workflow of a file is in the catalog", slog.String("file", f.Path), slog.String("workflow", fmt.Sprintf("%s@%d", f.Slug, n)))
		return nil
	case errs.Is(err, errs.InvalidArgument), errs.Is(err, errs.AlreadyExists):
		d.done[f.Path] = f // the text, and what it is called, stay wrong until the file changes
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.FailedPrecondition), errs.Is(err, errs.ResourceExhausted):
	default:
		return err
	}
	d.refused(ctx, f, err)
	return nil
}

// refused logs a refusal, once for each state of a file.
func (d *folder) refused(ctx context.Context, f workflowfiles.File, err error) {
	if d.told[f.Path] == f {
		return
	}
	d.told[f.Path] = f
	d.log.ErrorContext(ctx, "the workflow of a file was refused", slog.String("file", f.Path), slog.Any("err", err))
}

// run looks at the folder until ctx ends.
func (d *folder) run(ctx context.Context) {
	tick := time.NewTicker(folderInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := d.keep(ctx); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "workflows of files could not be taken; it is tried again", slog.Any("err", err))
		}
	}
}
