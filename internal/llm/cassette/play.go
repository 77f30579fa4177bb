package cassette

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

// Bounds of what is read.
const (
	maxFile = 512 << 20
	maxLine = 128 << 20
)

// take is an entry with what it is found by.
type take struct {
	entry
	sum    sum
	sketch sketch
	played bool
}

// player answers from recorded calls.
type player struct {
	cfg  Config
	hide *redactor
	log  *slog.Logger

	mu    sync.Mutex
	takes []*take
	same  map[sum][]*take
	// tried are the calls for vectors, by their model and texts, and vectors what they made of each text.
	tried   map[sum][]*take
	vectors map[sum]vector
	// given are the takes by the idempotency key of the request: an attempt that is made again gets its
	// answer again.
	given map[string]*take
	drift *os.File
	// drifted counts the calls in the report.
	drifted int
}

func newPlayer(c Config, hide *redactor, log *slog.Logger) (*player, error) {
	files := []string{c.Path}
	if isDir(c.Path) {
		var err error
		if files, err = filepath.Glob(filepath.Join(c.Path, "*.jsonl")); err != nil {
			return nil, unusable(c.Path, err)
		}
		files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, driftEnd) })
		slices.Sort(files)
	}
	report := ReportName(c.Path)
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, unusable(report, err)
	}
	p := &player{cfg: c, hide: hide, log: log, same: map[sum][]*take{}, tried: map[sum][]*take{}, vectors: map[sum]vector{}, given: map[string]*take{}}
	for _, name := range files {
		if err := p.load(name); err != nil {
			return nil, unusable(name, err)
		}
	}
	if len(p.takes)+len(p.tried) == 0 {
		return nil, unusable(c.Path, errors.New("there is no recorded call in it"))
	}
	return p, nil
}

func (p *player) load(name string) error {
	file, err := os.Open(name) //nolint:gosec // the operator's choice
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // read only
	if info, err := file.Stat(); err != nil || info.Size() > maxFile {
		return errors.Join(err, fmt.Errorf("the file has more than %d bytes", maxFile))
	}
	entries, err := read(file)
	for i := range entries {
		if entries[i].Embed != nil {
			if fault := p.loadVectors(&entries[i]); fault != nil {
				return errors.Join(err, fault)
			}
			continue
		}
		doc, fault := p.canonical(&entries[i].Request)
		if fault != nil {
			return errors.Join(err, fault)
		}
		t := &take{entry: entries[i], sum: doc.sum(), sketch: doc.sketch()}
		p.takes = append(p.takes, t)
		p.same[t.sum] = append(p.same[t.sum], t)
	}
	return err
}

// read reads a file. A line that is cut off, as after a crash, is left out: the last one, or one before a
// header, which another process wrote that went on.
func read(r io.Reader) (out []entry, err error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	var cut error // about the line before
	for n := 1; ; n++ {
		line, last, err := readLine(lines)
		if err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
		var e struct {
			header
			entry
		}
		switch err := json.Unmarshal(line, &e); {
		case err == nil && e.Cassette == version:
			cut = nil
		case cut != nil:
			return nil, cut
		case n == 1:
			cut = fmt.Errorf(`its first line is not {"cassette":%d}`, version)
		case last && err != nil:
		case err != nil:
			cut = fmt.Errorf("line %d: %w", n, err)
		case e.Embed != nil:
			if err := e.check(); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			out = append(out, e.entry)
		case (e.Response == nil) == (e.Error == nil):
			return nil, fmt.Errorf("line %d has neither a response nor an error, or both", n)
		default:
			if err := e.Request.Check(); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			out = append(out, e.entry)
		}
		if last {
			return out, cut
		}
	}
}

// readLine reads a line, and reports whether it is the last one.
func readLine(r *bufio.Reader) (line []byte, last bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, false, fmt.Errorf("has more than %d bytes", maxLine)
		case err == nil:
			return line, false, nil
		case errors.Is(err, io.EOF):
			return line, true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, fmt.Errorf("cannot be read: %w", err)
		}
	}
}

// Close closes the report of what drifted.
func (p *player) Close() error {
	calls, left := 0, 0
	for _, takes := range slices.Concat([][]*take{p.takes}, slices.Collect(maps.Values(p.tried))) {
		for _, t := range takes {
			if calls++; !t.played {
				left++
			}
		}
	}
	if p.drift == nil {
		p.log.Info("a cassette was played", "path", p.cfg.Path, "calls", calls, "not_asked", left)
		return nil
	}
	p.log.Warn("a cassette was played, and calls drifted from it", "path", p.cfg.Path, "calls", calls, "not_asked", left,
		"drifted", p.drifted, "report", p.drift.Name())
	return p.drift.Close()
}

// Generate implements llm.Model.
func (p *player) Generate(ctx context.Context, req llm.Request) (llm.Response, error) {
	t, err := p.find(&req)
	if err != nil {
		return llm.Response{}, err
	}
	if p.cfg.Pace && !sleep.For(ctx, time.Duration(t.Took)*time.Millisecond) {
		return llm.Response{}, ended(ctx)
	}
	if t.Error != nil {
		return llm.Response{}, t.Error.error()
	}
	return *t.Response, nil
}

