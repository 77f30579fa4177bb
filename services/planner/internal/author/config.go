package author

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Config says which model is asked and how far an authoring may go. Requests may narrow the limits.
type Config struct {
	// Profile is asked where a request names none; empty means the default of the models.
	Profile string `conf:"profile" help:"model profile that writes plans where a request names none; empty means models.default"`
	// Rounds bounds the answers of the model for one plan.
	Rounds int `conf:"rounds" help:"answers of the model for one plan at most, from 1 to 20"`
	// MaxOutputTokens bounds each answer.
	MaxOutputTokens int64 `conf:"max_output_tokens" help:"limit of one answer"`
	// MaxTokens bounds all rounds together.
	MaxTokens int64 `conf:"max_tokens" help:"input and output tokens of all rounds together at most"`
	// MaxCost is in nano-USD; 0 means no limit.
	MaxCost int64 `conf:"max_cost_nano_usd" help:"money for all rounds together in nano-USD; 0 means no limit, and a limit needs a registry with the price of the model"`
	// Timeout bounds all rounds together.
	Timeout time.Duration `conf:"timeout" help:"longest time for all rounds together; keep it below the limits of calls and requests"`
	// MaxPromptBytes bounds the first message to the model, with the instructions.
	MaxPromptBytes int `conf:"max_prompt_bytes" help:"largest prompt of a plan, in bytes; requests with a larger one are refused"`
	// Instructions and Prompt replace the texts of this package; empty keeps them.
	Instructions string `conf:"instructions" help:"system message that asks for a plan; empty means the built-in one"`
	Prompt       string `conf:"prompt" help:"template of the prompt for a new plan, with {goal}, {context} and {tools}; empty means the built-in one"`
}

// DefaultConfig is what suits plans of some dozens of problems.
func DefaultConfig() Config {
	return Config{Rounds: 4, MaxOutputTokens: 8192, MaxTokens: 100_000, Timeout: 50 * time.Second, MaxPromptBytes: 256 << 10}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.Rounds < 1 || c.Rounds > 20 {
		faults = append(faults, errors.New("rounds must be from 1 to 20"))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"max_output_tokens", c.MaxOutputTokens}, {"max_tokens", c.MaxTokens}, {"timeout", int64(c.Timeout)}, {"max_prompt_bytes", int64(c.MaxPromptBytes)}} {
		if f.value <= 0 {
			faults = append(faults, errors.New(f.name+" must be positive"))
		}
	}
	if c.MaxCost < 0 {
		faults = append(faults, errors.New("max_cost_nano_usd must not be negative"))
	}
	for _, t := range []struct {
		name, text string
		known      []string
	}{{"prompt", c.Prompt, createNames}} {
		if t.text == "" {
			continue
		}
		if err := checkTemplate(t.text, t.known); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", t.name, err))
		}
	}
	return errors.Join(faults...)
}

var placeholder = regexp.MustCompile(`\{([a-z_]+)\}`)

// checkTemplate refuses placeholders that are not known, and a template that does not say the goal.
func checkTemplate(text string, known []string) error {
	if !strings.Contains(text, "{goal}") {
		return errors.New("{goal} is missing")
	}
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, m[1]) {
			return fmt.Errorf("%s is no placeholder: they are {%s}", m[0], strings.Join(known, "}, {"))
		}
	}
	return nil
}
