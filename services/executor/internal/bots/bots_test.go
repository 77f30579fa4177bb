package bots

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit/telegramtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workflow"
)

// kept is a store of deliveries that outlives executors, and takes an event once.
type kept struct {
	mu    sync.Mutex
	specs []workflow.Trigger
	// order are the texts of the deliveries, calls counts what was received.
	order []string
	ids   map[string]bool
	calls int
	fails int
}

func (k *kept) Active(_ context.Context, kind string, after trigger.Key, _ int) (out []trigger.Trigger, _ error) {
	for _, x := range k.specs {
		if x.Type == kind && after.ID < x.ID {
			out = append(out, trigger.Trigger{Key: trigger.Key{Namespace: "default", ID: x.ID}, Spec: x})
		}
	}
	return out, nil
}

func (k *kept) Receive(_ context.Context, e trigger.Event) (trigger.Delivery, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.fails > 0 {
		k.fails--
		return trigger.Delivery{}, errors.New("the database is away")
	}
	if key := e.Trigger.ID + "/" + e.ID; !k.ids[key] {
		k.ids[key] = true
		var m event
		if err := json.Unmarshal(e.Body, &m); err != nil {
			return trigger.Delivery{}, err
		}
		k.order = append(k.order, e.Trigger.ID+" "+m.Text)
	}
	return trigger.Delivery{}, nil
}

func (k *kept) texts() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.order...)
}

func telegramOf(id string, change func(*workflow.Trigger)) workflow.Trigger {
	x := workflow.Trigger{ID: id, Type: workflow.TelegramTrigger, Bot: "helper"}
	if change != nil {
		change(&x)
	}
	return x
}