// Stream implements llm.Model.
func (p *player) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	t, err := p.find(&req)
	if err != nil {
		return llm.Response{}, err
	}
	if t.Error != nil {
		if p.cfg.Pace && !sleep.For(ctx, time.Duration(t.Took)*time.Millisecond) {
			return llm.Response{}, ended(ctx)
		}
		return llm.Response{}, t.Error.error()
	}
	pieces := t.pieces()
	wait := time.Duration(t.First) * time.Millisecond
	for _, d := range pieces {
		if p.cfg.Pace && !sleep.For(ctx, wait) || ctx.Err() != nil {
			return llm.Response{}, ended(ctx)
		}
		wait = time.Duration(max(0, t.Took-t.First)) * time.Millisecond / time.Duration(len(pieces))
		if err := delta(d); err != nil {
			return llm.Response{}, llm.GaveUp(err)
		}
	}
	return *t.Response, nil
}

// pieces are those of a streamed answer: as many as were recorded, of about the same length.
func (t *take) pieces() (out []llm.Delta) {
	m := &t.Response.Message
	size := max(1, utf8.RuneCountInString(m.Content)/max(1, t.Pieces-len(m.ToolCalls)))
	for rest := []rune(m.Content); len(rest) > 0; {
		n := min(size, len(rest))
		out = append(out, llm.Delta{Text: string(rest[:n])})
		rest = rest[n:]
	}
	for i, c := range m.ToolCalls {
		out = append(out, llm.Delta{Call: &llm.CallDelta{Index: i, ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)}})
	}
	return out
}

// find is the take that answers a request.
func (p *player) find(req *llm.Request) (*take, error) {
	doc, err := p.canonical(req)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := doc.sum()
	key := fmt.Sprintf("%x/%s", sum, req.IdempotencyKey)
	if t := p.given[key]; t != nil && req.IdempotencyKey != "" {
		return t, nil
	}
	same := p.same[sum]
	t := unplayed(same)
	if t == nil {
		if t, err = p.nearest(doc, same); err != nil {
			return nil, err
		}
	}
	t.played = true
	p.given[key] = t
	return t, nil
}

func unplayed(takes []*take) *take {
	for _, t := range takes {
		if !t.played {
			return t
		}
	}
	return nil
}

// nearest is the take for a request of which no equal one is left: the last of the equal ones, which are
// same, or the most similar of those that were not played yet, or of all if all were. In a strict match it is
// an error that tells what differs.
func (p *player) nearest(doc document, same []*take) (*take, error) {
	if n := len(same); n > 0 {
		if p.cfg.Match == Strict {
			return nil, faulty("the request was recorded %d times in %s, and is made once more: start the server again to play it from its beginning, record the run again, or set models.cassette.match=nearest", n, p.cfg.Path)
		}
		return same[n-1], p.report(Drift{Similarity: 1, Reused: true})
	}
	sketch := doc.sketch()
	all := unplayed(p.takes) == nil
	var best *take
	for _, t := range p.takes {
		if (all || !t.played) && (best == nil || t.sketch.like(sketch) > best.sketch.like(sketch)) {
			best = t
		}
	}
	if best == nil {
		return nil, faulty("%s has calls for vectors alone, and no request of this kind: record the run again", p.cfg.Path)
	}
	was, err := p.canonical(&best.Request)
	if err != nil {
		return nil, err
	}
	changes := differences(was, doc)
	if p.cfg.Match == Strict {
		return nil, faulty("no request in %s is equal; the nearest differs in %s; record the run again, or set models.cassette.match=nearest", p.cfg.Path, changes[0])
	}
	return best, p.report(Drift{Similarity: best.sketch.like(sketch), Reused: best.played, Changes: changes})
}

// driftEnd is the end of the name of a report.
const driftEnd = ".drift.jsonl"

// report writes down that a request was answered by a take that is not equal.
func (p *player) report(d Drift) error {
	fields := make([]string, len(d.Changes))
	for i, c := range d.Changes {
		fields[i] = c.Field
	}
	p.log.Warn("a model call drifted from its cassette", "similarity", d.Similarity, "reused", d.Reused, "fields", fields)
	err := p.write(d)
	if err != nil {
		err = faulty("what drifted cannot be reported beside %s: %v", p.cfg.Path, err)
	}
	return err
}

func (p *player) write(d Drift) error {
	if p.drift == nil {
		var err error
		if p.drift, err = os.OpenFile(ReportName(p.cfg.Path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil { //nolint:gosec // the operator's choice
			return err
		}
	}
	line, err := json.Marshal(d)
	if err != nil {
		return err
	}
	p.drifted++
	_, err = p.drift.Write(append(line, '\n'))
	return err
}

// ReportName is where the report of what drifted from a cassette goes. There is no such file without a drift.
func ReportName(path string) string {
	return strings.TrimSuffix(filepath.Clean(path), ".jsonl") + driftEnd
}
