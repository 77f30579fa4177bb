package cassette

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/llm"
)

// version is that of the form of a file.
const version = 1

// header is the first line of a file.
type header struct {
	Cassette int `json:"cassette"`
}

// recorder writes down the calls of another model.
type recorder struct {
	inner llm.Model
	path  string
	hide  *redactor

	mu   sync.Mutex
	file *os.File
}

// newRecorder appends to the file, or to a new one of the directory. A crash may have cut off the last line
// of the file: a header behind it tells readers so.
func newRecorder(path string, hide *redactor) (*recorder, error) {
	if isDir(path) {
		path = filepath.Join(path, fmt.Sprintf("%d-%d.jsonl", time.Now().UnixMilli(), os.Getpid()))
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) //nolint:gosec // the operator's choice
	if err != nil {
		return nil, unusable(path, err)
	}
	info, err := file.Stat()
	last := []byte{'\n'}
	if err == nil && info.Size() > 0 {
		_, err = file.ReadAt(last, info.Size()-1)
	}
	switch {
	case err != nil:
	case info.Size() == 0:
		_, err = fmt.Fprintf(file, "{\"cassette\":%d}\n", version)
	case last[0] != '\n':
		_, err = fmt.Fprintf(file, "\n{\"cassette\":%d}\n", version)
	}
	if err != nil {
		return nil, unusable(path, errors.Join(err, file.Close()))
	}
	return &recorder{path: path, hide: hide, file: file}, nil
}

// Close closes the file.
func (r *recorder) Close() error { return r.file.Close() }

// Generate implements llm.Model.
func (r *recorder) Generate(ctx context.Context, req llm.Request) (llm.Response, error) {
	start := time.Now()
	out, err := r.inner.Generate(ctx, req)
	e := entry{Request: req, Took: time.Since(start).Milliseconds()}
	return r.note(e, out, err)
}

// Stream implements llm.Model.
func (r *recorder) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	start := time.Now()
	e := entry{Request: req}
	out, err := r.inner.Stream(ctx, req, func(d llm.Delta) error {
		if e.Pieces++; e.Pieces == 1 {
			e.First = time.Since(start).Milliseconds()
		}
		return delta(d)
	})
	e.Took = time.Since(start).Milliseconds()
	return r.note(e, out, err)
}

// Embed implements llm.Tape.
func (r *recorder) Embed(ctx context.Context, model string, texts []string, live func(context.Context) (llm.Vectors, error)) (llm.Vectors, error) {
	start := time.Now()
	out, err := live(ctx)
	if canceled(err) {
		return out, err
	}
	e := entry{Embed: &embed{Model: model, Texts: texts, Vectors: out.Values, Spent: out.Spent}, Took: time.Since(start).Milliseconds()}
	if err != nil {
		e.Error = failed(err)
	}
	if fault := r.write(e, err); fault != nil {
		return llm.Vectors{}, fault
	}
	return out, err
}

// canceled reports whether a call ended because its caller gave up: it says nothing about the model.
func canceled(err error) bool {
	known, ok := errors.AsType[*llm.Error](err)
	return ok && known.Code == "CANCELED"
}

// note writes an entry, unless the call was canceled.
func (r *recorder) note(e entry, out llm.Response, err error) (llm.Response, error) {
	if canceled(err) {
		return out, err
	}
	if err != nil {
		e.Error = failed(err)
	} else {
		e.Response = &out
	}
	if fault := r.write(e, err); fault != nil {
		return llm.Response{}, fault
	}
	return out, err
}

// write writes an entry. err is what the call ended with.
func (r *recorder) write(e entry, err error) error {
	line, fault := json.Marshal(e)
	if fault == nil {
		line = append(r.hide.json(line), '\n')
		r.mu.Lock()
		_, fault = r.file.Write(line)
		r.mu.Unlock()
	}
	if fault != nil {
		return &llm.Error{Class: llm.Unknown, Code: "CASSETTE", Message: "the answer came, but cannot be recorded in " + r.path, Err: errors.Join(fault, err)}
	}
	return nil
}
