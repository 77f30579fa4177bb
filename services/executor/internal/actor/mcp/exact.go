package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The SDK reads structured content into Go values, where integers become floats and lose digits. So what a
// server sends passes here first: structured content is put into a text within a wrapper, which comes out of
// the SDK as it went in.

// wrapped is the key of the wrapper.
const wrapped = "epigraph.run/json"

// exact wraps the structured content of one message. Whatever is no such message stays as it is.
func exact(message []byte) []byte {
	if !bytes.Contains(message, []byte(`"structuredContent"`)) {
		return message
	}
	var outer, result map[string]json.RawMessage
	if json.Unmarshal(message, &outer) != nil || json.Unmarshal(outer["result"], &result) != nil {
		return message
	}
	content, ok := result["structuredContent"]
	if !ok || string(content) == "null" {
		return message
	}
	wrapper, err := json.Marshal(map[string]string{wrapped: string(content)})
	if err != nil {
		return message
	}
	result["structuredContent"] = wrapper
	if outer["result"], err = json.Marshal(result); err != nil {
		return message
	}
	if out, err := json.Marshal(outer); err == nil {
		return out
	}
	return message
}

// unwrap is the structured content of a result as the server wrote it.
func unwrap(content any) (json.RawMessage, error) {
	if m, ok := content.(map[string]any); ok && len(m) == 1 {
		if text, ok := m[wrapped].(string); ok && json.Valid([]byte(text)) {
			return json.RawMessage(text), nil
		}
	}
	return json.Marshal(content)
}

// tooLong is the error of a message beyond its bound.
type tooLong struct{ most int }

// Error says what the bound is.
func (e *tooLong) Error() string {
	return fmt.Sprintf("the server sent a message of more than %d bytes", e.most)
}

// pieces reads a stream that consists of pieces, and passes on what next makes of each.
type pieces struct {
	next func() ([]byte, error)
	rest []byte
	err  error
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		p.rest, p.err = p.next()
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// line is the next line of at most so many bytes, with its end.
func line(r *bufio.Reader, most int) ([]byte, error) {
	var out []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(out)+len(part) > most {
			return nil, &tooLong{most}
		}
		out = append(out, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return out, err
		}
	}
}

// messages reads the messages of a server's standard output, one a line. Lines that are no JSON, which some
// servers print by mistake, are left out.
func messages(r io.Reader, most int) io.Reader {
	in := bufio.NewReader(r)
	return &pieces{next: func() ([]byte, error) {
		text, err := line(in, most)
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] != '{' && text[0] != '[' {
			return nil, err
		}
		return append(exact(text), '\n'), err
	}}
}

// events reads a stream of server-sent events with one message each.
func events(r io.Reader, most int) io.Reader {
	in := bufio.NewReader(r)
	return &pieces{next: func() ([]byte, error) {
		var event, data []byte
		for {
			text, err := line(in, most-len(event))
			if err != nil {
				if _, long := errors.AsType[*tooLong](err); long {
					err = &tooLong{most}
				}
				return append(event, text...), err
			}
			event = append(event, text...)
			bare := bytes.TrimRight(text, "\r\n")
			if d, ok := bytes.CutPrefix(bare, []byte("data:")); ok {
				data = append(append(data, bytes.TrimPrefix(d, []byte(" "))...), '\n')
			}
			if len(bare) == 0 {
				break
			}
		}
		message := exact(bytes.TrimSpace(data))
		if !bytes.Contains(message, []byte(wrapped)) {
			return event, nil
		}
		var out []byte
		for text := range bytes.Lines(event) {
			if !bytes.HasPrefix(text, []byte("data:")) && len(bytes.TrimSpace(text)) > 0 {
				out = append(out, text...)
			}
		}
		return append(append(append(out, "data: "...), message...), "\n\n"...), nil
	}}
}

// bounded reads at most so many bytes, and fails beyond them.
func bounded(r io.Reader, most int) io.Reader {
	left := most
	return &pieces{next: func() ([]byte, error) {
		b := make([]byte, min(left+1, 32<<10))
		n, err := r.Read(b)
		if n > left {
			return nil, &tooLong{most}
		}
		left -= n
		return b[:n], err
	}}
}