// executor runs bots as one executor does, until stop.
func executor(t *testing.T, s *telegramtest.Server, k *kept, carry func(context.Context, trigger.Delivery), mine func() bool) (stop func()) {
	t.Helper()
	if carry == nil {
		carry = func(context.Context, trigger.Delivery) {}
	}
	b, err := New(Config{Bots: map[string]Bot{"helper": {Token: conf.NewSecret(telegramtest.Token), APIURL: s.URL}}}, Deps{
		Triggers: k, CarryOut: carry, Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler),
		Asked: func(_ context.Context, _ *trigger.Trigger, chat int64) (bool, error) { return chat == 5, nil },
		Mine:  func(context.Context) (bool, error) { return mine(), nil },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func yes() bool { return true }

func TestPoll(t *testing.T) {
	t.Parallel()
	fresh := func(specs ...workflow.Trigger) *kept { return &kept{specs: specs, ids: map[string]bool{}} }
	t.Run("WhoDiesBeforeTheUpdateIsConfirmedDoublesNothing", func(t *testing.T) {
		t.Parallel()
		s, k := telegramtest.New(t), fresh(telegramOf("a", nil))
		s.Says(1, 1, "one")
		died := make(chan struct{})
		hangs := make(chan struct{})
		defer close(hangs)
		// The first executor has the delivery, and does nothing any more.
		executorHangs(t, s, k, died, hangs)
		<-died
		executor(t, s, k, nil, yes)
		s.Confirmed()
		require.Equal(t, []string{"a one"}, k.texts())
		require.Equal(t, 2, k.calls, "it came again")
	})
	t.Run("WhatIsNotDurableIsNotConfirmed", func(t *testing.T) {
		t.Parallel()
		s, k := telegramtest.New(t), fresh(telegramOf("a", nil))
		k.fails = 1
		s.Says(1, 1, "one")
		s.Says(1, 1, "two")
		executor(t, s, k, nil, yes)
		s.Confirmed()
		require.Equal(t, []string{"a one", "a two"}, k.texts())
	})
	t.Run("OneOfTwoExecutorsPolls", func(t *testing.T) {
		t.Parallel()
		s, k := telegramtest.New(t), fresh(telegramOf("a", nil))
		var second atomic.Bool
		stop := executor(t, s, k, nil, func() bool { return !second.Load() })
		executor(t, s, k, nil, second.Load)
		s.Says(1, 1, "one")
		s.Confirmed()
		require.Zero(t, s.Conflicts())
		second.Store(true)
		stop() // it has died
		s.Says(1, 1, "two")
		s.Confirmed()
		require.Equal(t, []string{"a one", "a two"}, k.texts())
		require.Zero(t, s.Conflicts())
	})
	t.Run("ChatsAndCommandsChooseAndAnswersAreHeard", func(t *testing.T) {
		t.Parallel()
		s := telegramtest.New(t)
		k := fresh(telegramOf("chat", func(x *workflow.Trigger) { x.Chats = []string{"3"} }), telegramOf("command", func(x *workflow.Trigger) { x.Commands = []string{"ask"} }),
			telegramOf("other", func(x *workflow.Trigger) { x.Bot = "another" }))
		s.Says(1, 3, "in the chat")
		s.Says(1, 4, "/ask@helper_bot x")
		s.Says(1, 4, "/other")
		s.Says(1, 5, "an answer")
		executor(t, s, k, nil, yes)
		s.Confirmed()
		require.Equal(t, []string{"chat in the chat", "command /ask@helper_bot x", "command an answer"}, k.texts())
	})
}

// executorHangs runs an executor that hangs, without an end, once it has made a delivery.
func executorHangs(t *testing.T, s *telegramtest.Server, k *kept, died chan<- struct{}, until <-chan struct{}) {
	t.Helper()
	b, err := New(Config{Bots: map[string]Bot{"helper": {Token: conf.NewSecret(telegramtest.Token), APIURL: s.URL}}}, Deps{
		Triggers: k, Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler),
		Mine:     func(context.Context) (bool, error) { return true, nil },
		CarryOut: func(context.Context, trigger.Delivery) { close(died); <-until },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		p := poller{bots: b, bot: b.bots["helper"], pause: minPause}
		_ = p.once(ctx) // it never gets to the next poll, which would confirm
	}()
}

func TestPushed(t *testing.T) {
	t.Parallel()
	k := &kept{specs: []workflow.Trigger{telegramOf("a", nil)}, ids: map[string]bool{}}
	b, err := New(Config{Bots: map[string]Bot{"helper": {Token: conf.NewSecret(telegramtest.Token), Mode: Webhook, PublicURL: "https://x"}}},
		Deps{Triggers: k, CarryOut: func(context.Context, trigger.Delivery) {}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	secret := b.bots["helper"].secret()
	require.NotContains(t, secret, "test-token")
	const body = `{"update_id":5,"message":{"message_id":1,"text":"hi","chat":{"id":3},"from":{"id":4}}}`
	for _, c := range [][3]string{{"default", "telegram/other", secret}, {"default", "telegram/helper", "x"}, {"default", "telegram/helper", ""}, {"elsewhere", "telegram/helper", secret}} {
		require.ErrorIs(t, b.Pushed(t.Context(), c[0], c[1], c[2], []byte(body)), signature.ErrRefused, "%v", c)
	}
	require.NoError(t, b.Pushed(t.Context(), "default", "telegram/helper", secret, []byte("not an update")), "or it would come again and again")
	require.Empty(t, k.texts())
	require.NoError(t, b.Pushed(t.Context(), "default", "telegram/helper", secret, []byte(body)))
	require.Equal(t, []string{"a hi"}, k.texts())
}

func TestSaid(t *testing.T) {
	t.Parallel()
	ended := func(state, result string) *webhook.Message {
		return &webhook.Message{Type: webhook.RunEnded, State: "RUN_STATE_" + state, Result: json.RawMessage(result)}
	}
	require.Equal(t, "hi", said(ended("COMPLETED", `{"text":"hi"}`)))
	require.Empty(t, said(ended("COMPLETED", "null")))
	require.Equal(t, textFailed, said(ended("FAILED", "")))
	require.Equal(t, textStopped, said(ended("CANCELED", "")))
	require.Equal(t, textTooLarge, said(&webhook.Message{Type: webhook.RunEnded, State: "RUN_STATE_COMPLETED", ResultOmitted: true}))
	require.Empty(t, said(&webhook.Message{Type: webhook.RunPaused}))
}

// TestDeliver sends what was said by itself, and not again at the end.
func TestDeliver(t *testing.T) {
	t.Parallel()
	s := telegramtest.New(t)
	b, err := New(Config{Bots: map[string]Bot{"helper": {Token: conf.NewSecret(telegramtest.Token), APIURL: s.URL}}}, Deps{Transport: http.DefaultTransport, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	told := webhook.Hook{Chat: &webhook.Chat{Bot: "helper", ID: "3"}, Events: []webhook.Event{webhook.RunEnded, webhook.ChatSaid}}
	before := told
	before.Events = []webhook.Event{webhook.RunEnded} // of a run that an older release started
	ended := webhook.Message{Type: webhook.RunEnded, State: completed, Result: json.RawMessage(`"the answer"`)}
	for _, x := range []webhook.Delivery{
		{Hook: told, Message: webhook.Message{Type: webhook.ChatSaid, Text: "I look."}}, {Hook: told, Message: ended}, {Hook: before, Message: ended},
		{Hook: told, Message: webhook.Message{Type: webhook.RunEnded, State: "RUN_STATE_FAILED"}},
	} {
		require.Equal(t, webhook.Delivered, b.Deliver(t.Context(), &x, 1).Outcome)
	}
	var texts []string
	for _, m := range s.Sent(3) {
		texts = append(texts, m.Text)
	}
	require.Equal(t, []string{"I look.", "the answer", textFailed}, texts)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	good := Bot{Token: conf.NewSecret("1:a")}
	require.NoError(t, Config{Bots: map[string]Bot{"a": good, "b": {Token: conf.NewSecret("1:b"), Mode: Webhook, PublicURL: "https://x.example"}}}.Validate())
	for name, c := range map[string]map[string]Bot{
		"Name": {"A B": good}, "NoToken": {"a": {}}, "SameToken": {"a": good, "b": good}, "Namespace": {"a": {Token: good.Token, Namespace: "A"}},
		"Mode": {"a": {Token: good.Token, Mode: "push"}}, "NoPublicURL": {"a": {Token: good.Token, Mode: Webhook}}, "Server": {"a": {Token: good.Token, APIURL: "ftp://x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Error(t, Config{Bots: c}.Validate())
		})
	}
}
