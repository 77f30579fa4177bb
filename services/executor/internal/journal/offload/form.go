package offload

import (
	"bytes"
	"encoding/binary"

	"github.com/klauspost/compress/zstd"
)

// Values are kept as they are unless their first byte is one of these. No JSON text, and nothing else that
// runs keep, begins with them.
const (
	// formPlain is followed by a value whose own first byte is one of these.
	formPlain = 0xe0
	// formZstd is followed by a frame.
	formZstd = 0xe1
	// formCut is followed by the number of pieces that are kept elsewhere, for each the length of what
	// stands before it, its own length and its hash, and then by the rest of the value, in a form itself.
	formCut = 0xe2

	formFirst, formLast = formPlain, formCut
)

func isForm(b []byte) bool { return len(b) > 0 && b[0] >= formFirst && b[0] <= formLast }

// worthwhile is the part of a value, of 16, that a frame may take: what saves less is kept as it is.
const worthwhile = 14

// codec compresses values. It is safe for concurrent use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
	// over is the size from which on it is tried; 0 means never.
	over int
}

func newCodec(over int) (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(256<<10), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, err
	}
	return &codec{enc: enc, dec: dec, over: over}, nil
}

// idle reports whether compress would return b itself without looking further.
func (c *codec) idle(b []byte) bool { return !isForm(b) && (c.over <= 0 || len(b) < c.over) }

// compress returns the shortest form of b that holds all of it.
func (c *codec) compress(b []byte) []byte {
	if c.over > 0 && len(b) >= c.over {
		out := make([]byte, 1, 1+len(b)/2)
		out[0] = formZstd
		if out = c.enc.EncodeAll(b, out); len(out) <= len(b)/16*worthwhile {
			return out
		}
	}
	if isForm(b) {
		return append([]byte{formPlain}, b...)
	}
	return b
}

// expand is the way back from compress.
func (c *codec) expand(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return b, nil
	}
	switch b[0] {
	case formPlain:
		return b[1:], nil
	case formZstd:
		return c.dec.DecodeAll(b[1:], nil)
	}
	return b, nil
}

// piece is a part of a value that is kept elsewhere: skip bytes after the one before it.
type piece struct {
	skip, size int
	hash       [32]byte
}

// cut renders a value of which these pieces are taken out.
func (c *codec) cut(pieces []piece, rest []byte) []byte {
	out := make([]byte, 0, 2+len(pieces)*(32+8)+len(rest))
	out = append(out, formCut)
	out = binary.AppendUvarint(out, uint64(len(pieces)))
	for i := range pieces {
		out = binary.AppendUvarint(out, uint64(pieces[i].skip))
		out = binary.AppendUvarint(out, uint64(pieces[i].size))
		out = append(out, pieces[i].hash[:]...)
	}
	return append(out, c.compress(rest)...)
}

// parts is the way back from cut.
func (c *codec) parts(b []byte) (pieces []piece, rest []byte, err error) {
	b = b[1:]
	number := func() int {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > 1<<40 {
			err = errForm
			return 0
		}
		b = b[k:]
		return int(n)
	}
	n := number()
	if err != nil || n > len(b)/34 {
		return nil, nil, errForm
	}
	for range n {
		p := piece{skip: number(), size: number()}
		if err != nil || len(b) < len(p.hash) {
			return nil, nil, errForm
		}
		b = b[copy(p.hash[:], b):]
		pieces = append(pieces, p)
	}
	if rest, err = c.expand(b); err != nil {
		return nil, nil, err
	}
	return pieces, rest, nil
}

// span is a piece of a text.
type span struct{ from, to int }

// spans returns the innermost values of the JSON text b that are longer than over, in order. Parts of a
// text that is no JSON are pieces as well.
func spans(b []byte, over int) []span {
	type frame struct {
		from int
		big  bool // something in it was taken
	}
	var out []span
	var open []frame
	value := func(from, to int, big bool) {
		if !big && to-from > over {
			out, big = append(out, span{from, to}), true
		}
		if big && len(open) > 0 {
			open[len(open)-1].big = true
		}
	}
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			open = append(open, frame{from: i})
		case '}', ']':
			if len(open) == 0 {
				return nil
			}
			f := open[len(open)-1]
			open = open[:len(open)-1]
			value(f.from, i+1, f.big)
		case '"':
			from := i
			if i = closing(b, i+1); i < 0 {
				return nil
			}
			next := bytes.TrimLeft(b[i+1:min(i+17, len(b))], " \t\r\n")
			if len(next) == 0 || next[0] != ':' {
				value(from, i+1, false)
			}
		}
	}
	return out
}

// closing returns where the quote is that ends the string whose text begins at i, or -1.
func closing(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for j := i - 1; j >= 0 && b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		i++
	}
}
