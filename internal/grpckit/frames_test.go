package grpckit_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
)

// pieces is a call whose bytes come in pieces of one length. It counts the pieces that were read and not
// freed.
type pieces struct {
	rest []byte
	each int
	held int
	most int
}

// piece is one of them.
type piece struct {
	mem.Buffer
	of *pieces
}

func (p piece) Free() {
	p.of.held--
	p.Buffer.Free()
}

func (p *pieces) ReadMessageHeader(header []byte) error {
	_, err := io.ReadFull(bytes.NewReader(p.rest), header)
	if err == nil {
		p.rest = p.rest[len(header):]
	}
	return err
}

func (p *pieces) Read(n int) (data mem.BufferSlice, err error) {
	for read := 0; n > 0; {
		if len(p.rest) == 0 {
			data.Free()
			if read > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, io.EOF
		}
		size := min(n, p.each, len(p.rest))
		data = append(data, piece{mem.SliceBuffer(p.rest[:size]), p})
		p.rest, n, read = p.rest[size:], n-size, read+size
		p.held++
		p.most = max(p.most, p.held)
	}
	return data, nil
}

// message is n bytes with what announces length of them.
func message(length, n int) []byte {
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(length))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return append(head, b...)
}

// TestFrames holds how many pieces of a message are held at once, and that none is lost.
func TestFrames(t *testing.T) {
	t.Parallel()
	next := func(t *testing.T, p *pieces) (mem.BufferSlice, error) {
		t.Helper()
		share := inflight.New(64 << 20).Share("a")
		t.Cleanup(share.Free)
		f := grpckit.Frames{Source: p, Share: &share, Weight: 1, Max: 8 << 20}
		return f.Next(t.Context())
	}
	const large = 3<<20 + 17
	for name, tc := range map[string]struct {
		size, each, most, left int
	}{
		"Empty":              {0, 32, 0, 0},
		"Small/Whole":        {100, 16 << 10, 1, 1},
		"Small/InPieces":     {1000, 32, 32, 0},
		"Large/InPieces":     {large, 32, 512 << 10 / 32, 0},
		"Large/InGoodPieces": {large, 16 << 10, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := message(tc.size, tc.size)
			p := &pieces{rest: all, each: tc.each}
			data, err := next(t, p)
			require.NoError(t, err)
			require.True(t, bytes.Equal(all[5:], data.Materialize()))
			require.LessOrEqual(t, p.most, tc.most)
			require.LessOrEqual(t, p.held, tc.left)
			data.Free()
			require.Zero(t, p.held)
		})
	}
	for name, came := range map[string]int{"InAPiece": large / 2, "BetweenChunks": 64 << 10, "AtTheEnd": large - 1} {
		t.Run("CutOff/"+name, func(t *testing.T) {
			t.Parallel()
			for _, each := range []int{32, 16 << 10} {
				p := &pieces{rest: message(large, came), each: each}
				_, err := next(t, p)
				require.Equal(t, grpckit.ReasonMessageCutOff, errs.ReasonOf(err), "got %v", err)
				require.Zero(t, p.held)
			}
		})
	}
}
