// Package bots carries messages between Telegram and workflows: what users write becomes deliveries of
// the triggers that wait for it, and what runs ask and answer is sent to the chat. It owns which
// executor polls a bot. It must not know how a run is started, nor how a delivery is kept.
package bots

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/telegram"
	"github.com/epigraph-run/epigraph/services/executor/internal/signature"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// pollWait is how long a poll waits for a message.
	pollWait = 25 * time.Second
	// turnPause is the pause between two looks whether it is this executor's turn to poll.
	turnPause = 2 * time.Second
	// minPause and maxPause bound the pause after a failure.
	minPause, maxPause = time.Second, time.Minute
	// batch is how many triggers are read at once.
	batch = 100
	// HookPrefix begins the paths of the webhooks of bots.
	HookPrefix = "telegram/"
)

// Triggers takes events. It is safe for concurrent use.
type Triggers interface {
	// Active lists up to limit active triggers of a kind after a key, of all namespaces.
	Active(ctx context.Context, kind string, after trigger.Key, limit int) ([]trigger.Trigger, error)
	// Receive makes a delivery of an event, once for an id.
	Receive(ctx context.Context, e trigger.Event) (trigger.Delivery, error)
}

// Deps are what Bots work with. All are required.
type Deps struct {
	Triggers Triggers
	// CarryOut carries a delivery out at once. What fails is done later.
	CarryOut func(ctx context.Context, d trigger.Delivery)
	// Asked reports whether a run of the trigger waits for an answer from the chat.
	Asked func(ctx context.Context, t *trigger.Trigger, chat int64) (bool, error)
	// Mine reports whether this executor is the one that polls. Two that both do it for a moment do no
	// harm: Telegram lets one poll at a time, and an update is taken once.
	Mine      func(ctx context.Context) (bool, error)
	Transport http.RoundTripper
	Logger    *slog.Logger
}

// Bots are the bots of an executor. They are safe for concurrent use.
type Bots struct {
	Deps

	bots map[string]*bot
}

type bot struct {
	Bot

	name   string
	client *telegram.Client
}

// New makes the bots of a valid configuration.
func New(cfg Config, d Deps) (*Bots, error) {
	out := &Bots{Deps: d, bots: map[string]*bot{}}
	for name, b := range cfg.Bots {
		c, err := b.client(d.Transport)
		if err != nil {
			return nil, fmt.Errorf("bots.%s: %w", name, err)
		}
		out.bots[name] = &bot{b, name, c}
	}
	return out, nil
}

// Run hears what users write, until ctx ends.
func (b *Bots) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range slices.Sorted(maps.Keys(b.bots)) {
		one := b.bots[name]
		g.Go(func() error {
			if one.Mode == Webhook {
				b.announce(ctx, one)
			} else {
				b.poll(ctx, one)
			}
			return nil
		})
	}
	return g.Wait()
}

// secret is what Telegram shows with the messages of a bot. It follows from the token, so that all
// executors know it, and does not reveal it.
func (b *bot) secret() string {
	mac := hmac.New(sha256.New, []byte(b.Token.Reveal()))
	mac.Write([]byte("webhook of a bot of epigraph"))
	return hex.EncodeToString(mac.Sum(nil))
}

// announce has Telegram send messages to the gateway.
func (b *Bots) announce(ctx context.Context, one *bot) {
	address := strings.TrimRight(one.PublicURL, "/") + "/v1/hooks/" + one.namespace() + "/" + HookPrefix + one.name
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := one.client.SetWebhook(ctx, address, one.secret())
		if err == nil || ctx.Err() != nil {
			return
		}
		b.Logger.WarnContext(ctx, "webhook of a bot not set", "err", err, "bot", one.name)
		if !sleep.For(ctx, max(pause, retryAfter(err))) {
			return
		}
	}
}

// poll asks for messages while it is this executor's turn.
func (b *Bots) poll(ctx context.Context, one *bot) {
	p := poller{bots: b, bot: one, pause: minPause}
	for ctx.Err() == nil {
		mine, err := b.Mine(ctx)
		if err != nil || !mine {
			// Whoever polls meanwhile confirms by itself what it took.
			p.offset, p.free = 0, false
			sleep.For(ctx, turnPause)
			continue
		}
		if err := p.once(ctx); err != nil && ctx.Err() == nil {
			b.Logger.WarnContext(ctx, "messages of a bot not read", "err", err, "bot", one.name, "pause", p.pause.String())
			sleep.For(ctx, max(p.pause, retryAfter(err)))
			p.pause = min(2*p.pause, maxPause)
		}
	}
}

