// Package cassette owns records of model calls: a run is recorded once, and played back as often as
// wanted without any network. A cassette is a file of JSON lines: {"cassette": 1}, and then an entry
// for each call, for an answer or for vectors, in the neutral form of package llm, so that it outlives
// a change of providers. It must not know providers.
package cassette

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/retryafter"
)

// Modes of a cassette.
const (
	Record = "record"
	Replay = "replay"
)

// Matches of a played cassette.
const (
	Strict  = "strict"
	Nearest = "nearest"
)

// Config says whether model calls are recorded or played back.
type Config struct {
	Mode string `help:"record writes every model call down; replay answers from what was recorded and calls no model; empty does neither"`
	Path string `help:"file of the recorded calls; of a directory, replay reads every .jsonl file, and record adds one for each process"`
	// Match is how replay finds the answer to a request.
	Match string `help:"what replay answers: strict, the same request alone; nearest, the most similar one, with a report of what drifted in PATH.drift.jsonl"`
	Pace  bool   `help:"let replay take as long as the recorded calls did"`
}

// DefaultConfig neither records nor plays, and matches strictly.
func DefaultConfig() Config { return Config{Match: Strict} }

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	switch c.Mode {
	case "":
		return nil
	case Record, Replay:
	default:
		faults = append(faults, fmt.Errorf("mode must be record, replay or empty, got %q", c.Mode))
	}
	if c.Path == "" {
		faults = append(faults, errors.New("path must be set"))
	}
	if c.Match != Strict && c.Match != Nearest {
		faults = append(faults, fmt.Errorf("match must be strict or nearest, got %q", c.Match))
	}
	return errors.Join(faults...)
}

// entry is one recorded call.
type entry struct {
	Request llm.Request `json:"request,omitzero"`
	// Embed is a call for vectors, in the place of a request.
	Embed    *embed        `json:"embed,omitempty"`
	Response *llm.Response `json:"response,omitempty"`
	Error    *failure      `json:"error,omitempty"`
	// Pieces is the number of pieces of a streamed answer, 0 of one that came whole.
	Pieces int `json:"pieces,omitempty"`
	// First and Took are milliseconds to the first piece and to the end.
	First int64 `json:"first_ms,omitempty"`
	Took  int64 `json:"took_ms"`
}

// embed is a call for vectors, and what came of it.
type embed struct {
	Model string   `json:"model"`
	Texts []string `json:"texts"`
	// Vectors are those of the texts, in their order.
	Vectors [][]float32 `json:"vectors,omitempty"`
	// Spent is what the call used.
	Spent []llm.Spent `json:"spent,omitempty"`
}

// failure is an *llm.Error.
type failure struct {
	Class      string `json:"class"`
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message"`
	RetryAfter int64  `json:"retry_after_ms,omitempty"`
	// Used is what the call used all the same.
	Used []llm.Spent `json:"used,omitempty"`
}

var classes = map[string]llm.Class{
	llm.Unknown.String(): llm.Unknown, llm.Retryable.String(): llm.Retryable, llm.Permanent.String(): llm.Permanent, llm.NotPerformed.String(): llm.NotPerformed,
}

func failed(err error) *failure {
	e, ok := errors.AsType[*llm.Error](err)
	if !ok {
		e = &llm.Error{Message: err.Error()}
	}
	return &failure{Class: e.Class.String(), Status: e.Status, Code: e.Code, Message: e.Message, RetryAfter: e.RetryAfter.Milliseconds(), Used: e.Used}
}

func (f *failure) error() error {
	pause := time.Duration(min(f.RetryAfter, retryafter.Max.Milliseconds())) * time.Millisecond
	return &llm.Error{Class: classes[f.Class], Status: f.Status, Code: f.Code, Message: f.Message, RetryAfter: retryafter.Bound(pause), Used: f.Used}
}

// Open opens the cassette of a valid configuration with a mode. secrets are texts that never go into it,
// beside everything that looks like a key. The function goes around the models; a nil log drops what it says.
func Open(c Config, secrets []string, log *slog.Logger) (around func(llm.Model) llm.Model, err error) {
	if err := c.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "CASSETTE_INVALID", "cassette: %v", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	hide := newRedactor(secrets)
	if c.Mode == Record {
		r, err := newRecorder(c.Path, hide)
		if err != nil {
			return nil, err
		}
		return func(inner llm.Model) llm.Model { r.inner = inner; return r }, nil
	}
	p, err := newPlayer(c, hide, log)
	if err != nil {
		return nil, err
	}
	return func(llm.Model) llm.Model { return p }, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// unusable is an error about a file.
func unusable(path string, err error) error {
	return errs.New(errs.InvalidArgument, "CASSETTE_INVALID", "cassette %s: %v", path, err).
		Hint("record one with models.cassette.mode=record")
}

var (
	_ llm.Model = (*recorder)(nil)
	_ llm.Model = (*player)(nil)
	_ llm.Tape  = (*recorder)(nil)
	_ llm.Tape  = (*player)(nil)
)

func faulty(format string, args ...any) error {
	return &llm.Error{Class: llm.Permanent, Code: "NOT_RECORDED", Message: fmt.Sprintf(format, args...)}
}

// ended is the error of a call whose context ended while it was played.
func ended(ctx context.Context) error {
	return &llm.Error{Class: llm.Unknown, Code: "CANCELED", Message: "the call was canceled", Err: ctx.Err()}
}
