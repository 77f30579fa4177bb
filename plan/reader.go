package plan

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
