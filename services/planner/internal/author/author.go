// Package author has a model write plans: it asks, checks the answer, and tells the model the faults until
// the plan can run or a limit is reached. It owns the prompts, the limits and the record of the rounds. It
// must not know the wire form of requests.
package author

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/genai"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/money"
	"github.com/epigraph-run/epigraph/plan"
)

// End is the reason for which an authoring ended.
type End string

// The reasons.
const (
	Complete    End = "COMPLETE"
	Rounds      End = "ROUNDS"
	Tokens      End = "TOKENS"
	Cost        End = "COST"
	Time        End = "TIME"
	NoProgress  End = "NO_PROGRESS"
	Declined    End = "DECLINED"
	ModelFailed End = "MODEL_FAILED"
	Busy        End = "BUSY"
)

// Limits narrow the configured ones for one plan. Zero fields mean as configured.
type Limits struct {
	Rounds    int
	MaxTokens int64
	// MaxCost is in nano-USD; nil means as configured.
	MaxCost *int64
	Timeout time.Duration
}

// Call is a call of a model as it is priced and booked.
type Call struct {
	Provider, Model string
	Usage           llm.Usage
	Time            time.Time
}

// Ledger prices and books calls. Costs are in nano-USD, in the order of the calls, nil where no price is
// known. Implementations are safe for concurrent use.
type Ledger interface {
	Price(ctx context.Context, namespace string, calls []Call) ([]*int64, error)
	// Book books the calls under id, each once, however often it is called.
	Book(ctx context.Context, namespace, id string, calls []Call) ([]*int64, error)
	// Reserve asks for what the nth call under id may use at most, before it is made. refusal says
	// whose cap leaves no room; it is empty if the call may be made.
	Reserve(ctx context.Context, namespace, id string, n int, most Call) (refusal string, err error)
	// Release gives back what is still reserved for the first so many calls under id. Booking a call settles
	// what was reserved for it.
	Release(ctx context.Context, namespace, id string, calls int) error
}

// Round is one answer of the model.
type Round struct {
	// Told is what the model was told for this round.
	Told, Text string
	// Profile is the one that answered.
	Profile string
	Call
	// Findings are the faults of the answer and its warnings.
	Findings []plan.Diagnostic
	Cost     *int64
	Duration time.Duration
}

// Report is the record of an authoring.
type Report struct {
	End End
	// Message is the reason in a sentence; empty if the plan is complete.
	Message string
	Rounds  []Round
	// Failed are calls that were paid and gave no answer of use.
	Failed []Failed
	// UsageID is the id under which the calls are booked; empty if they are not.
	UsageID string
}

// Failed is one call without an answer of use.
type Failed struct {
	Call
	Cost *int64
}

// Author writes plans. It is safe for concurrent use.
type Author struct {
	cfg    Config
	models *llm.Set
	ledger Ledger
	limits plan.Limits
	enter  Enter
	turns  admission.Control
	log    *slog.Logger
}

// Enter waits until computing of this cost may begin for the namespace of ctx. The cost is that of a text of
// so many bytes with so many elements.
type Enter func(ctx context.Context, textBytes, elements int) (leave func(), err error)

// turn is the share of a namespace in the calls of models that one authoring takes: a namespace has four at
// once.
const turn = admission.PerNamespace / 4

// New returns an author for a valid configuration. limits bound the plans that are read. ledger may be nil:
// then costs are not known, nothing is booked, and limits of money are refused. The models stay the caller's.
func New(cfg Config, models *llm.Set, limits plan.Limits, ledger Ledger, enter Enter, log *slog.Logger) (*Author, error) {
	if _, _, err := models.Resolve(cfg.Profile, ""); err != nil {
		return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "planner.author.profile: %v", err)
	}
	return &Author{cfg: cfg, models: models, ledger: ledger, limits: limits, enter: enter, log: log}, nil
}

