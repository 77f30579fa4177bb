package bots

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/telegram"
)

// The modes of a bot.
const (
	// Poll is the default: an executor asks for messages.
	Poll = "poll"
	// Webhook has Telegram send messages to the gateway.
	Webhook = "webhook"
)

// Config has the bots by name.
type Config struct {
	Bots map[string]Bot `help:"Telegram bots by name; each has token, namespace, mode (poll or webhook), public_url and api_url: docs/triggers.md"`
}

// Bot is one bot.
type Bot struct {
	Token conf.Secret `help:"token of the bot, from @BotFather"`
	// Namespace is whose workflows hear it.
	Namespace string `help:"namespace whose workflows hear the bot; default is default"`
	Mode      string `help:"how messages come: poll, which is the default, or webhook, which needs public_url"`
	PublicURL string `conf:"public_url" help:"address of the gateway as Telegram reaches it, such as https://api.example.org"`
	APIURL    string `conf:"api_url" help:"server of the Bot API; empty means that of Telegram"`
}

var nameForm = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	seen := map[[32]byte]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Bots)) {
		b := c.Bots[name]
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("bots.%s: %w", name, fmt.Errorf(format, args...)))
		}
		if !nameForm.MatchString(name) {
			fault("the name has small letters, digits, _ and -, 63 at most")
		}
		if _, err := b.client(nil); err != nil {
			fault("%w", err)
		}
		if other := seen[b.Token.Hash()]; other != "" && !b.Token.IsZero() {
			fault("it has the token of the bot %s, and only one can have the messages", other)
		}
		seen[b.Token.Hash()] = name
		if b.Namespace != "" && !grpckit.ValidNamespace(b.Namespace) {
			fault("namespace %.80q is not valid", b.Namespace)
		}
		switch u, err := url.Parse(b.PublicURL); {
		case b.Mode != "" && b.Mode != Poll && b.Mode != Webhook:
			fault("mode must be poll or webhook, got %.40q", b.Mode)
		case b.Mode != Webhook:
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
			fault("public_url must be the address of the gateway, such as https://api.example.org")
		}
	}
	return errors.Join(faults...)
}

func (b Bot) client(transport http.RoundTripper) (*telegram.Client, error) {
	return telegram.New(b.Token.Reveal(), b.APIURL, transport)
}

func (b Bot) namespace() string {
	if b.Namespace == "" {
		return grpckit.DefaultNamespace
	}
	return b.Namespace
}
