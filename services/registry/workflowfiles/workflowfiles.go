// Package workflowfiles puts workflows that are kept in files into the catalog of the registry: a checkout, a
// volume, a mounted config map. It owns the names of the files and the order in which they are taken. It must
// not know how the catalog is reached.
package workflowfiles

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// ReasonInvalid is the reason when a file cannot be a workflow.
	ReasonInvalid = "WORKFLOW_FILE_INVALID"
	// ReasonTooMany is the reason when a folder holds more than MaxFiles.
	ReasonTooMany = "TOO_MANY_FILES"

	// MaxFiles bounds the files of a folder, those of its namespaces included.
	MaxFiles = 10_000
	// MaxBytes bounds one file, as the catalog bounds a text.
	MaxBytes = 1 << 20

	slugTaken = "WORKFLOW_SLUG_TAKEN"
)

// slugRule is what the API takes as a slug.
var slugRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// File is a workflow in a file.
type File struct {
	// Path is that of the file within its folder.
	Path string
	// Namespace is the folder that the file lies in; "" is that of the caller.
	Namespace string
	Slug      string
	// Version is the number in the name of the file; 0 is the next one, if the text is new.
	Version int64
	// Size and Changed are those of the file when it was listed.
	Size    int64
	Changed time.Time
}

// Compare orders files as the catalog must take them: of a workflow the older versions first, and a file
// without a number last, since it is newer than those that have one.
func (f File) Compare(o File) int {
	return cmp.Or(strings.Compare(f.Namespace, o.Namespace), strings.Compare(f.Slug, o.Slug), cmp.Compare(uint64(f.Version-1), uint64(o.Version-1)), strings.Compare(f.Path, o.Path))
}

// Folder is a folder of workflows: SLUG.yaml, or SLUG@VERSION.yaml for one version, with the endings yaml,
// yml and json. Those of a namespace lie in a folder of its name. It is safe for concurrent use.
type Folder struct{ root *os.Root }

// Open opens a folder. Nothing outside of it is ever read, even through links.
func Open(dir string) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder of workflows: %w", err)
	}
	return &Folder{root}, nil
}

// Close lets go of the folder.
func (d *Folder) Close() error { return d.root.Close() }

// Files lists the workflows of the folder, of each the older versions first, and says which files cannot be
// one. Hidden files, tests (NAME.test.yaml) and files with other endings are none.
func (d *Folder) Files() (files []File, faults []error, err error) {
	top, faults, err := d.list("", nil)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range top {
		if !e.IsDir() {
			files, faults = gather(files, faults, "", e)
			continue
		}
		if !grpckit.ValidNamespace(e.Name()) {
			faults = append(faults, invalid(e.Name()+"/", "the folder has not the name of a namespace"))
			continue
		}
		var inner []fs.FileInfo
		if inner, faults, err = d.list(e.Name(), faults); err != nil {
			return nil, nil, err
		}
		for _, e2 := range inner {
			if !e2.IsDir() {
				files, faults = gather(files, faults, e.Name(), e2)
			}
		}
		if len(files)+len(faults) > MaxFiles {
			return nil, nil, tooMany()
		}
	}
	if len(files)+len(faults) > MaxFiles {
		return nil, nil, tooMany()
	}
	slices.SortFunc(files, File.Compare)
	return files, faults, nil
}

func tooMany() error {
	return errs.New(errs.InvalidArgument, ReasonTooMany, "the folder of workflows holds more than %d files", MaxFiles)
}

// list is what a folder holds, links followed and hidden names left out, and the faults with those of links
// that lead nowhere or out of the folder. Config maps are mounted as links to hidden folders.
func (d *Folder) list(dir string, faults []error) ([]fs.FileInfo, []error, error) {
	f, err := d.root.Open(cmp.Or(dir, "."))
	if err != nil {
		return nil, nil, fmt.Errorf("list folder of workflows: %w", err)
	}
	names, err := f.Readdirnames(MaxFiles + 1)
	if err = errors.Join(ignoreEOF(err), f.Close()); err != nil {
		return nil, nil, fmt.Errorf("list folder of workflows: %w", err)
	}
	if len(names) > MaxFiles {
		return nil, nil, tooMany()
	}
	slices.Sort(names)
	var out []fs.FileInfo
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		info, err := d.root.Stat(path.Join(dir, name))
		if err != nil {
			faults = append(faults, invalid(path.Join(dir, name), "cannot be looked at: %v", err))
			continue
		}
		out = append(out, named{info, name})
	}
	return out, faults, nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// named has the name of the link in place of that of its target.
