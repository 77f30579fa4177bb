// Package paced writes answers to callers that may be slow: piece by piece, each with a time limit of its
// own. It must not know the content.
package paced

import (
	"net/http"
	"slices"
	"time"
)

// pieceBytes is what an answer is written in.
const pieceBytes = 256 << 10

// Writer writes an answer piece by piece, so that a caller who takes nothing is given up soon, and one who
// takes little at a deadline.
type Writer struct {
	http.ResponseWriter

	rc       *http.ResponseController
	timeout  time.Duration
	deadline time.Time
}

// New returns a writer that gives each piece the timeout.
func New(w http.ResponseWriter, timeout time.Duration) *Writer {
	return &Writer{ResponseWriter: w, rc: http.NewResponseController(w), timeout: timeout}
}

// Until bounds the time for all that is written from now on, headers included.
func (p *Writer) Until(deadline time.Time) {
	p.deadline = deadline
	p.by(deadline)
}

func (p *Writer) Write(b []byte) (n int, err error) {
	for piece := range slices.Chunk(b, pieceBytes) {
		at := time.Now().Add(p.timeout)
		if !p.deadline.IsZero() && p.deadline.Before(at) {
			at = p.deadline
		}
		p.by(at)
		m, err := p.ResponseWriter.Write(piece)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// by sets the time of the next write. Not every writer has one; then the server's own limits hold.
func (p *Writer) by(at time.Time) { _ = p.rc.SetWriteDeadline(at) }

// Unwrap gives http.ResponseController the connection.
func (p *Writer) Unwrap() http.ResponseWriter { return p.ResponseWriter }
