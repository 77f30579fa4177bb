// Package telegramtest is a server that speaks the Bot API of Telegram for one bot, as far as bots here
// use it: polls with an offset, of which there is one at a time, webhooks with a secret, messages, and
// refusals. It must not know what is tested.
package telegramtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Token is that of the bot. With more behind it, it is taken as well, so that bots of one test differ.
const Token = "123456:test-token-of-a-bot"

// Within bounds every wait of the server for something that is expected.
const Within = 60 * time.Second

// Message is what the bot sent.
type Message struct {
	Chat int64  `json:"chat_id"`
	Text string `json:"text"`
}

// Server is the server. It is safe for concurrent use.
type Server struct {
	// URL is its address, which stands for that of Telegram.
	URL string

	t       testing.TB
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when anything changes
	next    int64
	waiting []update
	sent    []Message
	// poll is the poll that is under way: a later one ends it.
	poll             int
	polls, conflicts int
	refusals         map[string]*refusal
	hook, secret     string
	pushed           []int // statuses of the answers of the webhook
}

type refusal struct{ times, code, retryAfter int }

type update struct {
	id   int64
	text json.RawMessage
}

// New starts a server, which ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, next: 1000, changed: make(chan struct{}), refusals: map[string]*refusal{}}
	srv := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// Says lets a user write a text in a chat, and returns the id of the update.
func (s *Server) Says(user, chat int64, text string) int64 {
	s.t.Helper()
	return s.Add(map[string]any{"message": map[string]any{
		"message_id": s.next, "date": 1, "text": text, "chat": map[string]any{"id": chat, "type": "private"},
		"from": map[string]any{"id": user, "is_bot": false, "first_name": "Ada", "last_name": fmt.Sprint(user)},
	}})
}

// Add adds any update, whose id it chooses, and pushes it if a webhook is set.
func (s *Server) Add(u map[string]any) int64 {
	s.t.Helper()
	s.mu.Lock()
	s.next++
	id := s.next
	u["update_id"] = id
	text, err := json.Marshal(u)
	s.waiting = append(s.waiting, update{id, text})
	hook, secret := s.hook, s.secret
	s.notify()
	s.mu.Unlock()
	require.NoError(s.t, err)
	if hook != "" {
		s.push(hook, secret, id, text)
	}
	return id
}

// Push sends an update with this secret to the webhook, and returns the status of the answer.
func (s *Server) Push(secret string, text []byte) int {
	s.t.Helper()
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	return s.post(hook, secret, text)
}

func (s *Server) push(hook, secret string, id int64, text []byte) {
	if status := s.post(hook, secret, text); status/100 == 2 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(id)
	}
}

func (s *Server) post(hook, secret string, text []byte) int {
	ctx, cancel := context.WithTimeout(context.Background(), Within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook, bytes.NewReader(text))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushed = append(s.pushed, resp.StatusCode)
	return resp.StatusCode
}

// Refuse has the next calls of a method fail with a code, and name a pause in seconds if it is not 0.
func (s *Server) Refuse(method string, times, code, retryAfter int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals[method] = &refusal{times, code, retryAfter}
}

// Sent waits until the bot sent this many messages and returns all.
func (s *Server) Sent(n int) []Message {
	s.t.Helper()
	var out []Message
	s.Until(fmt.Sprintf("%d messages were sent", n), func() bool {
		out = append([]Message(nil), s.sent...)
		return len(out) >= n
	})
	return out
}

// Webhook waits until a webhook is set and returns it.
func (s *Server) Webhook() (address, secret string) {
	s.t.Helper()
	s.Until("a webhook is set", func() bool {
		address, secret = s.hook, s.secret
		return address != ""
	})
	return address, secret
}

// Confirmed waits until the bot has confirmed all updates.
func (s *Server) Confirmed() {
	s.t.Helper()
	s.Until("all updates are confirmed", func() bool { return len(s.waiting) == 0 })
}

// Polled waits until there were this many polls.
func (s *Server) Polled(n int) {
	s.t.Helper()
	s.Until(fmt.Sprintf("%d polls", n), func() bool { return s.polls >= n })
}

// Conflicts is how many polls were ended by another one.
func (s *Server) Conflicts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conflicts
}

