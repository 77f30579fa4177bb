package feed

import (
	"sync"
	"unicode/utf8"
)

// maxSaid bounds the text of one kind that is kept of an attempt, in bytes.
const maxSaid = 64 << 10

// Said is what an attempt under way has written so far, for watchers that come later. The zero value has
// written nothing. It is safe for concurrent use.
type Said struct {
	mu   sync.Mutex
	of   Event // with the last piece
	text [2]saidText
	over bool
}

// saidText is the end of a text.
type saidText struct {
	text  []byte
	begin int64 // how many bytes came before
}

func (t *saidText) add(piece string) (offset int64) {
	offset = t.begin + int64(len(t.text))
	t.text = append(t.text, piece...)
	if n := len(t.text); n > maxSaid {
		cut := n - maxSaid/2
		for cut < n && !utf8.RuneStart(t.text[cut]) {
			cut++
		}
		t.begin += int64(cut)
		t.text = append(t.text[:0], t.text[cut:]...)
	}
	return offset
}

func kindOf(e *Ephemeral) int {
	if e.Raw {
		return 1
	}
	return 0
}

// Say publishes a piece of text of an attempt, whose Said s is.
func (f *Feed) Say(s *Said, ev Event) { f.hub.say(s, ev) }

// Silence forgets what an attempt said. Nothing more is published of it.
func (f *Feed) Silence(s *Said) { f.hub.silence(s) }

func (h *hub) say(s *Said, ev Event) {
	h.mu.RLock()
	known := h.tell(s, ev)
	h.mu.RUnlock()
	if known {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	if !s.over {
		s.of = ev
		enter(h.saying, ev.RunID, s)
		enter(h.sayingBelow, ev.RootID, s)
	}
	s.mu.Unlock()
	h.tell(s, ev)
}

// tell publishes a piece if the hub knows the attempt. The caller holds the lock of the hub.
func (h *hub) tell(s *Said, ev Event) (known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return true
	}
	if s.of.Ephemeral == nil {
		return false
	}
	s.of = ev
	ev.Ephemeral.Offset = s.text[kindOf(ev.Ephemeral)].add(ev.Ephemeral.Text)
	h.pass(false, ev)
	return true
}

func (h *hub) silence(s *Said) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.text = [2]saidText{}
	if s.of.Ephemeral != nil {
		leave(h.saying, s.of.RunID, s)
		leave(h.sayingBelow, s.of.RootID, s)
	}
}

// recall gives a sink what attempts have said so far. The caller holds the lock of the hub.
func recall(of map[*Said]struct{}, to sink) {
	for s := range of {
		s.mu.Lock()
		for kind := range s.text {
			if t := &s.text[kind]; len(t.text) > 0 {
				ev, e := s.of, *s.of.Ephemeral
				e.Text, e.Raw, e.Offset = string(t.text), kind == 1, t.begin
				ev.Ephemeral = &e
				to.put(ev, false)
			}
		}
		s.mu.Unlock()
	}
}

func enter[T comparable](m map[string]map[T]struct{}, id string, v T) {
	if m[id] == nil {
		m[id] = map[T]struct{}{}
	}
	m[id][v] = struct{}{}
}

func leave[T comparable](m map[string]map[T]struct{}, id string, v T) {
	if delete(m[id], v); len(m[id]) == 0 {
		delete(m, id)
	}
}