// job is one authoring.
type job struct {
	namespace, profile string
	prompt             string
	limits             Limits
	// elements are the nodes and edges that a check goes over besides the text.
	elements int
	// draft hears of the answers while they are written; nil wants them whole.
	draft *draft
	// check reads an answer. An answer without errors among its findings ends the authoring. whole says that
	// the model ended its answer by itself.
	check func(ctx context.Context, text string, whole bool) ([]plan.Diagnostic, error)
	// confirm asks others about an answer without errors, outside of the turn of its check; nil asks nobody.
	confirm func(ctx context.Context) ([]plan.Diagnostic, error)
}

// minAnswer is the least room for an answer, in tokens, with which a model is asked.
const minAnswer = 256

// bookingTime bounds the booking, which goes on after the caller has gone.
const bookingTime = 5 * time.Second

// beginSpan begins the span of an authoring. The calls of models are below it.
func beginSpan(ctx context.Context) (context.Context, trace.Span) {
	return trace.SpanFromContext(ctx).TracerProvider().Tracer("github.com/epigraph-run/epigraph/services/planner").Start(ctx, genai.Plan,
		trace.WithAttributes(genai.OperationName.String(genai.Plan)))
}

// endSpan ends the span of an authoring. Its error type is the reason of the error, or the reason for which
// there is no plan.
func endSpan(span trace.Span, r Report, err error) {
	defer span.End()
	why := string(r.End)
	if e, ok := errors.AsType[*errs.Error](err); ok {
		why = e.Reason
	}
	if err == nil && r.End == Complete {
		return
	}
	span.SetStatus(codes.Error, why)
	span.SetAttributes(genai.ErrorType.String(cmp.Or(why, "_OTHER")))
}

// write runs the rounds. An error means that the caller's context ended, that too many wait, or that the
// request cannot be served as it is.
func (a *Author) write(ctx context.Context, j job) (report Report, err error) {
	name, asked, err := a.models.Resolve(cmp.Or(j.profile, a.cfg.Profile), "")
	if err != nil {
		return Report{}, errs.New(errs.InvalidArgument, "UNKNOWN_PROFILE", "%s", failure(err))
	}
	chain := []llm.Profile{asked}
	for _, other := range asked.Fallback {
		_, p, err := a.models.Resolve(other, "")
		if err != nil {
			return Report{}, fmt.Errorf("fallback of profile %s: %w", name, err)
		}
		chain = append(chain, p)
	}
	leave, err := a.turns.Enter(ctx, j.namespace, turn)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	ctx, span := beginSpan(ctx)
	defer func() { endSpan(span, report, err) }()
	w := writing{a: a, job: j, profile: name, chain: chain, system: a.system(), seen: map[string]bool{}, bounds: a.bounds(j.limits), id: ids.New("plan")}
	defer func() {
		w.book(ctx)
		report = w.report
	}()
	inner, cancel := context.WithTimeout(ctx, w.bounds.Timeout)
	defer cancel()
	err = w.rounds(llm.WithCaller(inner, j.namespace))
	switch {
	case ctx.Err() != nil:
		return Report{}, context.Cause(ctx)
	case err != nil && inner.Err() != nil:
		w.end(Time, "the time of %s was over", w.bounds.Timeout)
		return Report{}, nil
	}
	return Report{}, err
}

// system is the system message.
func (a *Author) system() string { return cmp.Or(a.cfg.Instructions, instructions) }

// asLong is how many bytes of a request there may be for each byte of a prompt, which leaves out white space.
const asLong = 8

// prepare builds the prompt of a request, and then what checks the answers, in a turn of computing. size
// is the length of the request, and given that of the texts for the prompt.
func (a *Author) prepare(ctx context.Context, given, size, elements int, prompt func() (string, error), check func() error) (string, error) {
	leave, err := a.enter(ctx, size, elements)
	if err != nil {
		return "", err
	}
	defer leave()
	n, text := given, ""
	if given <= asLong*a.cfg.MaxPromptBytes {
		if text, err = prompt(); err != nil {
			return "", err
		}
		n = len(a.system()) + len(text)
	}
	if n > a.cfg.MaxPromptBytes {
		return "", errs.New(errs.InvalidArgument, "PROMPT_TOO_LARGE", "the prompt would have %d bytes, %d at most", n, a.cfg.MaxPromptBytes).
			Hint("shorten the context, or give fewer tools")
	}
	return text, check()
}

