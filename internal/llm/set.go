package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

// Set is the configured models as one Model: a request names the profile. It is safe for concurrent use.
type Set struct {
	cfg      Config
	profiles map[string]*profile
	conns    *http.Transport
	// front stands before the profiles; nil if nothing does. plays says that it answers by itself.
	front Model
	plays bool
	// tape has calls for vectors; nil if none does.
	tape Tape
}

// Options are the collaborators of a Set. The zero value has none.
type Options struct {
	// Telemetry nil means none.
	Telemetry *obs.Telemetry
	// Governor nil governs nothing.
	Governor Governor
	// Around stands before the profiles, such as a cassette; nil means nothing. If it is an io.Closer, the
	// set closes it.
	Around func(Model) Model
	// Plays says that Around answers by itself and asks no profile. Its calls have spans and metrics all the
	// same.
	Plays bool
}

// profile is one profile with its model.
type profile struct {
	name     string
	cfg      Profile
	model    Model
	embedder Embedder
	account  Account
	extra    map[string]json.RawMessage
	governor Governor
	observer *observer
}

// Open returns the models of a valid configuration; they connect when first used.
func Open(cfg Config, providers map[string]Provider, o Options) (*Set, error) {
	if err := cfg.Validate(slices.Sorted(maps.Keys(providers))); err != nil {
		return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "models: %v", err)
	}
	if o.Telemetry == nil {
		o.Telemetry = obs.Noop()
	}
	watch, err := newObserver(o.Telemetry, cfg.CaptureContent)
	if err != nil {
		return nil, err
	}
	s := &Set{cfg: cfg, profiles: map[string]*profile{}, conns: connections(), plays: o.Plays}
	for name, c := range cfg.Profiles {
		model, err := providers[c.Provider](Endpoint{
			BaseURL: c.BaseURL, APIKey: c.APIKey, LegacyMaxTokens: c.LegacyMaxTokens,
			HTTP: httpClient(s.conns, int64(c.MaxResponseBytes), o.Telemetry),
		})
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "models.profiles.%s: %v", name, err)
		}
		p := &profile{name: name, cfg: c, model: careful{model}, governor: o.Governor, observer: watch, extra: map[string]json.RawMessage{}}
		for field, text := range c.Extra {
			p.extra[field] = json.RawMessage(text)
		}
		p.embedder, _ = model.(Embedder)
		if c.Account != "" && o.Governor != nil {
			p.account = Account{Name: c.Account, AccountLimits: cfg.Accounts[c.Account]}
		}
		s.profiles[name] = p
	}
	if o.Around != nil {
		s.front = o.Around(profiles{s})
		s.tape, _ = s.front.(Tape)
	}
	if o.Plays {
		s.front = played{set: s, player: s.front}
	}
	return s, nil
}

