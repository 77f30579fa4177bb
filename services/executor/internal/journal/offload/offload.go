// Package offload owns the form in which large values of runs are kept: compressed, or as objects of a blob
// store under the hash of their content, with a stub in their place. It stands between the engine and a
// journal, and both see plain bytes. It must not know what the values mean, nor where the rows are.
package offload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// Reasons of errors.
const (
	// ReasonBlobMissing is the reason when a value is not in the blob store, or there is no store any more.
	ReasonBlobMissing = "RUN_VALUE_MISSING"
	// ReasonBlobCorrupt is the reason when what the blob store holds is not what was stored.
	ReasonBlobCorrupt = "RUN_VALUE_CORRUPT"
)

var errForm = errors.New("the value is in no form that this release knows")

// Options tune an Offload.
type Options struct {
	// Store keeps large values; nil leaves them with the rows.
	Store *blob.Store
	// Over is the size from which on a value goes to Store; 0 means 256 KiB.
	Over int
	// Compress is the size from which on a value is compressed if that makes it smaller; 0 means never.
	Compress int
	// Cache is how many bytes of what was read from the store are kept at hand; 0 means 16 MiB.
	Cache int
	// Logger is told of values that could not be stored outside; nil discards.
	Logger *slog.Logger
}

// Offload packs what is written and unpacks what is read. It is safe for concurrent use.
type Offload struct {
	blobs journal.Blobs
	o     Options
	codec *codec
	cache *cache
	// graphs are compared by content, so that a hash need not be one.
	graphs graphForms
}

// tries and tryTime bound how long a write may wait for the blob store. After that its values stay in the
// rows.
const (
	tries   = 3
	tryTime = 15 * time.Second
)