// bounds are the limits of one authoring: the narrower of those of the request and of the configuration.
func (a *Author) bounds(l Limits) Limits {
	out := Limits{Rounds: a.cfg.Rounds, MaxTokens: a.cfg.MaxTokens, Timeout: a.cfg.Timeout}
	if l.Rounds > 0 {
		out.Rounds = min(out.Rounds, l.Rounds)
	}
	if l.MaxTokens > 0 {
		out.MaxTokens = min(out.MaxTokens, l.MaxTokens)
	}
	if l.Timeout > 0 {
		out.Timeout = min(out.Timeout, l.Timeout)
	}
	if a.cfg.MaxCost > 0 {
		out.MaxCost = &a.cfg.MaxCost
	}
	if l.MaxCost != nil && (out.MaxCost == nil || *l.MaxCost < *out.MaxCost) {
		out.MaxCost = l.MaxCost
	}
	return out
}

// writing is the state of one authoring.
type writing struct {
	a       *Author
	job     job
	profile string
	// chain are the profiles that may answer, the one that is asked first.
	chain  []llm.Profile
	system string
	bounds Limits
	// seen are the sets of faults that answers had.
	seen   map[string]bool
	tokens int64
	report Report
	// id is what calls are reserved and booked under, reserved for how many calls something may be
	// reserved.
	id       string
	reserved int
}

func (w *writing) end(why End, format string, args ...any) {
	w.report.End, w.report.Message = why, errs.Clip(fmt.Sprintf(format, args...), 1000)
}

func (w *writing) rounds(ctx context.Context) error {
	told := w.job.prompt
	for n := 1; ; n++ {
		if n > w.bounds.Rounds {
			w.end(Rounds, "the plan still has faults after %d answers", w.bounds.Rounds)
			return nil
		}
		req := w.request(told)
		room := w.bounds.MaxTokens - w.tokens - llm.Estimate(req)
		if room < minAnswer {
			w.end(Tokens, "the next round would use more than the limit of %d tokens", w.bounds.MaxTokens)
			return nil
		}
		req.MaxOutputTokens = min(w.a.cfg.MaxOutputTokens, room)
		ok, err := w.affordable(ctx, req)
		if err != nil && n > 1 && ctx.Err() == nil {
			w.end(Cost, "it is not known whether another round fits the limit of money: %s", errs.From(err).Message)
			return nil
		}
		if !ok || err != nil {
			return err
		}
		if ok, err = w.reserve(ctx, req, n-1); !ok || err != nil {
			return err
		}
		if n == 1 {
			told = w.system + "\n\n" + told
			if d := w.job.draft; d != nil {
				if err := d.to.Begin(ctx, w.bounds.Timeout); err != nil {
					return err
				}
			}
		}
		more, err := w.round(ctx, req, told)
		if !more || err != nil {
			return err
		}
		last := &w.report.Rounds[n-1]
		told = faultText(last.Text, last.Findings)
		if d := w.job.draft; d != nil {
			d.to.Round(last)
			if fixed := d.fixed(); fixed != "" {
				told += "\n\n" + fixed
			}
		}
	}
}

// request is the next call: the prompt, and with told the last answer and its faults.
func (w *writing) request(told string) llm.Request {
	m := []llm.Message{{Role: llm.System, Content: w.system}, {Role: llm.User, Content: w.job.prompt}}
	if n := len(w.report.Rounds); n > 0 {
		if text := w.report.Rounds[n-1].Text; strings.TrimSpace(text) != "" {
			m = append(m, llm.Message{Role: llm.Assistant, Content: errs.Clip(text, maxAnswer)}, llm.Message{Role: llm.User, Content: told})
		} else {
			m[1].Content += "\n\n" + told // servers refuse an empty answer
		}
	}
	return llm.Request{Profile: w.profile, Messages: m}
}