// Close drops idle connections.
func (s *Set) Close() error {
	s.conns.CloseIdleConnections()
	if c, ok := s.front.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Generate implements Model.
func (s *Set) Generate(ctx context.Context, req Request) (Response, error) {
	if err := req.Check(); err != nil {
		return Response{}, err
	}
	if s.front == nil {
		return given(s.call(ctx, &req, nil))
	}
	return s.front.Generate(ctx, req)
}

// Stream implements Model.
func (s *Set) Stream(ctx context.Context, req Request, delta func(Delta) error) (Response, error) {
	if err := req.Check(); err != nil {
		return Response{}, err
	}
	if s.front == nil {
		return given(s.call(ctx, &req, delta))
	}
	return s.front.Stream(ctx, req, delta)
}

// given is a response as a Model gives it. Within the set pointers are passed: a copy of each request and
// response would stand on the stack of a call that waits, once for each function that it goes through.
func given(out *Response, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	return *out, nil
}

// Names lists the profiles in order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.profiles)) }

// Resolve says which profile answers a request with these names, and its configuration with the model that is
// asked. The error is an *Error that names what is unknown.
func (s *Set) Resolve(profileName, model string) (name string, p Profile, err error) {
	found, model, err := s.find(profileName, model)
	if err != nil {
		return "", Profile{}, err
	}
	p = found.cfg
	p.Model = cmp.Or(model, p.Model)
	return found.name, p, nil
}

// Limits are how many tokens a request with these names may have, prompt and answer together, and how many
// its answer. A fallback may answer as well, so that the least of them counts. 0 means that it is not known.
func (s *Set) Limits(profileName, model string) (context, answer int64) {
	p, _, err := s.find(profileName, model)
	if err != nil {
		return 0, 0
	}
	answer = p.cfg.MaxOutputTokens
	for _, name := range append([]string{p.name}, p.cfg.Fallback...) {
		if n := s.profiles[name].cfg.ContextTokens; n > 0 && (context == 0 || n < context) {
			context = n
		}
	}
	return context, answer
}

// Account is the account of a profile, with an empty name if nothing limits its calls, and whether another
// profile may answer in its place.
func (s *Set) Account(profile string) (a Account, fallback bool) {
	p, ok := s.profiles[profile]
	if !ok {
		return Account{}, false
	}
	return p.account, len(p.cfg.Fallback) > 0
}

// find is the profile for a request, and the model if it is not the profile's own.
func (s *Set) find(name, model string) (*profile, string, error) {
	if name != "" {
		p, ok := s.profiles[name]
		if !ok {
			return nil, "", s.unknown(name)
		}
		return p, model, nil
	}
	if p, ok := s.profiles[model]; ok {
		return p, "", nil
	}
	byDefault := s.profiles[s.cfg.Default]
	if model == "" || model == byDefault.cfg.Model {
		return byDefault, "", nil
	}
	for _, n := range s.Names() {
		if s.profiles[n].cfg.Model == model {
			return s.profiles[n], "", nil
		}
	}
	return byDefault, model, nil
}

// unknown is the error about a profile that there is not.
func (s *Set) unknown(name string) *Error {
	hint := "the profiles are " + strings.Join(s.Names(), ", ")
	for _, other := range s.Names() {
		if _, ok := near.Within(name, other, len(name)/3+1); ok {
			hint = "did you mean " + other + "?"
		}
	}
	return &Error{Class: Permanent, Code: codeProfile, Message: fmt.Sprintf("there is no model profile %q; %s", errs.Clip(name, 100), hint)}
}

// profiles are the profiles of a set as a model.
type profiles struct{ set *Set }

// Generate implements Model.
func (p profiles) Generate(ctx context.Context, req Request) (Response, error) {
	return given(p.set.call(ctx, &req, nil))
}

// Stream implements Model.
func (p profiles) Stream(ctx context.Context, req Request, delta func(Delta) error) (Response, error) {
	return given(p.set.call(ctx, &req, delta))
}

// played are calls that a player answers in place of the profiles, observed as theirs are.
type played struct {
	set    *Set
	player Model
}

// Generate implements Model.
func (p played) Generate(ctx context.Context, req Request) (Response, error) {
	return p.call(ctx, req, nil)
}

// Stream implements Model.
func (p played) Stream(ctx context.Context, req Request, delta func(Delta) error) (Response, error) {
	return p.call(ctx, req, delta)
}

// Close closes the player.
func (p played) Close() error {
	if c, ok := p.player.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (p played) call(ctx context.Context, req Request, delta func(Delta) error) (Response, error) {
	of, model, err := p.set.find(req.Profile, req.Model)
	if err != nil {
		return Response{}, err
	}
	asked, as := req, *of
	asked.Profile, asked.Model = of.name, cmp.Or(model, of.cfg.Model)
	asked.MaxOutputTokens = cmp.Or(req.MaxOutputTokens, of.cfg.MaxOutputTokens)
	as.model = fixed{p.player, req}
	return given(as.observer.observe(ctx, &as, &asked, delta))
}

// fixed asks a model what was asked first: a cassette looks for a request as it was recorded.
type fixed struct {
	Model
	req Request
}

// Generate implements Model.
func (f fixed) Generate(ctx context.Context, _ Request) (Response, error) {
	return f.Model.Generate(ctx, f.req)
}

// Stream implements Model.
func (f fixed) Stream(ctx context.Context, _ Request, delta func(Delta) error) (Response, error) {
	return f.Model.Stream(ctx, f.req, delta)
}

// call asks the profile of a request, and then its fallbacks. delta is nil if the answer is wanted whole.
func (s *Set) call(ctx context.Context, req *Request, delta func(Delta) error) (*Response, error) {
	first, model, err := s.find(req.Profile, req.Model)
	if err != nil {
		return nil, err
	}
	began := false
	pass := delta
	if delta != nil {
		pass = func(d Delta) error {
			began = true
			return delta(d)
		}
	}
	var failed *Error
	for i, name := range append([]string{first.name}, first.cfg.Fallback...) {
		p := s.profiles[name]
		as := p.cfg.Model
		if i == 0 {
			as = cmp.Or(model, as)
		}
		out, err := p.answer(ctx, p.asked(req, as), pass, &began)
		if err == nil {
			if failed != nil {
				out.Earlier = slices.Concat(failed.Used, out.Earlier)
			}
			return out, nil
		}
		e := typed(err)
		failed = merge(failed, e, name)
		if began || ctx.Err() != nil || !e.standIn() && (i == 0 || e.Class == Unknown) {
			break
		}
	}
	return nil, failed
}

// asked is a request as the profile sends it, to one of its server's models.
func (p *profile) asked(req *Request, model string) *Request {
	out := *req
	out.Profile, out.Model = p.name, model
	out.MaxOutputTokens = cmp.Or(out.MaxOutputTokens, p.cfg.MaxOutputTokens)
	if len(p.extra) > 0 {
		out.Extra = maps.Clone(p.extra)
		maps.Copy(out.Extra, req.Extra)
	}
	return &out
}

// standIn reports whether another profile may be asked after this error: nothing was done, or nothing came.
func (e *Error) standIn() bool {
	return e.Class == Retryable || e.Class == NotPerformed || e.Code == codeFirstToken || e.Code == codeContext
}

// merge is the error of a chain of profiles after one more has failed: that of the first, unless a later one
// may have done the work, or is the first one that has room for the request.
func merge(failed, e *Error, name string) *Error {
	if failed == nil {
		return e
	}
	out := *failed
	if failed.Code == codeContext {
		out = *e
	}
	out.Message = errs.Clip(failed.Message+"; fallback "+name+": "+e.Message, maxMessage)
	out.Err = errors.Join(failed.Err, e)
	out.Used = slices.Concat(failed.Used, e.Used)
	if e.Class == Unknown {
		out.Class, out.Status, out.Code, out.RetryAfter = e.Class, e.Status, e.Code, 0
		return &out
	}
	if e.RetryAfter > 0 && e.Class == Retryable {
		out.RetryAfter = min(cmp.Or(out.RetryAfter, e.RetryAfter), e.RetryAfter)
	}
	return &out
}

func typed(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Class: Unknown, Code: "CONNECTION", Message: "the model call failed", Err: err}
}

// backoff is the wait before the second call of a profile when the server names none; it doubles.
const backoff = 250 * time.Millisecond

// answer asks one profile, as often as its retry rule says.
func (p *profile) answer(ctx context.Context, req *Request, delta func(Delta) error, began *bool) (*Response, error) {
	wait := backoff
	var spent []Spent
	for attempt := 1; ; attempt++ {
		out, err := p.once(ctx, req, delta)
		if err == nil {
			out.Earlier = spent
			return out, nil
		}
		of := *typed(err)
		spent = append(spent, of.Used...)
		e := &of
		e.Used = spent
		if *began || attempt >= p.cfg.Retry.Attempts || e.Class != Retryable && e.Class != NotPerformed {
			return nil, e
		}
		pause := wait/2 + rand.N(wait/2) //nolint:gosec // jitter
		wait *= 2
		if e.RetryAfter > 0 {
			pause = e.RetryAfter
		}
		if pause > p.cfg.Retry.MaxWait || !sleep.For(ctx, pause) {
			return nil, e
		}
	}
}

// once makes one call of the provider.
func (p *profile) once(ctx context.Context, req *Request, delta func(Delta) error) (*Response, error) {
	estimate := Estimate(*req)
	if err := p.fits(estimate, req.MaxOutputTokens); err != nil {
		return nil, err
	}
	permit, err := p.admit(ctx, Usage{Input: estimate, Output: req.MaxOutputTokens})
	if err != nil {
		return nil, err
	}
	var sent atomic.Bool
	ctx = withSent(ctx, func() {
		sent.Store(true)
		if permit != nil {
			permit.Sent()
		}
	})
	var streamed int64 // tokens, as estimated
	if next := delta; next != nil {
		delta = func(d Delta) error {
			streamed += estimateDelta(&d)
			return next(d)
		}
	}
	out := &Response{}
	if permit != nil {
		err = &Error{Class: Unknown, Code: "PANIC", Message: "the client of the model server panicked"}
		defer func() { permit.Done(out.Usage, p.refusal(req, err)) }()
	}
	out, err = p.observer.observe(ctx, p, req, delta)
	if err = p.book(out, err, req, estimate, streamed, sent.Load()); err != nil {
		return nil, err
	}
	return out, nil
}

// book completes the answer of a call, or its error, with what is booked. An estimate stands for usage that
// the server did not report.
//
//go:noinline
func (p *profile) book(out *Response, err error, req *Request, estimate, streamed int64, sent bool) error {
	out.Profile = p.name
	out.Provider, out.Model = p.cfg.Booked(cmp.Or(out.Model, req.Model))
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && (out.Usage.Known || e.Class == Unknown && sent) {
			// A server that was asked and not heard to the end has worked all the same.
			e.Used = []Spent{{Profile: out.Profile, Provider: out.Provider, Model: out.Model, Usage: out.Usage.or(estimate, streamed)}}
		}
		return err
	}
	out.Usage = out.Usage.or(estimate, EstimateMessage(&out.Message))
	return nil
}

