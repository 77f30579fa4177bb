package conns

import (
	"encoding/binary"
	"strings"
)

// preface is what a client of HTTP/2 sends first.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Kinds and flags of frames, by RFC 9113.
const (
	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3
	headBytes    = 9
	flagEnd      = 0x1
)

// smallData is the size below which a data frame that does not end its stream costs more than it is worth: a
// buffer and a place in a queue for a few bytes. No client splits messages that small.
const smallData = 32

// perReset is how many other frames the end of a call counts as, since the call was begun. An answer of one
// frame pays for it.
const perReset = perAnswer

// frames goes over the frames of HTTP/2 that pass in one direction of a connection. The zero value is at the
// first of them.
type frames struct {
	head [headBytes]byte
	have int
	skip uint32 // of the frame that has begun
}

// next calls frame for each frame that begins in b.
func (f *frames) next(b []byte, frame func(kind, flags byte, length uint32)) {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(int64(f.skip), int64(len(b)))
			f.skip -= uint32(n)
			b = b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have < headBytes {
			return
		}
		f.have = 0
		f.skip = binary.BigEndian.Uint32(f.head[:]) >> 8
		frame(f.head[3], f.head[4], f.skip)
	}
}

// incoming counts the frames from a client that do no work. The zero value is at the first byte of a
// connection.
type incoming struct {
	frames
	begun int  // how much of the preface has come
	other bool // the protocol is not HTTP/2
	crumb bool // the last frame of data was one
}

// count returns the number of frames in b, or their equivalent, that are of no use to a call: all but headers
// and data, and small data frames in a row. Other protocols cost nothing.
func (i *incoming) count(b []byte) (idle int) {
	if !i.other && i.begun < len(preface) {
		n := min(len(preface)-i.begun, len(b))
		i.other = !strings.HasPrefix(preface[i.begun:], string(b[:n]))
		i.begun += n
		b = b[n:]
	}
	if i.other {
		return 0
	}
	i.next(b, func(kind, flags byte, length uint32) {
		switch kind {
		case frameHeaders:
		case frameData:
			// The last piece of a long message can be as small as any, but follows a large one.
			crumb := length < smallData && flags&flagEnd == 0
			if crumb && i.crumb {
				idle++
			}
			i.crumb = crumb
		case frameReset:
			idle += perReset
		default:
			idle++
		}
	})
	return idle
}

// outgoing counts the frames to a client that its answers are made of.
type outgoing struct{ frames }

func (o *outgoing) count(b []byte) (useful int) {
	o.next(b, func(kind, _ byte, _ uint32) {
		if kind == frameData || kind == frameHeaders {
			useful++
		}
	})
	return useful
}
