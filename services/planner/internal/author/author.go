// Package author has a model write plans: it asks, checks the answer, and tells the model the faults until
// the plan can run or a limit is reached. It owns the prompts, the limits and the record of the rounds. It
// must not know the wire form of requests.
package author

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/llm"
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
	// UsageID is the id under which the rounds are booked; empty if they are not.
	UsageID string
}

// Author writes plans. It is safe for concurrent use.
type Author struct {
	cfg    Config
	models *llm.Set
	ledger Ledger
	limits plan.Limits
	enter  Enter
	turns  admission.Control
}

// Enter waits until computing of this cost may begin for the namespace of ctx. The cost is that of a text of
// so many bytes with so many elements.
type Enter func(ctx context.Context, textBytes, elements int) (leave func(), err error)

// turn is the share of a namespace in the calls of models that one authoring takes: a namespace has four at
// once.
const turn = admission.PerNamespace / 4

// New returns an author for a valid configuration. limits bound the plans that are read. ledger may be nil:
// then costs are not known, nothing is booked, and limits of money are refused. The models stay the caller's.
func New(cfg Config, models *llm.Set, limits plan.Limits, ledger Ledger, enter Enter) (*Author, error) {
	if _, _, err := models.Resolve(cfg.Profile, ""); err != nil {
		return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "planner.author.profile: %v", err)
	}
	return &Author{cfg: cfg, models: models, ledger: ledger, limits: limits, enter: enter}, nil
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
}

// minAnswer is the least room for an answer, in tokens, with which a model is asked.
const minAnswer = 256

// bookingTime bounds the booking, which goes on after the caller has gone.
const bookingTime = 5 * time.Second

// write runs the rounds. An error means that the caller's context ended, that too many wait, or that the
// request cannot be served as it is.
func (a *Author) write(ctx context.Context, j job) (report Report, err error) {
	name, asked, err := a.models.Resolve(cmp.Or(j.profile, a.cfg.Profile), "")
	if err != nil {
		return Report{}, errs.New(errs.InvalidArgument, "UNKNOWN_PROFILE", "%s", failure(err))
	}
	system := cmp.Or(a.cfg.Instructions, instructions)
	if n := len(system) + len(j.prompt); n > a.cfg.MaxPromptBytes {
		return Report{}, errs.New(errs.InvalidArgument, "PROMPT_TOO_LARGE", "the prompt would have %d bytes, %d at most", n, a.cfg.MaxPromptBytes).
			Hint("shorten the context, or give fewer tools")
	}
	leave, err := a.turns.Enter(ctx, j.namespace, turn)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	w := writing{a: a, job: j, profile: name, asked: asked, system: system, seen: map[string]bool{}, bounds: a.bounds(j.limits)}
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
	asked   llm.Profile
	system  string
	bounds  Limits
	// seen are the sets of faults that answers had.
	seen   map[string]bool
	tokens int64
	report Report
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
			w.end(Tokens, "another round would use more than the limit of %d tokens", w.bounds.MaxTokens)
			return nil
		}
		req.MaxOutputTokens = min(w.a.cfg.MaxOutputTokens, room)
		if ok, err := w.affordable(ctx, req); !ok || err != nil {
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
		if ctx.Err() != nil {
			return false, err
		}
		w.end(ModelFailed, "the model did not answer: %s", failure(err))
		return false, nil
	}
	used := resp.Usage
	if !used.Known {
		used = llm.Usage{Input: llm.Estimate(req), Output: llm.EstimateText(resp.Message.Content)}
	}
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
	if r.Findings, err = w.a.read(ctx, w.job, r.Text, whole); err != nil {
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
	provider, model := w.asked.Booked(w.asked.Model)
	next := Call{Provider: provider, Model: model, Usage: llm.Usage{Input: llm.Estimate(req), Output: req.MaxOutputTokens}, Time: time.Now()}
	if w.a.ledger == nil {
		return false, unpriced(next).Hint("connect the planner to a registry (upstream.registry), or set no limit of money")
	}
	calls := append(w.calls(), next)
	costs, err := w.a.ledger.Price(ctx, w.job.namespace, calls)
	if err != nil {
		return false, err
	}
	var sum int64
	for i, c := range costs {
		if c == nil {
			return false, unpriced(calls[i]).Hint("set a price (CreatePrice), or set no limit of money")
		}
		sum += *c
	}
	if sum > most {
		w.end(Cost, "another round could cost more than the limit of %d nano-USD", most)
		return false, nil
	}
	return true, nil
}

func unpriced(c Call) *errs.Error {
	return errs.New(errs.FailedPrecondition, "PRICE_UNKNOWN", "a limit of money cannot be kept: the price of %s/%s is not known", c.Provider, c.Model)
}

func (w *writing) calls() []Call {
	out := make([]Call, len(w.report.Rounds))
	for i := range w.report.Rounds {
		out[i] = w.report.Rounds[i].Call
	}
	return out
}

// book books the rounds, whether or not somebody still waits for the plan.
func (w *writing) book(ctx context.Context) {
	if w.a.ledger == nil || len(w.report.Rounds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookingTime)
	defer cancel()
	id := ids.New("plan")
	costs, err := w.a.ledger.Book(ctx, w.job.namespace, id, w.calls())
	if err != nil {
		return // the report says that nothing is booked
	}
	w.report.UsageID = id
	for i, c := range costs {
		w.report.Rounds[i].Cost = c
	}
}

// failure is the text for a caller about a call without an answer.
func failure(err error) string {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Message
	}
	return "the call failed"
}