// round makes one call and reads the answer. more says that another round is of use.
func (w *writing) round(ctx context.Context, req llm.Request, told string) (more bool, err error) {
	begin := time.Now()
	resp, err := w.ask(ctx, req)
	if err != nil {
		if e, ok := errors.AsType[*llm.Error](err); ok {
			w.failed(e.Used, begin)
		}
		if ctx.Err() != nil {
			return false, err
		}
		w.end(ModelFailed, "the model did not answer: %s", failure(err))
		return false, nil
	}
	w.failed(resp.Earlier, begin)
	used := resp.Usage // an estimate if the server reported nothing
	w.tokens += used.Input + used.Output
	w.report.Rounds = append(w.report.Rounds, Round{
		Told: told, Text: resp.Message.Content, Profile: resp.Profile, Duration: time.Since(begin),
		Call: Call{Provider: resp.Provider, Model: resp.Model, Usage: used, Time: begin},
	})
	r := &w.report.Rounds[len(w.report.Rounds)-1]
	if resp.Refusal != "" || resp.FinishReason == llm.FinishContentFilter {
		w.end(Declined, "the model declined: %s", cmp.Or(strings.TrimSpace(resp.Refusal), "its filter ended the answer"))
		return false, nil
	}
	whole := resp.FinishReason != llm.FinishLength
	r.Findings, err = w.a.read(ctx, w.job, r.Text, whole)
	if err == nil && whole && w.job.confirm != nil && signature(r.Findings) == "" {
		var more []plan.Diagnostic
		more, err = w.job.confirm(ctx)
		r.Findings = append(r.Findings, more...)
	}
	switch {
	case errs.ReasonOf(err) == admission.ReasonBusy:
		w.end(Busy, "the answer was not checked: %s", errs.From(err).Message)
		return false, nil
	case err != nil:
		return false, err
	}
	if !whole {
		r.Findings = append(r.Findings, plan.Diagnostic{
			Code: plan.Truncated, Severity: plan.Error, Element: "plan",
			Message: fmt.Sprintf("the answer was cut off at its limit of %d tokens", req.MaxOutputTokens), Hint: "write fewer and shorter tasks",
		})
	}
	mark := signature(r.Findings)
	switch {
	case mark == "":
		w.end(Complete, "")
	case w.seen[mark]:
		w.end(NoProgress, "the answer has the same faults as one before")
	default:
		w.seen[mark] = true
		return true, nil
	}
	return false, nil
}

// ask makes one call, and lets the draft hear of the answer.
func (w *writing) ask(ctx context.Context, req llm.Request) (llm.Response, error) {
	d := w.job.draft
	if d == nil {
		return w.a.models.Generate(ctx, req)
	}
	d.begin(ctx)
	return w.a.models.Stream(ctx, req, func(piece llm.Delta) error { return d.write(ctx, piece.Text) })
}

// read checks an answer in its turn among those of the namespace.
func (a *Author) read(ctx context.Context, j job, text string, whole bool) ([]plan.Diagnostic, error) {
	leave, err := a.enter(ctx, len(text), j.elements)
	if err != nil {
		return nil, err
	}
	defer leave()
	return j.check(ctx, text, whole)
}