// New returns an Offload whose account is kept by blobs.
func New(blobs journal.Blobs, o Options) (*Offload, error) {
	if o.Over <= 0 {
		o.Over = 256 << 10
	}
	if o.Cache <= 0 {
		o.Cache = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newCodec(o.Compress)
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	return &Offload{blobs: blobs, o: o, codec: c, cache: newCache(o.Cache)}, nil
}

// content is a value on its way to the store.
type content struct {
	ref  journal.BlobRef
	data []byte
}

// idle reports whether a value is kept as it is.
func (s *Offload) idle(b []byte) bool {
	return s.codec.idle(b) && (s.o.Store == nil || len(b) <= s.o.Over)
}

// untouched reports whether nothing in w needs another form. It is all that most writes cost.
func (s *Offload) untouched(w journal.Write) bool {
	a := w.Append
	if st := w.Start; st != nil {
		a = &st.Append
		r := &st.Run
		if !s.idle(r.Args) || !s.idle(r.Named) || !s.idle(r.Context) || !s.idle(r.Attachments) || !s.idle(r.Result) || !s.idle(r.Outputs) {
			return false
		}
	}
	if a == nil {
		return true
	}
	if a.Outcome != nil && (!s.idle(a.Outcome.Result) || !s.idle(a.Outcome.Outputs)) || !s.codec.idle(a.Graph) || !s.idle(a.Snapshot) {
		return false
	}
	for i := range a.Threads {
		if slices.ContainsFunc(a.Threads[i].Items, func(it thread.Item) bool { return !s.idle(it.Body) || !s.idle(it.Brief) }) {
			return false
		}
	}
	return !slices.ContainsFunc(a.Events, func(e journal.Event) bool { return !s.idle(e.Data) })
}

// Pack implements journal.Packer.
func (s *Offload) Pack(w journal.Write) (journal.Write, func(context.Context) journal.Write) {
	if s.untouched(w) {
		return w, nil
	}
	p := packing{s: s, outside: s.o.Store != nil}
	packed := p.write(w)
	if len(p.contents) == 0 {
		return packed, nil
	}
	return packed, func(ctx context.Context) journal.Write {
		if err := s.store(ctx, w.Namespace(), p.contents); err != nil {
			// Rows take them too: a store that is away holds no run up.
			s.o.Logger.WarnContext(ctx, "large values stay in the database", "err", err, "namespace", w.Namespace(), "run", w.RunID(), "values", len(p.contents))
			inside := packing{s: s}
			return inside.write(w)
		}
		return packed
	}
}

// packing is one write being packed.
type packing struct {
	s       *Offload
	outside bool
	// thread is the thread whose values are being packed; empty means that they are the run's.
	thread string
	// contents are what is to be stored, each once for each that refers to it.
	contents []content
}

func (p *packing) write(w journal.Write) journal.Write {
	if w.Start != nil {
		st := *w.Start
		r := &st.Run
		for _, v := range []*[]byte{&r.Args, &r.Named, &r.Context, &r.Attachments, &r.Result, &r.Outputs} {
			*v = p.value(*v)
		}
		st.Append = p.append(st.Append, r.GraphHash)
		return journal.Write{Start: &st}
	}
	a := p.append(*w.Append, w.Append.GraphHash)
	return journal.Write{Append: &a}
}

// append packs what hangs on a run. It comes last: the references are those of the whole write.
func (p *packing) append(a journal.Append, graph string) journal.Append {
	if a.Outcome != nil {
		o := *a.Outcome
		o.Result, o.Outputs = p.value(o.Result), p.value(o.Outputs)
		a.Outcome = &o
	}
	a.Graph, a.Snapshot, a.Events = p.s.graphs.compress(p.s.codec, graph, a.Graph), p.snapshot(a.Snapshot), p.events(a.Events)
	a.Threads = p.threads(a.Threads)
	a.Blobs = p.refs()
	return a
}

// threads packs items, whose values are those of their threads and not of the run.
func (p *packing) threads(as []thread.Append) []thread.Append {
	out := slices.Clone(as)
	for i := range out {
		p.thread = out[i].Thread
		out[i].Items = slices.Clone(out[i].Items)
		for j := range out[i].Items {
			it := &out[i].Items[j]
			it.Brief, it.Body = p.value(it.Brief), p.value(it.Body)
		}
	}
	p.thread = ""
	return out
}

func (p *packing) refs() []journal.BlobRef {
	var out []journal.BlobRef
	for i := range p.contents {
		out = append(out, p.contents[i].ref)
	}
	return out
}

func (p *packing) events(es []journal.Event) []journal.Event {
	out := make([]journal.Event, len(es))
	copy(out, es)
	for i := range out {
		out[i].Data = p.value(out[i].Data)
	}
	return out
}

// value packs a JSON text. The large values in it go outside one by one, so that a value that is passed on
// is the same object again.
func (p *packing) value(b []byte) []byte {
	if !p.outside || len(b) <= p.s.o.Over {
		return p.s.codec.compress(b)
	}
	found := spans(b, p.s.o.Over)
	left := len(b)
	for _, sp := range found {
		left -= sp.to - sp.from
	}
	if left > p.s.o.Over {
		found, left = []span{{0, len(b)}}, 0
	}
	return p.cut(b, found, left, false)
}

// snapshot packs what is no text, and what seldom is still large when it is compressed.
func (p *packing) snapshot(b []byte) []byte {
	out := p.s.codec.compress(b)
	if !p.outside || len(out) <= p.s.o.Over {
		return out
	}
	return p.cut(b, []span{{0, len(b)}}, 0, true)
}

func (p *packing) cut(b []byte, found []span, left int, snapshot bool) []byte {
	pieces := make([]piece, len(found))
	rest := make([]byte, 0, left)
	at := 0
	for i, sp := range found {
		data := b[sp.from:sp.to]
		pieces[i] = piece{skip: sp.from - at, size: len(data), hash: sha256.Sum256(data)}
		rest = append(rest, b[at:sp.from]...)
		at = sp.to
		p.add(content{journal.BlobRef{Hash: pieces[i].hash, Size: int64(len(data)), Snapshot: snapshot, Thread: p.thread}, data})
	}
	return p.s.codec.cut(pieces, append(rest, b[at:]...))
}

func (p *packing) add(c content) {
	for i := range p.contents {
		if p.contents[i].ref == c.ref {
			return
		}
	}
	p.contents = append(p.contents, c)
}

// store puts contents where they are found, those that are not there yet.
func (s *Offload) store(ctx context.Context, namespace string, contents []content) (err error) {
	refs := make([]journal.BlobRef, len(contents))
	for i := range contents {
		refs[i] = contents[i].ref
	}
	wait := 50 * time.Millisecond
	for try := range tries {
		if try > 0 {
			if !sleep.For(ctx, wait) {
				return errors.Join(ctx.Err(), err)
			}
			wait *= 4
		}
		// What was noted before is noted again: the grace time counts from the last note.
		if err = s.storeOnce(ctx, namespace, refs, contents); err == nil || errors.Is(err, errDoomed) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

var errDoomed = errors.New("a blob is being removed just now")

func (s *Offload) storeOnce(ctx context.Context, namespace string, refs []journal.BlobRef, contents []content) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	states, err := s.blobs.NoteBlobs(ctx, namespace, refs)
	if err != nil {
		return fmt.Errorf("note blobs: %w", err)
	}
	for i, st := range states {
		switch st {
		case journal.BlobDoomed:
			return errDoomed
		case journal.BlobNew:
			if err := s.o.Store.Put(ctx, objectName(namespace, refs[i].Hash), s.codec.compress(contents[i].data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Holds reports whether a value is where it should be. Without a store none is.
func (s *Offload) Holds(ctx context.Context, name journal.BlobName) (bool, error) {
	if s.o.Store == nil {
		return false, nil
	}
	return s.o.Store.Holds(ctx, objectName(name.Namespace, name.Hash))
}

func objectName(namespace string, h journal.BlobHash) string {
	return namespace + "/" + hex.EncodeToString(h[:])
}

// unpack replaces a value by what it stands for.
func (s *Offload) unpack(ctx context.Context, namespace string, v *[]byte) error {
	b := *v
	if !isForm(b) {
		return inflight.Read(ctx, int64(len(b)))
	}
	if b[0] != formCut {
		plain, err := s.codec.expand(b)
		if err != nil {
			return corrupt("a value of the journal", err)
		}
		*v = plain
		return inflight.Read(ctx, int64(len(plain)))
	}
	pieces, rest, err := s.codec.parts(b)
	if err != nil {
		return corrupt("a value of the journal", err)
	}
	var out []byte
	for i := range pieces {
		p := &pieces[i]
		data, err := s.load(ctx, namespace, p)
		if err != nil {
			return err
		}
		if p.skip > len(rest) {
			return corrupt("a value of the journal", errForm)
		}
		if out == nil {
			out = make([]byte, 0, len(rest)+len(data)*len(pieces))
		}
		out = append(append(out, rest[:p.skip]...), data...)
		rest = rest[p.skip:]
	}
	*v = append(out, rest...)
	return inflight.Read(ctx, int64(len(*v)))
}

func (s *Offload) load(ctx context.Context, namespace string, p *piece) ([]byte, error) {
	key := journal.BlobName{Namespace: namespace, Hash: p.hash}
	if data := s.cache.get(key); data != nil {
		return data, nil
	}
	name := objectName(namespace, p.hash)
	if s.o.Store == nil {
		return nil, errs.New(errs.FailedPrecondition, ReasonBlobMissing, "the value %s is in a blob store, and none is configured", name).
			Hint("set the executor's blobs to the URL that it was written with")
	}
	raw, err := s.o.Store.Get(ctx, name, int64(p.size)+1)
	if errs.ReasonOf(err) == blob.ReasonMissing {
		return nil, errs.New(errs.FailedPrecondition, ReasonBlobMissing, "the value %s is not in the blob store", name).
			Hint("look whether the executor's blobs is the URL that it was written with, and whether something else removes its objects").With(err)
	} else if err != nil {
		return nil, err
	}
	data, err := s.codec.expand(raw)
	if err == nil && sha256.Sum256(data) != p.hash {
		err = errors.New("its hash differs")
	}
	if err != nil {
		return nil, corrupt("the object "+name, err)
	}
	s.cache.put(key, data)
	return data, nil
}

func corrupt(what string, err error) error {
	return errs.New(errs.FailedPrecondition, ReasonBlobCorrupt, "%s is not what was stored", what).Hint("restore it from a backup").With(err)
}
