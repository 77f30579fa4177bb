// Package telegram owns the few calls of the Bot API of Telegram that bots here make, and the reading
// of what comes from there: long polls, messages, webhooks. Answers are bounded, and the token is in no
// error. It must not know what a message starts, nor when a call is tried again.
package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/retryafter"
)

const (
	// DefaultURL is the server of Telegram.
	DefaultURL = "https://api.telegram.org"
	// HeaderSecret has the secret of a webhook, in the requests of Telegram.
	HeaderSecret = "X-Telegram-Bot-Api-Secret-Token"
	// MaxUpdates is how many updates a poll brings at most.
	MaxUpdates = 100
	// MaxUpdate bounds the bytes of one update: what is larger is read as one without a message.
	MaxUpdate = 256 << 10

	// maxAnswer bounds what is read of an answer. A text has 4096 characters, so that 100 updates stay
	// far below.
	maxAnswer = 8 << 20
	// timeout bounds a call, besides the time that a poll waits.
	timeout = 15 * time.Second
	// maxWords bounds what an error holds of what a server wrote.
	maxWords = 300
)

// Error is a refusal by the server. It does not hold the token.
type Error struct {
	// Method is that of the Bot API, such as "sendMessage".
	Method string
	// Code is that of the answer, as in HTTP.
	Code        int
	Description string
	// RetryAfter is how long the server wants to be left alone; 0 if it does not say.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %d %s", e.Method, e.Code, e.Description) }

// Conflict reports whether another process polls the same bot, or a webhook is set for it.
func (e *Error) Conflict() bool { return e.Code == http.StatusConflict }

// Temporary reports whether the same call may succeed later.
func (e *Error) Temporary() bool {
	return e.Code == http.StatusTooManyRequests || e.Code == http.StatusConflict || e.Code >= 500
}

// Client calls the Bot API for one bot. It is safe for concurrent use.
type Client struct {
	base, token string
	http        *http.Client
}

// tokenForm is what tokens look like. Nothing in it changes the path of a request.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_:-]{1,256}$`)

// CheckToken returns the fault of a token, without it.
func CheckToken(token string) error {
	if !tokenForm.MatchString(token) {
		return errors.New("the token is none: @BotFather gives one like 123456:ABC-DEF")
	}
	return nil
}

// New returns a client for the bot with this token. An empty base is DefaultURL. The client's transport
// decides about proxies and certificates; redirects are not followed, since the path holds the token.
func New(token, base string, transport http.RoundTripper) (*Client, error) {
	if err := CheckToken(token); err != nil {
		return nil, err
	}
	if base == "" {
		base = DefaultURL
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%.200q is no address of a server: give one like %s", base, DefaultURL)
	}
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// GetUpdates returns the updates from an offset on, and waits for the first one. Those before the
// offset are forgotten by the server. An empty result is no error. What is no message comes as an
// update with an ID alone.
func (c *Client) GetUpdates(ctx context.Context, offset int64, wait time.Duration) ([]Update, error) {
	var raw []json.RawMessage
	err := c.call(ctx, "getUpdates", timeout+wait, map[string]any{
		"offset": offset, "limit": MaxUpdates, "timeout": int(wait / time.Second), "allowed_updates": []string{"message"},
	}, &raw)
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxUpdates {
		return nil, fmt.Errorf("getUpdates: %d updates in one answer, the limit is %d", len(raw), MaxUpdates)
	}
	out := make([]Update, 0, len(raw))
	for _, r := range raw {
		if u, err := ReadUpdate(r); err == nil { // one without an id cannot be told from others
			out = append(out, u)
		}
	}
	return out, nil
}

// SendMessage sends a text of at most MaxText characters to a chat: see Split. It is not repeatable: a
// call whose answer is lost may have been sent.
func (c *Client) SendMessage(ctx context.Context, chat int64, text string) error {
	return c.call(ctx, "sendMessage", timeout, map[string]any{"chat_id": chat, "text": text}, nil)
}

// SendTyping shows in a chat for some seconds that the bot writes.
func (c *Client) SendTyping(ctx context.Context, chat int64) error {
	return c.call(ctx, "sendChatAction", timeout, map[string]any{"chat_id": chat, "action": "typing"}, nil)
}

// SetWebhook has the server send updates to an address, with the secret in HeaderSecret. Polls fail
// from then on.
func (c *Client) SetWebhook(ctx context.Context, address, secret string) error {
	return c.call(ctx, "setWebhook", timeout, map[string]any{"url": address, "secret_token": secret, "allowed_updates": []string{"message"}}, nil)
}

// DeleteWebhook has the server keep updates for polls. Those that wait are kept.
func (c *Client) DeleteWebhook(ctx context.Context) error {
	return c.call(ctx, "deleteWebhook", timeout, map[string]any{"drop_pending_updates": false}, nil)
}

type answer struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter float64 `json:"retry_after"`
	} `json:"parameters"`
}

func (c *Client) call(ctx context.Context, method string, within time.Duration, arguments, result any) error {
	body, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("%s: encode: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/bot"+c.token+"/"+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: the address is none", method)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "epigraph")
	resp, err := c.http.Do(req)
	if err != nil {
		return c.failed(method, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return c.failed(method, err)
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("%s: the answer is larger than %d bytes", method, maxAnswer)
	}
	return c.read(method, resp, text, result)
}

// read reads an answer of the server. Proxies answer in forms of their own, by the status alone.
func (c *Client) read(method string, resp *http.Response, text []byte, result any) error {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil || !a.OK {
		e := &Error{Method: method, Code: resp.StatusCode, Description: c.without(a.Description)}
		if err == nil && a.Code != 0 {
			e.Code = a.Code
		}
		if e.Description == "" {
			e.Description = "the server did not say why"
		}
		if seconds := a.Parameters.RetryAfter; seconds > 0 {
			e.RetryAfter = retryafter.Bound(time.Duration(min(seconds, retryafter.Max.Seconds()) * float64(time.Second)))
		} else {
			e.RetryAfter = retryafter.Of(resp.Header)
		}
		return e
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("%s: the result is of another form", method)
	}
	return nil
}

// failed is the error of a call without an answer. Errors of HTTP hold the address, and so the token.
func (c *Client) failed(method string, err error) error {
	if cause, ok := errors.AsType[*url.Error](err); ok {
		err = cause.Err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", method, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no answer in time: %w", method, context.DeadlineExceeded)
	}
	return fmt.Errorf("%s: %s", method, c.without(err.Error()))
}

// without is a text of another side, bounded and without the token.
func (c *Client) without(text string) string {
	text = strings.ReplaceAll(text, c.token, "…")
	text = strings.ReplaceAll(text, url.PathEscape(c.token), "…")
	return strings.ToValidUTF8(text[:min(len(text), maxWords)], "")
}