// affordable reports whether the money is enough for one more call at its greatest cost.
func (w *writing) affordable(ctx context.Context, req llm.Request) (bool, error) {
	if w.bounds.MaxCost == nil {
		return true, nil
	}
	most := *w.bounds.MaxCost
	calls := w.calls()
	past := len(calls)
	for _, p := range w.chain {
		provider, model := p.Booked(p.Model)
		calls = append(calls, Call{Provider: provider, Model: model, Usage: llm.Usage{Input: llm.Estimate(req), Output: req.MaxOutputTokens}, Time: time.Now()})
	}
	if w.a.ledger == nil {
		return false, unpriced(calls[past]).Hint("connect the planner to a registry (upstream.registry), or set no limit of money")
	}
	costs, err := w.a.ledger.Price(ctx, w.job.namespace, calls)
	if err != nil {
		return false, err
	}
	var sum, next int64
	for i, c := range costs {
		switch {
		case c == nil:
			return false, unpriced(calls[i]).Hint("set a price (CreatePrice), or set no limit of money")
		case i < past:
			sum += *c
		default:
			next += *c // a server that is cut off is paid as well as its fallback
		}
	}
	if sum+next > most {
		w.end(Cost, "the next round could cost more than the limit of %s", money.Dollars(most))
		return false, nil
	}
	return true, nil
}

// reserve asks the caps of the namespace for the next call, which is the nth. It is that of the profile
// that is asked first.
func (w *writing) reserve(ctx context.Context, req llm.Request, n int) (bool, error) {
	if w.a.ledger == nil {
		return true, nil
	}
	provider, model := w.chain[0].Booked(w.chain[0].Model)
	most := Call{Provider: provider, Model: model, Usage: llm.Usage{Input: llm.Estimate(req), Output: req.MaxOutputTokens}, Time: time.Now()}
	w.reserved = n + 1 // also if the answer is lost
	refusal, err := w.a.ledger.Reserve(ctx, w.job.namespace, w.id, n, most)
	if refusal != "" {
		w.end(Cost, "a cap leaves no room for the next round: %s", refusal)
	}
	if err != nil && n > 0 && ctx.Err() == nil {
		w.end(Cost, "it is not known whether a cap leaves room for another round: %s", errs.From(err).Message)
		return false, nil
	}
	return refusal == "", err
}

func unpriced(c Call) *errs.Error {
	return errs.New(errs.FailedPrecondition, "PRICE_UNKNOWN", "a limit of money cannot be kept: the price of %s/%s is not known", c.Provider, c.Model)
}

// failed adds calls that were paid and gave no answer of use.
func (w *writing) failed(spent []llm.Spent, begin time.Time) {
	for _, s := range spent {
		w.tokens += s.Usage.Input + s.Usage.Output
		w.report.Failed = append(w.report.Failed, Failed{Call: Call{Provider: s.Provider, Model: s.Model, Usage: s.Usage, Time: begin}})
	}
}

// calls are the calls that were paid.
func (w *writing) calls() []Call {
	var out []Call
	for i := range w.report.Rounds {
		out = append(out, w.report.Rounds[i].Call)
	}
	for i := range w.report.Failed {
		out = append(out, w.report.Failed[i].Call)
	}
	return out
}

// book books the calls, whether or not somebody still waits for the plan, and then gives back what is
// still reserved: calls that were not made. If they are not booked, it stays reserved, and is booked as
// an estimate after its lease.
func (w *writing) book(ctx context.Context) {
	calls := w.calls()
	if w.a.ledger == nil || len(calls)+w.reserved == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookingTime)
	defer cancel()
	var costs []*int64
	if len(calls) > 0 {
		var err error
		if costs, err = w.a.ledger.Book(ctx, w.job.namespace, w.id, calls); err != nil { // as the report says
			w.a.log.WarnContext(ctx, "calls of a model that wrote a plan are not booked", "namespace", w.job.namespace, "calls", len(calls), "error", err)
			return
		}
		w.report.UsageID = w.id
	}
	if w.reserved > 0 {
		if err := w.a.ledger.Release(ctx, w.job.namespace, w.id, w.reserved); err != nil {
			w.a.log.WarnContext(ctx, "what was reserved for a plan is not given back, and is booked after its lease", "namespace", w.job.namespace, "error", err)
		}
	}
	for i, c := range costs {
		if n := len(w.report.Rounds); i < n {
			w.report.Rounds[i].Cost = c
		} else {
			w.report.Failed[i-n].Cost = c
		}
	}
}

// failure is the text for a caller about a call without an answer.
func failure(err error) string {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Message
	}
	return "the call failed"
}
