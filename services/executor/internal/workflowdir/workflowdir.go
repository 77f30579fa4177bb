// Package workflowdir finds versions of workflows in a folder, for installations that keep them in files: a
// checkout, a volume, a mounted config map. It owns the names of the files and reads them again each time. It
// must not know its callers, nor whether a graph can run.
package workflowdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// ReasonNotFound is the reason when there is no such version.
	ReasonNotFound = "WORKFLOW_NOT_FOUND"
	// ReasonInvalid is the reason when the file of a version holds no graph.
	ReasonInvalid = "WORKFLOW_INVALID"
	// ReasonUnreadable is the reason when the folder cannot be read just now.
	ReasonUnreadable = "WORKFLOWS_UNREADABLE"
)

// MaxBytes bounds one file.
const MaxBytes = 16 << 20

const suffix = ".json"

// part is a slug or a version: nothing that could lead out of the folder, or hide in it.
var part = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Dir is a folder of workflows: SLUG@VERSION.json is for every namespace, NAMESPACE/SLUG@VERSION.json for
// that one, where it goes before the other. It is safe for concurrent use.
type Dir struct{ root *os.Root }

// Open opens a folder. Nothing outside of it is ever read, even through links.
func Open(dir string) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder of workflows: %w", err)
	}
	return &Dir{root}, nil
}

// Close lets go of the folder.
func (d *Dir) Close() error { return d.root.Close() }

// Workflow is the graph of "workflow/SLUG@VERSION" as the namespace sees it.
func (d *Dir) Workflow(_ context.Context, namespace, ref string) (*workgraph.Graph, error) {
	name := strings.TrimPrefix(ref, "workflow/")
	slug, version, _ := strings.Cut(name, "@")
	if !part.MatchString(slug) || !part.MatchString(version) {
		return nil, errs.New(errs.NotFound, ReasonNotFound, "%.200q names no version of a workflow: letters, digits, dots, dashes and underscores, as in workflow/report@3", ref)
	}
	raw, err := d.read(path.Join(namespace, name+suffix))
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = d.read(name + suffix)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, d.missing(namespace, slug, name)
	case errors.Is(err, errTooLarge):
		return nil, errs.New(errs.InvalidArgument, ReasonInvalid, "the file of workflow %q has more than %d bytes", name, MaxBytes)
	case err != nil:
		return nil, errs.New(errs.Unavailable, ReasonUnreadable, "the file of workflow %q cannot be read", name).With(err)
	}
	g, err := graphpb.ReadModel(raw)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, ReasonInvalid, "the file of workflow %q holds no graph: %v", name, err)
	}
	if g.Name == "" {
		g.Name = name
	}
	return g, nil
}

var errTooLarge = errors.New("the file is too large")

func (d *Dir) read(name string) (_ []byte, err error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(raw) > MaxBytes {
		return nil, errTooLarge
	}
	return raw, err
}

// missing says which versions and workflows there are instead.
func (d *Dir) missing(namespace, slug, name string) error {
	var versions, like []string
	for _, dir := range []string{namespace, "."} {
		entries, err := fs.ReadDir(d.root.FS(), dir)
		if err != nil {
			continue // a namespace need not have a folder
		}
		for _, e := range entries {
			file, ok := strings.CutSuffix(e.Name(), suffix)
			s, _, versioned := strings.Cut(file, "@")
			switch {
			case !ok || !versioned || e.IsDir():
			case s == slug:
				versions = append(versions, file)
			default:
				if _, ok := near.Within(s, slug, max(2, len(s)/3)); ok {
					like = append(like, file)
				}
			}
		}
	}
	err := errs.New(errs.NotFound, ReasonNotFound, "there is no workflow %q", name)
	found := versions
	if len(found) == 0 {
		found = like
	}
	if len(found) == 0 {
		return err
	}
	err.Message += "; there is " + strings.Join(found[:min(len(found), 10)], ", ")
	return err
}
