// Package webhook owns the messages to outside addresses about events of a run: which hooks want which
// events, the form and the signature of a message, and one try of a delivery with the verdict on its
// answer. It must not know how runs go on, nor how a failed delivery is repeated.
package webhook

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
)

// Event is an event of webhooks, by the name that receivers see as the type of a message.
type Event string

// The events. The names are stored and never change.
const (
	RunEnded        Event = "run.ended"
	RunPaused       Event = "run.paused"
	InterruptOpened Event = "interrupt.opened"
	// ChatSaid is of hooks of chats alone: a message was said there. Of such a hook the end of a run that
	// completed tells nothing, since its answer was said.
	ChatSaid Event = "chat.said"
)

// Hook is an address with the events it wants, in the form of the run's row. It prints without its
// secrets.
type Hook struct {
	URL string `json:"url"`
	// Events are the wanted events; none means RunEnded.
	Events  []Event           `json:"events,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Secret  string            `json:"secret,omitempty"`
	// Chat is set in place of an address for the chat that a run belongs to. No client can set it.
	Chat *Chat `json:"chat,omitempty"`
}

// Chat is a chat of a bot.
type Chat struct {
	Bot string `json:"bot"`
	ID  string `json:"id"`
}

// Wants reports whether the hook wants an event.
func (h Hook) Wants(e Event) bool {
	if len(h.Events) == 0 {
		return e == RunEnded
	}
	return slices.Contains(h.Events, e)
}

// Host is the part of the address that is no secret.
func (h Hook) Host() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// String names the host alone.
func (h Hook) String() string { return "webhook at " + h.Host() }

// GoString is String.
func (h Hook) GoString() string { return h.String() }

// LogValue is String.
func (h Hook) LogValue() slog.Value { return slog.StringValue(h.String()) }

// Wanting are the places of the hooks that want an event.
func Wanting(hooks []Hook, e Event) []int {
	var out []int
	for i := range hooks {
		if hooks[i].Wants(e) {
			out = append(out, i)
		}
	}
	return out
}

// Without are the hooks without their headers and secrets.
func Without(hooks []Hook) []Hook {
	out := slices.Clone(hooks)
	for i := range out {
		out[i].Headers, out[i].Secret = nil, ""
	}
	return out
}

// Reasons of hooks that are refused.
const (
	// ReasonInvalid is the reason of a hook that cannot get messages.
	ReasonInvalid = "WEBHOOK_INVALID"
	// ReasonAddress is the reason of an address that must not be reached.
	ReasonAddress = "WEBHOOK_ADDRESS_REFUSED"
)

const (
	// MaxHooks is how many webhooks a run has at most.
	MaxHooks = 8
	// MaxBytes is how much they take together: they are read with every row of a run.
	MaxBytes = 16 << 10

	maxURL         = 2048
	maxHeaders     = 16
	maxHeaderBytes = 8 << 10
)

// Check names every fault of the hooks, by their places in the request.
func Check(hooks []Hook, guard egress.Guard) error {
	if len(hooks) == 0 {
		return nil
	}
	var out *errs.Error
	bad := func(place, reason, what string) {
		if out == nil {
			out = errs.New(errs.InvalidArgument, reason, "%s %s", place, what)
		}
		out = out.Violate(place, reason, what)
	}
	if len(hooks) > MaxHooks {
		bad("webhooks", ReasonInvalid, fmt.Sprintf("has %d entries, the limit is %d", len(hooks), MaxHooks))
	}
	for i := range hooks {
		if hooks[i].Chat != nil {
			continue
		}
		place := "webhooks[" + strconv.Itoa(i) + "]"
		if reason, what := urlFault(hooks[i].URL, guard); what != "" {
			bad(place+".url", reason, what)
		}
		for j, e := range hooks[i].Events {
			if e != RunEnded && e != RunPaused && e != InterruptOpened {
				bad(place+".events", ReasonInvalid, fmt.Sprintf("has no known event at place %d", j+1))
			}
		}
		if what := headersFault(hooks[i].Headers); what != "" {
			bad(place+".headers", ReasonInvalid, what)
		}
		if _, err := signature.Key(hooks[i].Secret); err != nil {
			bad(place+".secret", ReasonInvalid, err.Error())
		}
	}
	if b, err := json.Marshal(hooks); err != nil || len(b) > MaxBytes {
		bad("webhooks", ReasonInvalid, fmt.Sprintf("take %d bytes together, the limit is %d", len(b), MaxBytes))
	}
	if out == nil {
		return nil
	}
	return out
}

func urlFault(text string, guard egress.Guard) (reason, what string) {
	if len(text) > maxURL {
		return ReasonInvalid, fmt.Sprintf("has %d bytes, the limit is %d", len(text), maxURL)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return ReasonInvalid, "is no address: give one like https://example.com/hook"
	case u.Scheme != "http" && u.Scheme != "https":
		return ReasonInvalid, fmt.Sprintf("has the scheme %q: give an address that begins with https:// or http://", u.Scheme)
	case u.Hostname() == "":
		return ReasonInvalid, "names no host: give one like https://example.com/hook"
	case u.User != nil:
		return ReasonInvalid, "has a user or password in it, and runs show their addresses: use the header authorization"
	case u.Fragment != "" || strings.Contains(text, "#"):
		return ReasonInvalid, "has a fragment, which is never sent"
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return ReasonInvalid, "has a port that is none"
		}
	}
	if err := guard.CheckHost(u.Hostname()); err != nil {
		return ReasonAddress, "is refused: " + err.Error()
	}
	return "", ""
}

// ours are the headers that the delivery sets itself.
var ours = []string{
	"Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization",
	"Te", "Trailer", "Upgrade", "Expect", "Accept-Encoding", "Traceparent", "Tracestate", "Baggage", signature.HeaderID, signature.HeaderTime, signature.HeaderSignature,
}

func headersFault(h map[string]string) string {
	if len(h) > maxHeaders {
		return fmt.Sprintf("has %d entries, the limit is %d", len(h), maxHeaders)
	}
	n := 0
	seen := make(map[string]bool, len(h))
	for k, v := range h {
		n += len(k) + len(v)
		name := http.CanonicalHeaderKey(k)
		switch {
		case !httpguts.ValidHeaderFieldName(k) || len(k) > 256:
			return fmt.Sprintf("has %.64q, which is no name of a header", k)
		case !httpguts.ValidHeaderFieldValue(v):
			return fmt.Sprintf("has a value of %q that cannot be sent", k)
		case slices.Contains(ours, name):
			return fmt.Sprintf("has %q, which is set by whoever sends", k)
		case seen[name]:
			return fmt.Sprintf("has %q twice", k)
		}
		seen[name] = true
	}
	if n > maxHeaderBytes {
		return fmt.Sprintf("has %d bytes, the limit is %d", n, maxHeaderBytes)
	}
	return ""
}

// AllHooks stands for the place of a hook and means every one that wants the event.
const AllHooks = -1

// Args say which delivery is meant. They hold nothing secret, since operators see them.
type Args struct {
	Namespace string `json:"namespace"`
	// RunID is the run in which it happened.
	RunID string `json:"run_id"`
	Event Event  `json:"event"`
	// Seq is the sequence of what happened, of a message in its thread.
	Seq int64 `json:"seq"`
	// Thread is that of a message.
	Thread string `json:"thread,omitempty"`
	// Hook is the place of the hook among those of its run, or AllHooks.
	Hook int `json:"hook"`
	// Of is the run that has the hook; empty means RunID.
	Of string `json:"of,omitempty"`
	// InterruptID is the interrupt that was opened.
	InterruptID string `json:"interrupt_id,omitempty"`
	// TraceParent and TraceState are the trace context of the run when it happened, in W3C form.
	TraceParent string `json:"trace_parent,omitempty"`
	TraceState  string `json:"trace_state,omitempty"`
}

// Holder is the run that has the hook.
func (a Args) Holder() string {
	if a.Of != "" {
		return a.Of
	}
	return a.RunID
}

// ID is the id of the delivery: the same for every try, and unique.
func (a Args) ID() string {
	if a.Thread != "" {
		return a.Said() + "/" + strconv.Itoa(a.Hook)
	}
	if a.InterruptID != "" {
		return a.InterruptID + "/" + strconv.Itoa(a.Hook)
	}
	return a.RunID + "/" + strconv.FormatInt(a.Seq, 10) + "/" + strconv.Itoa(a.Hook)
}

// Said names a message of a chat.
func (a Args) Said() string { return a.Thread + "/" + strconv.FormatInt(a.Seq, 10) }

// Job asks for the delivery.
func (a Args) Job() journal.Job {
	// Texts and numbers always marshal.
	b, _ := json.Marshal(a)
	return journal.Job{Kind: journal.JobWebhook, RunID: a.RunID, Args: b}
}

// DecodeArgs reads the arguments of a job.
func DecodeArgs(b []byte) (Args, error) {
	var a Args
	if err := json.Unmarshal(b, &a); err != nil {
		return a, errs.New(errs.InvalidArgument, ReasonInvalid, "the job does not say which delivery is meant").With(err)
	}
	return a, nil
}
