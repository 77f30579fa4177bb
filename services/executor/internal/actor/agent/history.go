package agent

import (
	"cmp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/prompt"
)

// history says how much the reasoner is told. It changes what is sent, never what a thread holds.
type history struct {
	// Messages is how many of the newest messages are told, or of the newest states in the prompt form.
	Messages int `json:"messages,omitempty"`
	// Tokens bounds what is told in one round, by llm.Estimate. The agent's call fills it in.
	Tokens int64 `json:"tokens,omitempty"`
	// Summarize has what is left out summarized.
	Summarize *summarize `json:"summarize,omitempty"`
}

// summarize says when a summary is made of the older part of a thread, and by what.
type summarize struct {
	// Above is how many tokens the thread may have before its older part is summarized, and Keep how many of
	// the newest are not. The agent's call fills them in.
	Above int64 `json:"above,omitempty"`
	Keep  int64 `json:"keep,omitempty"`
	// Profile is the model profile that summarizes, Actor an actor in place of a model.
	Profile string `json:"profile,omitempty"`
	Actor   string `json:"actor,omitempty"`
	// Prompt is a template that shows the older part as {conversation}.
	Prompt string `json:"prompt,omitempty"`

	template *prompt.Template
}

// Bounds of a history. A prompt of maxTokens stays within the payload that executors take by default.
const (
	minTokens     = 256
	maxTokens     = 400_000
	defaultTokens = 64 << 10
	maxMessages   = 1000
)

// Limits says how many tokens a call of llm may have with these names of a profile and a model: prompt and
// answer together, and the answer alone. 0 means that it is not known.
type Limits func(profile, model string) (context, answer int64)

// check reports what cannot be used, and makes the rest ready.
func (h *history) check(d *definition) error {
	if h.Messages < 1 || h.Messages > maxMessages {
		return badArgument("history", "history.messages must be from 1 to %d", maxMessages)
	}
	if h.Tokens != 0 && (h.Tokens < minTokens || h.Tokens > maxTokens) {
		return badArgument("history", "history.tokens must be from %d to %d", minTokens, maxTokens)
	}
	s := h.Summarize
	if s == nil {
		return nil
	}
	switch {
	case s.Above < 0 || s.Above > maxTokens || s.Above > 0 && s.Above < minTokens/2:
		return badArgument("history", "history.summarize.above must be from %d to %d", minTokens/2, maxTokens)
	case h.Tokens > 0 && s.Above > h.Tokens:
		return badArgument("history", "history.summarize.above is more than history.tokens: what is left out before it is reached is never summarized")
	case s.Keep < 0 || s.Keep > 0 && s.Above == 0 || s.Keep > s.Above/2:
		return badArgument("history", "history.summarize.keep must be at most half of above")
	case s.Profile != "" && s.Actor != "":
		return badArgument("history", "history.summarize: give one of profile and actor, or none")
	case d.Form == formPrompt && !d.template.Holds(prompt.Conversation):
		return badArgument("history", "history.summarize: the template has no {conversation}, where the summary is told")
	}
	return nil
}

// clamp keeps what is read within the bounds, whoever wrote the definition.
func (h *history) clamp() {
	h.Messages, h.Tokens = min(h.Messages, maxMessages), min(h.Tokens, maxTokens)
	if s := h.Summarize; s != nil {
		s.Above, s.Keep = min(s.Above, maxTokens), min(s.Keep, maxTokens/2)
	}
}

// parse reads the template of the prompt.
func (s *summarize) parse() (err error) {
	text := cmp.Or(s.Prompt, defaultSummaryPrompt)
	if s.template, err = prompt.Parse(text); err != nil {
		return badArgument("history", "history.summarize.prompt: %v", err)
	}
	for _, name := range prompt.Placeholders() {
		if s.template.Holds(name) != (name == prompt.Conversation) {
			return badArgument("history", "history.summarize.prompt: show what is summarized as {conversation}, which is the only placeholder here")
		}
	}
	return nil
}

const defaultSummaryPrompt = `Summarize the conversation below for the assistant that goes on with it. Keep what it needs: what the user wants, names, numbers, decisions, results, and what is still to be done. Leave out what no longer matters. Answer with the summary alone, in a few paragraphs at most.

{conversation}`

// bound fills in what the definition leaves open. Where it is known what the model of the reasoner takes,
// that is the bound: the context without the answer and what is sent besides.
func (d *definition) bound(limits Limits) {
	most := int64(0)
	if d.Reasoner == actorLLM && limits != nil {
		context, answer := limits(d.reasonerText("profile"), d.reasonerText("model"))
		if n := d.reasonerNumber("max_output_tokens"); n > 0 {
			answer = n
		}
		if context > 0 {
			// Estimates may be a tenth too low.
			most = min(max((context-answer)/10*9-d.fixed(), minTokens), maxTokens)
		}
	}
	h := &d.History
	switch {
	case h.Tokens == 0:
		h.Tokens = cmp.Or(most, defaultTokens)
	case most > 0:
		h.Tokens = min(h.Tokens, most)
	}
	if h.Summarize != nil {
		s := *h.Summarize // the definition of an agent with a name is shared
		s.Above = min(cmp.Or(s.Above, h.Tokens/4*3), h.Tokens)
		s.Keep = min(cmp.Or(s.Keep, s.Above/4), s.Above/2)
		h.Summarize = &s
	}
}

// fixed is how many tokens are sent in every round besides what is told.
func (d *definition) fixed() int64 {
	req := llm.Request{Messages: []llm.Message{{Role: "system", Content: d.instructions()}}}
	if d.Form == formTools {
		for _, t := range d.nativeTools() {
			req.Tools = append(req.Tools, llm.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
		}
	}
	return llm.Estimate(req)
}

// room is how many tokens are left of those that may be told in a round.
type room struct{ left int64 }

// take reserves the room of a text.
func (m *room) take(s string) string {
	m.left = max(0, m.left-llm.EstimateText(s))
	return s
}

// clip shortens a text to half of what is left, and takes it.
func (m *room) clip(s string) string { return m.take(errs.Clip(s, m.share())) }

// share is how many bytes are half of what is told in a round.
func (h *history) share() int { return (&room{left: h.Tokens}).share() }

// minShare is how many bytes of a text are told at least.
const minShare = 256

// share is how many bytes are half of what is left.
func (m *room) share() int { return max(minShare, int(m.left*tokenBytes/2)) }

// tokenBytes is how many bytes of a text in English are a token, and maxTokenBytes how many are one at most
// in any language, by llm.EstimateText.
const (
	tokenBytes    = 4
	maxTokenBytes = 8
)
