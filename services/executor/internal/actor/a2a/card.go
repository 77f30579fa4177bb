package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
)

const (
	// maxCard bounds a card in bytes, maxDescription what is told of it.
	maxCard, maxDescription = 256 << 10, 4 << 10
	// firstPause and longestPause bound the pause between two attempts to read a card.
	firstPause, longestPause = time.Second, time.Minute
	// streamFor is how long a stream holds a turn at most. Requests wait longer than that for theirs.
	streamFor = 30 * time.Second
	// maxCancels is how many cancels of one namespace wait for their turn. More are not sent.
	maxCancels = 1000
	// keepWithin is how long a card may take to be kept or recalled.
	keepWithin = 10 * time.Second
)

// agent is one configured agent. It is safe for concurrent use.
type agent struct {
	name      string
	cfg       Agent
	guard     egress.Guard
	transport *http.Transport
	http      *http.Client
	turns     *turns.Turns
	// cancels are turns of their own: a cancel does not wait behind the streams.
	cancels *turns.Turns
	// streamFor is how long a stream holds a turn.
	streamFor time.Duration
	log       *slog.Logger
	memory    Memory
	// stale has room for one request to read the card again.
	stale chan struct{}

	mu sync.Mutex
	// card is the last one, also of an earlier process; nil if there never was one.
	card *card
	// reading is closed at the end of the attempt under way.
	reading chan struct{}
	// down is why the last attempt failed, pause how long the next one waits, until again.
	down  error
	pause time.Duration
	again time.Time
}

// card is a card as calls use it. It is immutable.
type card struct {
	raw                  []byte
	description, version string
	streams              bool
	client               *a2aclient.Client
}

func newAgent(name string, cfg Agent, guard egress.Guard, d Deps) *agent {
	ag := &agent{name: name, cfg: cfg, guard: guard, transport: guard.Transport(), log: d.Logger, memory: d.Memory, stale: make(chan struct{}, 1), streamFor: min(streamFor, cfg.Timeout/2),
		// Half of the turns are for other namespaces.
		turns:   turns.Within(turns.Bounds{Key: max(1, cfg.Parallel/2), All: cfg.Parallel}),
		cancels: turns.Within(turns.Bounds{Key: max(1, cfg.Parallel/2), All: cfg.Parallel, Waiting: maxCancels})}
	ag.http = &http.Client{
		Transport: otelhttp.NewTransport(trip{ag}, otelhttp.WithTracerProvider(d.TracerProvider), otelhttp.WithPropagators(d.Propagator)),
		// The headers are for this agent and no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return ag
}

// unreachable is the error of an agent whose card cannot be read now.
type unreachable struct {
	agent string
	why   error
	after time.Duration
}

// Error says which and why.
func (u *unreachable) Error() string {
	return fmt.Sprintf("the card of the remote agent %q cannot be read: %v", u.agent, u.why)
}

// Unwrap is the reason.
func (u *unreachable) Unwrap() error { return u.why }

// known is the last card, nil if there never was one, and why it could not be read again.
func (ag *agent) known() (*card, error) {
	ag.mu.Lock()
	defer ag.mu.Unlock()
	if ag.down == nil {
		return ag.card, nil
	}
	return ag.card, &unreachable{agent: ag.name, why: ag.down}
}

// current is the card, read now if this executor never had one.
func (ag *agent) current(ctx context.Context) (*card, error) {
	ag.mu.Lock()
	defer ag.mu.Unlock()
	for ag.card == nil {
		if left := time.Until(ag.again); ag.down != nil && left > 0 && ag.reading == nil {
			return nil, &unreachable{ag.name, ag.down, left}
		}
		reading := ag.readSoon()
		ag.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		ag.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return ag.card, nil
}

// readSoon begins to read the card unless that is under way. It is called with ag.mu held.
func (ag *agent) readSoon() <-chan struct{} {
	if ag.reading == nil {
		ag.reading = make(chan struct{})
		go ag.read(ag.reading)
	}
	return ag.reading
}

// read reads the card. It ends by itself, whoever waits for it.
func (ag *agent) read(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), ag.cfg.Timeout)
	defer cancel()
	ag.recall(ctx)
	raw, err := ag.fetch(ctx)
	var c *card
	if err == nil {
		c, err = ag.parse(ctx, raw)
	}
	ag.mu.Lock()
	was := ag.card
	ag.reading = nil
	if err != nil {
		if ag.down == nil {
			ag.log.WarnContext(ctx, "card of remote agent not read", "agent", ag.name, "err", err)
		}
		ag.pause = min(max(firstPause, 2*ag.pause), longestPause)
		ag.down, ag.again = err, time.Now().Add(ag.pause)
	} else {
		ag.card, ag.down, ag.pause = c, nil, 0
	}
	ag.mu.Unlock()
	close(done)
	if err == nil && (was == nil || string(was.raw) != string(raw)) {
		ag.keep(raw)
	}
}

