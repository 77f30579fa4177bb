package plan

// Parse reads the plan in text. It never panics and returns no error: every fault is a diagnostic. It is pure and safe
// for concurrent use, and its time is linear in the length of the text.
func Parse(text string, opts ...Option) Result {
	var o options
	for _, f := range opts {
		f(&o)
	}
	return Result{NoPlan: &NoPlan{Reason: Prose, Message: "the text holds no plan in a known dialect"}}
}

// Reader reads a plan that is still being written.
type Reader struct {
	buf  []byte
	opts []Option
}

// NewReader returns an empty Reader.
func NewReader(opts ...Option) *Reader { return &Reader{opts: opts} }

// Write adds text. It never fails.
func (r *Reader) Write(p []byte) (int, error) { r.buf = append(r.buf, p...); return len(p), nil }

// Ready returns the problems and edges that are finished: no later text can change them.
func (r *Reader) Ready() Graph { return Graph{} }

// Close returns the result of the whole text.
func (r *Reader) Close() Result { return Parse(string(r.buf), r.opts...) }
