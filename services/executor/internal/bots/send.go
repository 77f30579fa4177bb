package bots

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/telegram"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/chat"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
)

// completed is the state of a run that has a result.
const completed = "RUN_STATE_COMPLETED"

// maxParts is how many messages one answer is cut into at most.
const maxParts = 5

// What is said in place of an answer.
const (
	textFailed   = "Sorry, that did not work."
	textStopped  = "This was stopped."
	textTooLarge = "The answer is too long for this chat."
)

// Deliver sends what happened in a run to the chat that the run belongs to, in the try of that number.
// An answer is sent at least once.
func (b *Bots) Deliver(ctx context.Context, x *webhook.Delivery, try int) webhook.Verdict {
	one := b.bots[x.Hook.Chat.Bot]
	text := said(&x.Message)
	if x.Message.State == completed && x.Hook.Wants(webhook.ChatSaid) {
		text = "" // its answer was said by itself
	}
	if one == nil {
		return webhook.Verdict{Outcome: webhook.GivenUp, Err: fmt.Errorf("there is no bot %q", x.Hook.Chat.Bot)}
	}
	id, err := strconv.ParseInt(x.Hook.Chat.ID, 10, 64)
	if err == nil {
		err = one.send(ctx, id, text)
	}
	if err == nil {
		return webhook.Verdict{Outcome: webhook.Delivered}
	}
	return verdict(ctx, err, try)
}

// Say sends a sentence to a chat, once and without a promise.
func (b *Bots) Say(ctx context.Context, name, chatID, text string) {
	id, err := strconv.ParseInt(chatID, 10, 64)
	if one := b.bots[name]; one != nil && err == nil {
		err = one.send(ctx, id, text)
	}
	if err != nil {
		b.Logger.InfoContext(ctx, "a sentence was not sent to a chat", "err", err, "bot", name)
	}
}

func (b *bot) send(ctx context.Context, id int64, text string) error {
	for _, part := range telegram.Split(text, maxParts) {
		if err := b.client.SendMessage(ctx, id, part); err != nil {
			return err
		}
	}
	return nil
}

// verdict says what follows from an error.
func verdict(ctx context.Context, err error, try int) webhook.Verdict {
	e, refused := errors.AsType[*telegram.Error](err)
	switch {
	case ctx.Err() != nil:
		return webhook.Verdict{Outcome: webhook.PutOff, Err: err}
	case refused && !e.Temporary(), try >= webhook.MaxTries:
		return webhook.Verdict{Outcome: webhook.GivenUp, Err: err}
	}
	return webhook.Verdict{Outcome: webhook.Again, Pause: max(webhook.Pause(try), retryAfter(err)), Err: err}
}

// retryAfter is how long the server wants to be left alone.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*telegram.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// said is what is sent of an event; nothing if there is nothing to say.
func said(m *webhook.Message) string {
	switch {
	case m.Type == webhook.InterruptOpened && m.Interrupt != nil:
		if m.Interrupt.Omitted {
			return textTooLarge
		}
		return chat.Question(m.Interrupt.Prompt, m.Interrupt.Schema)
	case m.Type == webhook.ChatSaid:
		return m.Text
	case m.Type != webhook.RunEnded:
		return ""
	case m.State == "RUN_STATE_CANCELED":
		return textStopped
	case m.State != completed:
		return textFailed
	case m.ResultOmitted:
		return textTooLarge
	}
	return chat.Text(m.Result)
}