// poller is the polling of one bot. The offset is not kept: Telegram brings again what was not
// confirmed, and a trigger takes an update once. So an update is confirmed after its deliveries are
// durable, and whoever dies between loses and doubles nothing.
type poller struct {
	bots   *Bots
	bot    *bot
	offset int64
	// free says that no webhook is set, which would have all messages.
	free  bool
	pause time.Duration
}

func (p *poller) once(ctx context.Context) error {
	if !p.free {
		if err := p.bot.client.DeleteWebhook(ctx); err != nil {
			return err
		}
		p.free = true
	}
	updates, err := p.bot.client.GetUpdates(ctx, p.offset, pollWait)
	if err != nil {
		return err
	}
	for i := range updates {
		if err := p.bots.take(ctx, p.bot, &updates[i]); err != nil {
			return err
		}
		p.offset = updates[i].ID + 1
	}
	p.pause = minPause
	return nil
}

// event is what a trigger is told of a message.
type event struct {
	Text      string        `json:"text"`
	Chat      string        `json:"chat_id"`
	User      telegram.User `json:"user"`
	MessageID int64         `json:"message_id"`
	Command   string        `json:"command,omitempty"`
	// Rest is the text behind the command.
	Rest string `json:"rest,omitempty"`
}

// take makes deliveries of an update. An error says that it is to be taken again.
func (b *Bots) take(ctx context.Context, one *bot, u *telegram.Update) error {
	if u.Chat == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	body, err := json.Marshal(event{Text: u.Text, Chat: number(u.Chat), User: u.User, MessageID: u.MessageID, Command: u.Command, Rest: u.Rest})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	after := trigger.Key{Namespace: one.namespace()}
	for {
		list, err := b.Triggers.Active(ctx, workflow.TelegramTrigger, after, batch)
		if err != nil {
			return err
		}
		for i := range list {
			if list[i].Namespace != one.namespace() {
				return nil // they come by namespace
			}
			if err := b.tell(ctx, one, &list[i], u, body); err != nil {
				return err
			}
		}
		if len(list) < batch {
			return nil
		}
		after = list[len(list)-1].Key
	}
}

// tell tells a trigger of a message, if it is one for it.
func (b *Bots) tell(ctx context.Context, one *bot, t *trigger.Trigger, u *telegram.Update, body json.RawMessage) error {
	if ok, err := b.wants(ctx, one, t, u); err != nil || !ok {
		return err
	}
	d, err := b.Triggers.Receive(ctx, trigger.Event{
		Trigger: t.Key, ID: one.name + "/" + number(u.ID), Body: body, At: time.Now(),
		Details: trigger.Details{User: UserID(u.User.ID), Chat: number(u.Chat)},
	})
	switch {
	case errs.ReasonOf(err) == trigger.ReasonNotActive || errs.ReasonOf(err) == trigger.ReasonNotFound:
		return nil // it ended meanwhile
	case errs.Is(err, errs.InvalidArgument):
		b.Logger.WarnContext(ctx, "a message to a bot is no event", "err", err, "bot", one.name)
		return nil
	case err != nil:
		return err
	}
	// The messages of a chat are carried out in their order, so the next one is not taken before.
	b.CarryOut(ctx, d)
	return nil
}

// wants reports whether a message is for a trigger. One that hears commands alone hears an answer, too.
func (b *Bots) wants(ctx context.Context, one *bot, t *trigger.Trigger, u *telegram.Update) (bool, error) {
	x := &t.Spec
	if x.Bot != one.name || len(x.Chats) > 0 && !slices.Contains(x.Chats, number(u.Chat)) {
		return false, nil
	}
	if len(x.Commands) == 0 || u.Command != "" && slices.ContainsFunc(x.Commands, func(c string) bool { return strings.EqualFold(c, u.Command) }) {
		return true, nil
	}
	if u.Command != "" {
		return false, nil
	}
	return b.Asked(ctx, t, u.Chat)
}

// Pushed takes an update that Telegram sent to the path of a webhook. The error is signature.ErrRefused
// if there is no such bot here, or the secret is not its.
func (b *Bots) Pushed(ctx context.Context, namespace, path, secret string, body []byte) error {
	one := b.bots[strings.TrimPrefix(path, HookPrefix)]
	if one == nil || one.Mode != Webhook || one.namespace() != namespace {
		return signature.ErrRefused
	}
	if err := signature.CheckText(one.secret(), secret); err != nil {
		return err
	}
	u, err := telegram.ReadUpdate(body)
	if err != nil {
		return nil // Telegram would send it again and again
	}
	return b.take(ctx, one, &u)
}

// UserID is whom the runs are for that a user of Telegram starts.
func UserID(id int64) string { return "telegram:" + number(id) }

func number(n int64) string { return strconv.FormatInt(n, 10) }
