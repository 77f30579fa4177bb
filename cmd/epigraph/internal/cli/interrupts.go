package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

type interruptsListCmd struct {
	page
	RunID string   `help:"Interrupts of this run and of its descendants." name:"run" placeholder:"ID"`
	State []string `help:"Interrupts in any of these states; default open." placeholder:"STATE"`
}

// Run lists.
func (c *interruptsListCmd) Run(e *env) error { return e.interrupts(c.page, c.RunID, c.State) }

type runsInterruptsCmd struct {
	page
	ID    string   `arg:"" help:"The run."`
	State []string `help:"Interrupts in any of these states; default open." placeholder:"STATE"`
}

// Run lists those of a run and of all below it.
func (c *runsInterruptsCmd) Run(e *env) error { return e.interrupts(c.page, c.ID, c.State) }

func (e *env) interrupts(p page, run string, words []string) error {
	states, err := enums[executorv1.InterruptState]("--state", "INTERRUPT_STATE_", executorv1.InterruptState_value, words)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: run, States: states, PageSize: p.Limit, PageToken: p.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetInterrupts()) == 0 {
				return "no interrupts\n"
			}
			return interruptTable(e, r.GetInterrupts())
		})
	})
}

func interruptTable(e *env, list []*executorv1.Interrupt) string {
	var rows [][]string
	for _, x := range list {
		expires := ""
		if x.GetExpireTime() != nil {
			expires = view.When(x.GetExpireTime())
		}
		rows = append(rows, []string{
			x.GetId(), view.Word(x.GetState().String(), "INTERRUPT_STATE_"), x.GetRunId(), refText(x.GetVisit()), view.When(x.GetCreateTime()), expires,
			view.OneLine(promptText(x), 100),
		})
	}
	return view.Table(e.io.style(), []string{"INTERRUPT", "STATE", "RUN", "VISIT", "ASKED", "EXPIRES", "PROMPT"}, rows)
}

// promptText is the text of an interrupt, without quotes.
func promptText(x *executorv1.Interrupt) string {
	plain := func(raw []byte) string {
		if strings.HasPrefix(string(raw), `"`) {
			return pretty(raw)
		}
		return string(raw)
	}
	prompt, approve := plain(x.GetPrompt().GetJson()), plain(x.GetApprove().GetJson())
	switch {
	case approve == "":
		return prompt
	case prompt == "" || prompt == "null":
		return "approve " + approve
	}
	return prompt + "; approve " + approve
}

type interruptsShowCmd struct {
	ID string `arg:"" help:"The interrupt."`
}

// Run shows.
func (c *interruptsShowCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		x, err := s.executor.GetInterrupt(ctx, &executorv1.GetInterruptRequest{InterruptId: c.ID})
		if err != nil {
			return err
		}
		if err := e.print(x, func() string { return interruptText(e, x) }); err != nil {
			return err
		}
		if x.GetState() == executorv1.InterruptState_INTERRUPT_STATE_OPEN {
			e.help("%s", answering(x))
		}
		return nil
	})
}

// answering is the command that answers an interrupt.
func answering(x *executorv1.Interrupt) string {
	how := "VALUE"
	if approves(x) {
		how = "yes|no"
	} else if c := view.ChoicesOf(x.GetSchema().GetJson()); !c.Multiple {
		how = c.Words(how)
	}
	return fmt.Sprintf("`epigraph interrupts answer %s %s`", x.GetId(), how)
}

// approves reports whether an interrupt asks for an approval.
func approves(x *executorv1.Interrupt) bool { return len(x.GetApprove().GetJson()) > 0 }