type named struct {
	fs.FileInfo
	name string
}

func (n named) Name() string { return n.name }

func gather(files []File, faults []error, namespace string, info fs.FileInfo) ([]File, []error) {
	ending := path.Ext(info.Name())
	if !slices.Contains([]string{".json", ".yaml", ".yml"}, ending) {
		return files, faults
	}
	f := File{Path: path.Join(namespace, info.Name()), Namespace: namespace, Size: info.Size(), Changed: info.ModTime()}
	name := strings.TrimSuffix(info.Name(), ending)
	if strings.HasSuffix(name, ".test") {
		return files, faults
	}
	if !info.Mode().IsRegular() {
		return files, append(faults, invalid(f.Path, "it is no file"))
	}
	n := Named(name)
	if f.Slug, f.Version = n.Slug, n.Version; !slugRule.MatchString(f.Slug) {
		return files, append(faults, invalid(f.Path, "%.100q cannot be the slug of a workflow: letters, digits, dots, dashes and underscores", f.Slug))
	}
	if f.Version == 0 && strings.Contains(name, "@") {
		return files, append(faults, invalid(f.Path, "its version is no number: versions of the catalog are 1, 2, 3 …; an alias is set with `epigraph workflows alias`"))
	}
	return append(files, f), faults
}

func invalid(file, format string, args ...any) error {
	return errs.New(errs.InvalidArgument, ReasonInvalid, file+": "+format, args...)
}

// Read is the text of a file.
func (d *Folder) Read(f File) (text string, err error) {
	in, err := d.root.Open(f.Path)
	if err != nil {
		return "", fmt.Errorf("read workflow file: %w", err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	raw, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err != nil {
		return "", fmt.Errorf("read workflow file: %w", err)
	}
	if len(raw) > MaxBytes {
		return "", invalid(f.Path, "the file has more than %d bytes", MaxBytes)
	}
	return string(raw), nil
}

// Catalog is what Keep needs of the registry.
type Catalog interface {
	CreateWorkflow(ctx context.Context, req *registryv1.CreateWorkflowRequest) (*registryv1.Workflow, error)
	CreateWorkflowVersion(ctx context.Context, req *registryv1.CreateWorkflowVersionRequest) (*registryv1.WorkflowVersion, error)
}

// Named is the file of a workflow that a reference names: SLUG@VERSION, or SLUG@ALIAS, whose version is 0.
func Named(ref string) File {
	slug, version, _ := strings.Cut(ref, "@")
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil || n < 1 {
		n = 0
	}
	return File{Path: ref, Slug: slug, Version: n}
}

// Client is a catalog that is reached by gRPC.
type Client struct {
	registryv1.WorkflowServiceClient
}

// CreateWorkflow implements Catalog.
func (c Client) CreateWorkflow(ctx context.Context, req *registryv1.CreateWorkflowRequest) (*registryv1.Workflow, error) {
	return c.WorkflowServiceClient.CreateWorkflow(ctx, req)
}

// CreateWorkflowVersion implements Catalog.
func (c Client) CreateWorkflowVersion(ctx context.Context, req *registryv1.CreateWorkflowVersionRequest) (*registryv1.WorkflowVersion, error) {
	return c.WorkflowServiceClient.CreateWorkflowVersion(ctx, req)
}

// Keep makes a version of a text, which is a definition or a graph, in the namespace of ctx, and returns its
// number. A version with this text is left as it is, so that Keep may be repeated.
func Keep(ctx context.Context, c Catalog, f File, text string) (int64, error) {
	form := FormOf(text)
	w, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: text, Form: form, Slug: f.Slug, Version: f.Version})
	if err == nil {
		return w.GetLatestVersion(), nil
	}
	if errs.ReasonOf(err) != slugTaken {
		return 0, err
	}
	v, err := c.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: f.Slug, Source: text, Form: form, Version: f.Version})
	return v.GetVersion(), err
}

// FormOf tells a graph from a definition: it is JSON with nodes.
func FormOf(text string) registryv1.WorkflowForm {
	var graph struct {
		Nodes json.RawMessage `json:"nodes"`
	}
	if json.Unmarshal([]byte(text), &graph) == nil && graph.Nodes != nil {
		return registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH
	}
	return registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION
}