// refusal is the error of a call as the account should hear of it. That a model has no room which is not the
// profile's own says nothing of the account: whoever calls may name any model.
func (p *profile) refusal(req *Request, err error) *Error {
	e, _ := errors.AsType[*Error](err)
	if e == nil || req.Model == p.cfg.Model || e.Class != Retryable {
		return e
	}
	other := *e
	other.Class = Permanent
	return &other
}

// slack is by how much an estimate may be above the real number: see Estimate.
const slack = 1.25

// fits refuses a request that the model has no room for, or that states a longer answer than calls may. An
// estimate that is too high by its usual error refuses nothing.
func (p *profile) fits(estimate, output int64) error {
	if most := p.cfg.OutputLimit; output > most {
		return &Error{Class: Permanent, Code: codeContext, Message: fmt.Sprintf(
			"max_output_tokens is %d, but profile %s gives %d at most: lower it, or raise output_limit of the profile", output, p.name, most)}
	}
	most := p.cfg.ContextTokens
	if most == 0 || output <= most-int64(float64(estimate)/slack) {
		return nil
	}
	return &Error{Class: Permanent, Code: codeContext, Message: fmt.Sprintf(
		"the request has about %d tokens and max_output_tokens is %d, but profile %s takes %d together: shorten the conversation, lower max_output_tokens or ask another profile",
		estimate, output, p.name, most)}
}

// admit waits for room in the account of the profile; the permit is nil if nothing is governed.
func (p *profile) admit(ctx context.Context, estimate Usage) (Permit, error) {
	if p.governor == nil || p.account.Name == "" {
		return nil, nil //nolint:nilnil // no permit is needed
	}
	permit, err := p.governor.Admit(ctx, p.account, CallerOf(ctx), estimate)
	if err == nil {
		return permit, nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return nil, e
	}
	return nil, &Error{Class: NotPerformed, Code: "ACCOUNT_LIMIT", Message: "the call waited in vain for room in the limits of account " + p.account.Name, Err: err}
}