// Until waits until a condition holds, which is looked at under the lock of the server.
func (s *Server) Until(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.After(Within)
	for {
		s.mu.Lock()
		ok, changed := holds(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Fail(s.t, "not in time: "+what, "sent %v, polls %d, updates that wait %d", s.sent, s.polls, len(s.waiting))
		}
	}
}

// notify tells those who wait that something changed. The lock is held.
func (s *Server) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// forget drops an update that was taken. The lock is held.
func (s *Server) forget(id int64) {
	for i, u := range s.waiting {
		if u.id == id {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			break
		}
	}
	s.notify()
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/bot"+Token)
	_, method, _ := strings.Cut(rest, "/")
	if !ok {
		fail(w, http.StatusUnauthorized, 0, "Unauthorized")
		return
	}
	var in struct {
		Message

		Offset  int64  `json:"offset"`
		Limit   int    `json:"limit"`
		Timeout int    `json:"timeout"`
		URL     string `json:"url"`
		Secret  string `json:"secret_token"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		fail(w, http.StatusBadRequest, 0, "Bad Request: cannot be read")
		return
	}
	if s.refused(w, method) {
		return
	}
	switch method {
	case "getUpdates":
		s.getUpdates(w, r, in.Offset, in.Limit, time.Duration(in.Timeout)*time.Second)
	case "sendMessage":
		s.sendMessage(w, in.Message)
	case "sendChatAction":
		done(w, true)
	case "setWebhook", "deleteWebhook":
		s.mu.Lock()
		s.hook, s.secret = in.URL, in.Secret
		s.notify()
		s.mu.Unlock()
		done(w, true)
	default:
		fail(w, http.StatusNotFound, 0, "Not Found")
	}
}

func (s *Server) refused(w http.ResponseWriter, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	no := s.refusals[method]
	if no == nil || no.times == 0 {
		return false
	}
	no.times--
	s.notify()
	fail(w, no.code, no.retryAfter, "refused by the test of "+Token)
	return true
}

func (s *Server) sendMessage(w http.ResponseWriter, m Message) {
	if strings.TrimSpace(m.Text) == "" || len([]rune(m.Text)) > 4096 {
		fail(w, http.StatusBadRequest, 0, "Bad Request: message text is empty or too long")
		return
	}
	s.mu.Lock()
	s.sent = append(s.sent, m)
	s.notify()
	s.mu.Unlock()
	done(w, m)
}

func (s *Server) getUpdates(w http.ResponseWriter, r *http.Request, offset int64, limit int, wait time.Duration) {
	s.mu.Lock()
	if s.hook != "" {
		s.mu.Unlock()
		fail(w, http.StatusConflict, 0, "Conflict: can't use getUpdates method while webhook is active")
		return
	}
	for len(s.waiting) > 0 && s.waiting[0].id < offset {
		s.waiting = s.waiting[1:]
	}
	s.poll++
	s.polls++
	mine := s.poll
	s.notify()
	s.mu.Unlock()
	deadline := time.After(wait)
	for over := false; ; {
		s.mu.Lock()
		if s.poll != mine {
			s.conflicts++
			s.mu.Unlock()
			fail(w, http.StatusConflict, 0, "Conflict: terminated by other getUpdates request")
			return
		}
		out := []json.RawMessage{}
		for _, u := range s.waiting {
			if u.id >= offset && len(out) < limit {
				out = append(out, u.text)
			}
		}
		changed := s.changed
		s.mu.Unlock()
		if len(out) > 0 || over {
			done(w, out)
			return
		}
		select {
		case <-changed:
		case <-deadline:
			over = true
		case <-r.Context().Done():
			return
		}
	}
}

func done(w http.ResponseWriter, result any) {
	write(w, http.StatusOK, map[string]any{"ok": true, "result": result})
}

func fail(w http.ResponseWriter, code, retryAfter int, description string) {
	m := map[string]any{"ok": false, "error_code": code, "description": description}
	if retryAfter > 0 {
		m["parameters"] = map[string]any{"retry_after": retryAfter}
	}
	write(w, code, m)
}

func write(w http.ResponseWriter, code int, m map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(m) // the client may have left
}
