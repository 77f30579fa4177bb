// Package restate asks a small model to restate a plan that cannot be read without doubt, and lets package
// plan check the answer. It must not know the wire form of requests, nor prices.
package restate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/plan"
)

// Config says which model is asked.
type Config struct {
	// Profile is asked; empty means that no plan is restated.
	Profile string `conf:"profile" help:"model profile that restates ambiguous plans on request; empty disables restatement"`
	// MaxOutputTokens bounds every answer.
	MaxOutputTokens int64 `conf:"max_output_tokens" help:"maximum number of output tokens of one restatement"`
	// Attempts bounds the calls for one plan: after a refused answer the model gets the reasons.
	Attempts int `conf:"attempts" help:"maximum number of model calls for one plan, from 1 to 3"`
	// Timeout bounds each of them, beside the limits of the profile.
	Timeout time.Duration `conf:"timeout" help:"time limit of each of these calls"`
}

// DefaultConfig names no profile.
func DefaultConfig() Config {
	return Config{MaxOutputTokens: 8192, Attempts: 2, Timeout: 25 * time.Second}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	if c.Profile == "" {
		return nil
	}
	var faults []error
	if c.MaxOutputTokens <= 0 {
		faults = append(faults, errors.New("max_output_tokens must be positive"))
	}
	if c.Attempts < 1 || c.Attempts > 3 {
		faults = append(faults, errors.New("attempts must be from 1 to 3"))
	}
	if c.Timeout <= 0 {
		faults = append(faults, errors.New("timeout must be positive"))
	}
	return errors.Join(faults...)
}

// turn is the share of a namespace in the calls of models that one restatement takes: a namespace has four at
// once.
const turn = admission.PerNamespace / 4

// Model restates plans. It is safe for concurrent use.
type Model struct {
	cfg   Config
	asked llm.Profile
	model llm.Model
	turns admission.Control
}

// New returns a model for a valid configuration, or nil where no profile is named. The models stay the
// caller's.
func New(cfg Config, models *llm.Set) (*Model, error) {
	if cfg.Profile == "" {
		return nil, nil //nolint:nilnil // no model is an answer
	}
	_, asked, err := models.Resolve(cfg.Profile, "")
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "LLM_CONFIG_INVALID", "planner.restate.profile: %v", err)
	}
	return &Model{cfg: cfg, asked: asked, model: models}, nil
}

// Report is the result of a restatement.
type Report struct {
	Accepted        bool
	Provider, Model string
	Calls           int
	Usage           llm.Usage
}

// Restate asks the model for the meaning of the text and returns the restated plan, or before with warnings
// about the reason why there is none. It waits for its turn behind others of the namespace. An error means
// that ctx ended, or that too many wait.
func (m *Model) Restate(ctx context.Context, namespace, text string, before plan.Result) (plan.Result, Report, error) {
	report := Report{Provider: m.asked.Provider, Model: m.asked.Model}
	system, user, ok := plan.RestatePrompt(text)
	if !ok {
		why := fmt.Sprintf("a text of more than %d bytes is not restated", plan.MaxRestateBytes)
		return before.RestateRefused(m.failed(why)), report, nil
	}
	leave, err := m.turns.Enter(ctx, namespace, turn)
	if err != nil {
		return plan.Result{}, report, err
	}
	defer leave()
	messages := []llm.Message{{Role: "system", Content: system}, {Role: "user", Content: user}}
	after := before
	for range m.cfg.Attempts {
		resp, err := m.ask(llm.WithCaller(ctx, namespace), messages)
		report.Calls++
		if ctx.Err() != nil {
			return plan.Result{}, report, context.Cause(ctx)
		}
		if err != nil {
			after = before.RestateRefused(m.failed(failure(err)))
			if again(err) {
				continue
			}
			break
		}
		report.count(resp)
		if why := unfinished(resp); why != "" {
			after = before.RestateRefused(m.failed(why))
			break
		}
		if after, report.Accepted = plan.Restate(ctx, text, before, resp.Message.Content, report.Model); report.Accepted {
			break
		}
		messages = append(messages[:2:2], llm.Message{Role: "assistant", Content: resp.Message.Content}, llm.Message{Role: "user", Content: mend(after.Diagnostics)})
	}
	if ctx.Err() != nil {
		return plan.Result{}, report, context.Cause(ctx)
	}
	return after, report, nil
}

// ask makes one call.
func (m *Model) ask(ctx context.Context, messages []llm.Message) (llm.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	return m.model.Generate(ctx, llm.Request{
		Profile: m.cfg.Profile, Messages: messages, MaxOutputTokens: m.cfg.MaxOutputTokens,
		Format: &llm.Format{Name: "restatement", Schema: []byte(plan.RestateSchema), Strict: true},
	})
}

// count adds what a call used.
func (t *Report) count(resp llm.Response) {
	t.Provider, t.Model = resp.Provider, resp.Model
	for _, s := range resp.Spent() {
		t.Usage.Input += s.Usage.Input
		t.Usage.CachedInput += s.Usage.CachedInput
		t.Usage.Output += s.Usage.Output
		t.Usage.Reasoning += s.Usage.Reasoning
	}
}

func (m *Model) failed(why string) plan.Diagnostic {
	return plan.Diagnostic{Code: plan.RestatementFailed, Element: m.asked.Model, Message: "the plan could not be restated: " + why}
}

// unfinished says why an answer is none, or "".
func unfinished(r llm.Response) string {
	switch {
	case r.Refusal != "" || r.FinishReason == "content_filter":
		return "the model declined"
	case r.FinishReason == "length":
		return "the answer of the model was cut off at its limit"
	}
	return ""
}

// failure is the text for a caller about a call without an answer.
func failure(err error) string {
	if e, ok := errors.AsType[*llm.Error](err); ok {
		return e.Message
	}
	return "the model did not answer"
}

// again reports whether the same call may succeed at once and costs nothing twice.
func again(err error) bool {
	e, ok := errors.AsType[*llm.Error](err)
	return ok && (e.Class == llm.Retryable || e.Class == llm.NotPerformed) && e.RetryAfter == 0
}

// mend is the message to the model about the missing parts.
func mend(diags []plan.Diagnostic) string {
	var b strings.Builder
	b.WriteString("This was refused. Answer again, whole, with quotes that are copied exactly:")
	for _, d := range diags {
		if d.Code == plan.RestatementRefused {
			b.WriteString("\n- " + d.Element + ": " + d.Message)
		}
	}
	return b.String()
}
