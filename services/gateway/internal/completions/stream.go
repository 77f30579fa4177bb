package completions

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// stream answers with pieces as the agent writes them.
func (t *talk) stream(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	s := &stream{t: t, w: w, rc: http.NewResponseController(w), created: time.Now().Unix()}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold pieces back
	w.WriteHeader(http.StatusOK)
	empty := ""
	if s.piece(&said{Role: "assistant", Content: &empty}, nil) != nil {
		return
	}
	a, err := t.answer(ctx, s.text, s.idle)
	if r.Context().Err() != nil {
		return // the client is gone
	}
	if err != nil {
		_ = s.event(t.Error(err))
		return
	}
	// What was not streamed comes at the end: the whole answer, or the rest of it.
	rest, said := strings.CutPrefix(a.text, s.written.String())
	if !said {
		if rest = a.text; strings.HasSuffix(s.written.String(), a.text) {
			rest = ""
		} else if s.written.Len() > 0 {
			rest = "\n\n" + rest
		}
	}
	if rest != "" && s.text(rest) != nil {
		return
	}
	s.end(a)
}

// stream writes the pieces of an answer.
type stream struct {
	t       *talk
	w       http.ResponseWriter
	rc      *http.ResponseController
	created int64
	// written is what was said so far. It is no longer than an answer of a model.
	written strings.Builder
}

func (s *stream) text(text string) error {
	s.written.WriteString(text)
	return s.piece(&said{Content: &text}, nil)
}

// idle keeps proxies from closing a silent connection.
func (s *stream) idle() error { return s.write([]byte(": keep-alive\n\n")) }

func (s *stream) piece(delta *said, finish *string) error {
	return s.chunk(&completion{Choices: []choice{{Delta: delta, Finish: finish}}})
}

func (s *stream) chunk(c *completion) error {
	c.ID, c.Object, c.Created, c.Model = "chatcmpl-"+s.t.run, "chat.completion.chunk", s.created, s.t.model
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.event(b)
}

func (s *stream) end(a *answer) {
	finish := "stop"
	last := &completion{Choices: []choice{{Delta: &said{}, Finish: &finish}}, Epigraph: s.t.about(a)}
	if s.chunk(last) != nil {
		return
	}
	if s.t.With.Usage && s.chunk(&completion{Choices: []choice{}, Usage: &a.usage}) != nil {
		return
	}
	_ = s.event([]byte("[DONE]")) // the client is gone if this fails
}

func (s *stream) event(data []byte) error {
	return s.write(append(append([]byte("data: "), data...), "\n\n"...))
}

func (s *stream) write(b []byte) error {
	// Not every writer has deadlines; then the connection's own limits hold.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.t.WriteTimeout))
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.rc.Flush()
}