// fetch is the card as it is served.
func (ag *agent) fetch(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ag.cfg.cardURL(), nil)
	if err != nil {
		return nil, errors.New("the url cannot be read")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := ag.http.Do(req)
	if err != nil {
		return nil, told{err}
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the host answered with status %d", resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxCard+1))
	if err != nil {
		return nil, told{err}
	}
	if len(raw) > maxCard {
		return nil, fmt.Errorf("it has more than %d bytes", maxCard)
	}
	return raw, nil
}

// parse makes a card of what was served.
func (ag *agent) parse(ctx context.Context, raw []byte) (*card, error) {
	var c sdk.AgentCard
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("it is no card: %s", errs.Clip(err.Error(), maxWords))
	}
	var usable []*sdk.AgentInterface
	var elsewhere string
	for _, i := range c.SupportedInterfaces {
		if i == nil || i.ProtocolBinding != sdk.TransportProtocolJSONRPC && i.ProtocolBinding != sdk.TransportProtocolHTTPJSON {
			continue
		}
		u, err := url.Parse(i.URL)
		if err != nil || !ag.cfg.reaches(u) {
			if err == nil {
				elsewhere = u.Host
			}
			continue
		}
		usable = append(usable, i)
	}
	switch {
	case len(usable) == 0 && elsewhere != "":
		return nil, fmt.Errorf("it names the host %q, to which the credentials of this agent do not go: list it at a2a.agents.%s.hosts", errs.Clip(elsewhere, 100), ag.name)
	case len(usable) == 0:
		return nil, errors.New("it names no address with JSON-RPC or HTTP+JSON")
	}
	c.SupportedInterfaces = usable
	client, err := a2aclient.NewFactory(a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(ag.http), a2aclient.WithRESTTransport(ag.http)).CreateFromCard(ctx, &c)
	if err != nil {
		return nil, errors.New("it names no address with version 1 of the protocol")
	}
	sum := sha256.Sum256(raw)
	return &card{raw: raw, description: describe(&c), version: errs.Clip(clean(c.Version), 64) + "+" + hex.EncodeToString(sum[:4]), streams: c.Capabilities.Streaming, client: client}, nil
}

// describe says what an agent does, for people and models: its description and its skills, a line each.
func describe(c *sdk.AgentCard) string {
	var b strings.Builder
	b.WriteString(clean(c.Description))
	for _, s := range c.Skills {
		if b.Len() > maxDescription {
			break
		}
		fmt.Fprintf(&b, "\n- %s: %s", clean(s.Name), clean(s.Description))
	}
	return errs.Clip(strings.TrimSpace(b.String()), maxDescription)
}

func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// run keeps the card fresh until ctx ends.
func (ag *agent) run(ctx context.Context) {
	for ctx.Err() == nil {
		ag.mu.Lock()
		reading := ag.readSoon()
		ag.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return
		}
		ag.mu.Lock()
		wait := ag.cfg.Refresh
		if ag.down != nil {
			wait = ag.pause
		}
		ag.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-ag.stale:
		}
		t.Stop()
	}
}

// refresh asks for the card to be read again: the agent may have moved.
func (ag *agent) refresh() {
	select {
	case ag.stale <- struct{}{}:
	default:
	}
}

// keptCard is a card with the hash of the address that it was read from: the card of another address
// says nothing.
type keptCard struct {
	From string          `json:"from"`
	Card json.RawMessage `json:"card"`
}

func (ag *agent) target() string {
	sum := sha256.Sum256([]byte(ag.cfg.URL))
	return hex.EncodeToString(sum[:16])
}

// keep has a card kept for the next start.
func (ag *agent) keep(raw []byte) {
	if ag.memory == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepWithin)
	defer cancel()
	kept, err := json.Marshal(keptCard{ag.target(), raw})
	if err == nil {
		err = ag.memory.KeepTools(ctx, Prefix+ag.name, kept)
	}
	if err != nil {
		ag.log.WarnContext(ctx, "card of remote agent not kept", "agent", ag.name, "err", err)
	}
}

// recall takes the card that was kept last, if there is none yet.
func (ag *agent) recall(ctx context.Context) {
	if c, _ := ag.known(); c != nil || ag.memory == nil {
		return
	}
	raw, err := ag.memory.KeptTools(ctx, Prefix+ag.name)
	if err != nil {
		ag.log.WarnContext(ctx, "card of remote agent not recalled", "agent", ag.name, "err", err)
		return
	}
	var kept keptCard
	if len(raw) == 0 || json.Unmarshal(raw, &kept) != nil || kept.From != ag.target() {
		return
	}
	if c, err := ag.parse(ctx, kept.Card); err == nil {
		ag.mu.Lock()
		ag.card = c
		ag.mu.Unlock()
	}
}