func interruptText(e *env, x *executorv1.Interrupt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s of %s\n", e.io.style().Bold(x.GetId()), e.io.style().State(view.Word(x.GetState().String(), "INTERRUPT_STATE_")), refText(x.GetVisit()), x.GetRunId())
	part := func(name string, json []byte) {
		if len(json) > 0 {
			b.WriteString(name + ":\n" + indent(pretty(json)) + "\n")
		}
	}
	part("prompt", x.GetPrompt().GetJson())
	part("to be approved", x.GetApprove().GetJson())
	if x.GetApproveHash() != "" {
		fmt.Fprintf(&b, "hash: %s\n", x.GetApproveHash())
	}
	if c := view.ChoicesOf(x.GetSchema().GetJson()); len(c.List) > 0 {
		b.WriteString(choicesText(c))
	} else {
		part("the answer must satisfy", x.GetSchema().GetJson())
	}
	if x.GetExpireTime() != nil {
		fmt.Fprintf(&b, "expires: %s\n", view.When(x.GetExpireTime()))
	}
	if x.GetDecision() != executorv1.Decision_DECISION_UNSPECIFIED {
		fmt.Fprintf(&b, "decision: %s\n", view.Word(x.GetDecision().String(), "DECISION_"))
	}
	part("answer", x.GetAnswer().GetJson())
	if x.GetBy() != "" {
		fmt.Fprintf(&b, "by: %s\n", view.OneLine(x.GetBy(), 120))
	}
	if x.GetPrincipal() != "" {
		fmt.Fprintf(&b, "principal: %s\n", view.OneLine(x.GetPrincipal(), 120))
	}
	return b.String()
}

// choicesText lists choices: what is to be typed, and the label.
func choicesText(c view.Choices) string {
	var b strings.Builder
	b.WriteString("one of:\n")
	if c.Multiple {
		b.Reset()
		b.WriteString("a list of any of:\n")
	}
	for _, x := range c.List {
		line := view.OneLine(string(x.Value), 120)
		if x.Label != "" {
			line += "  " + view.OneLine(x.Label, 200)
		}
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

type interruptsAnswerCmd struct {
	ID      string  `arg:"" help:"The interrupt."`
	Answer  *string `arg:"" optional:"" help:"The answer, as JSON or text. Of choices: the value or its label. To an approval: yes or no."`
	Approve bool    `help:"Approve the value that the interrupt shows." xor:"decision"`
	Reject  bool    `help:"Reject the value that the interrupt shows; the visit fails unless the graph handles it." xor:"decision"`
	Why     string  `help:"Reason of the decision; part of the visit's value and error." name:"reason" placeholder:"TEXT" short:"r"`
	Hash    string  `help:"Hash of the value that you saw and approve." placeholder:"HASH"`
	By      string  `help:"Name of the person who answers, for the history." placeholder:"NAME"`
	Instead string  `help:"Ask an agent for something else in place of answering its question." placeholder:"TEXT"`
}

// Help gives examples.
func (interruptsAnswerCmd) Help() string {
	return `An interrupt is answered once. An answer that does not satisfy the interrupt's schema leaves it open.

    epigraph interrupts answer int_01… '{"color": "red"}' --by ada
    epigraph interrupts answer int_01… red
    epigraph interrupts answer int_01… yes
    epigraph interrupts answer int_01… no --reason 'too expensive'
    epigraph interrupts answer int_01… --approve --hash 9f86d081…
    epigraph interrupts answer int_01… --instead 'Never mind. What is open?'`
}

// Run answers.
func (c *interruptsAnswerCmd) Run(e *env) error {
	if err := c.contradiction(); err != nil {
		return err
	}
	answer, err := given(c.Answer)
	if err != nil {
		return err
	}
	req := &executorv1.AnswerInterruptRequest{InterruptId: c.ID, Answer: answer, By: c.By, ApproveHash: c.Hash, Instead: c.Instead}
	switch {
	case c.Instead != "":
	case c.Approve:
		req.Decision = executorv1.Decision_DECISION_APPROVED
	case c.Reject:
		req.Decision = executorv1.Decision_DECISION_REJECTED
	case c.Answer == nil:
		return usage(errs.New(errs.InvalidArgument, "ANSWER_MISSING", "there is no answer").Hint("give a value, or yes or no to an approval"))
	}
	if c.Why != "" && req.GetDecision() != executorv1.Decision_DECISION_UNSPECIFIED {
		if c.Answer != nil {
			return usage(errs.New(errs.InvalidArgument, "ANSWER_TWICE", "--reason and an answer cannot both be given"))
		}
		req.Answer = text(c.Why)
	}
	return e.with(func(ctx context.Context, s *services) error {
		if err := c.decide(ctx, s, req); err != nil {
			return err
		}
		x, err := s.executor.AnswerInterrupt(ctx, req)
		if err != nil {
			show := "`epigraph interrupts show " + c.ID + "` "
			switch errs.ReasonOf(err) {
			case "ANSWER_INVALID":
				return errs.From(err).Hint(show + "shows what the answer must satisfy")
			case "INTERRUPT_CLOSED":
				return errs.From(err).Hint(show + "tells how")
			case "APPROVE_HASH_MISMATCH":
				return errs.From(err).Hint(show + "shows what is asked now, with its hash")
			}
			return err
		}
		return e.print(x, func() string { return answeredText(x) })
	})
}

// decide takes yes and no for the decision when the interrupt is one of approval, and a label for the choice
// that it stands for.
func (c *interruptsAnswerCmd) decide(ctx context.Context, s *services, req *executorv1.AnswerInterruptRequest) error {
	if c.Approve || c.Reject || c.Instead != "" {
		return nil
	}
	x, err := s.executor.GetInterrupt(ctx, &executorv1.GetInterruptRequest{InterruptId: c.ID})
	if err != nil {
		return err
	}
	if !approves(x) {
		if c.Why != "" {
			return usage(errs.New(errs.InvalidArgument, "FLAG_FOR_APPROVALS", "--reason is for approvals, and %s is none", c.ID))
		}
		if v, ok := view.ChoicesOf(x.GetSchema().GetJson()).Named(*c.Answer); ok {
			req.Answer = &graphv1.Payload{Json: v}
		}
		return nil
	}
	if req.Decision = decisionOf(*c.Answer); req.GetDecision() == executorv1.Decision_DECISION_UNSPECIFIED {
		return usage(errs.New(errs.InvalidArgument, "ANSWER_INVALID", "%s asks to approve %s: say yes or no", c.ID, view.OneLine(string(x.GetApprove().GetJson()), 200)).
			Hint("`epigraph interrupts answer " + c.ID + " yes` approves; --approve or --reject go with an answer of your own"))
	}
	req.Answer = nil
	if c.Why != "" {
		req.Answer = text(c.Why)
	}
	return nil
}

// contradiction refuses an answer whose word and flag decide differently: either may be a typing error.
func (c *interruptsAnswerCmd) contradiction() error {
	if c.Answer == nil || !c.Approve && !c.Reject {
		return nil
	}
	flag, against := "--approve", executorv1.Decision_DECISION_REJECTED
	if c.Reject {
		flag, against = "--reject", executorv1.Decision_DECISION_APPROVED
	}
	if decisionOf(*c.Answer) != against {
		return nil
	}
	return usage(errs.New(errs.InvalidArgument, "ANSWER_CONTRADICTED", "the answer %q and %s contradict each other", *c.Answer, flag).
		Hint("give one of them; --reason says why"))
}

// decisionOf is the decision that a word stands for, if it does.
func decisionOf(word string) executorv1.Decision {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "yes", "y", "approve", "approved", "true":
		return executorv1.Decision_DECISION_APPROVED
	case "no", "n", "reject", "rejected", "false":
		return executorv1.Decision_DECISION_REJECTED
	}
	return executorv1.Decision_DECISION_UNSPECIFIED
}

// text is a JSON text.
func text(s string) *graphv1.Payload {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil // a text is always JSON
	}
	return &graphv1.Payload{Json: raw}
}

// answeredText says what became of the interrupt.
func answeredText(x *executorv1.Interrupt) string {
	switch x.GetDecision() {
	case executorv1.Decision_DECISION_APPROVED:
		return fmt.Sprintf("approved; %s goes on\n", x.GetRunId())
	case executorv1.Decision_DECISION_REJECTED:
		return fmt.Sprintf("rejected; %s hears of it\n", x.GetRunId())
	}
	return fmt.Sprintf("answered; %s goes on\n", x.GetRunId())
}
