package author

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/plan"
)

const (
	// maxAnswer bounds the part of an answer, in bytes, that the model is shown again.
	maxAnswer = 64 << 10
	// maxTold bounds the faults that the model is told at once, maxFaultText the text of one, and maxLine the
	// line of the answer that is shown with it, in bytes.
	maxTold      = 25
	maxFaultText = 400
	maxLine      = 160
)

// signature identifies the errors among findings, wherever they stand; it is empty if there are none.
func signature(findings []plan.Diagnostic) string {
	var list []string
	for _, d := range findings {
		if d.Severity == plan.Error {
			list = append(list, string(d.Code)+"\x00"+d.Element+"\x00"+d.Message)
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\x01")
}

// faultText tells the model what is wrong with its answer: errors first, then the warnings for which there is
// room.
func faultText(text string, findings []plan.Diagnostic) string {
	var faults, doubts []plan.Diagnostic
	for _, d := range findings {
		switch d.Severity {
		case plan.Error:
			faults = append(faults, d)
		case plan.Warning:
			doubts = append(doubts, d)
		}
	}
	lines := strings.Split(text, "\n")
	var b strings.Builder
	b.WriteString("The plan cannot run. Mend every fault, and answer with the whole plan again, in the same notation.\n\nFaults:\n")
	list(&b, lines, faults, maxTold)
	if room := maxTold - len(faults); room > 0 && len(doubts) > 0 {
		b.WriteString("\nDoubts:\n")
		list(&b, lines, doubts, room)
	}
	return strings.TrimSpace(b.String())
}

func list(b *strings.Builder, lines []string, ds []plan.Diagnostic, most int) {
	for i, d := range ds {
		if i == most {
			fmt.Fprintf(b, "- and %d more\n", len(ds)-most)
			return
		}
		b.WriteString("- ")
		if d.Line > 0 {
			fmt.Fprintf(b, "line %d, column %d: ", d.Line, d.Column)
		}
		b.WriteString(string(d.Code))
		if d.Element != "" {
			b.WriteString(" " + strconv.Quote(errs.Clip(d.Element, maxFaultText)))
		}
		b.WriteString(": " + errs.Clip(d.Message, maxFaultText))
		if d.Hint != "" {
			b.WriteString(". Hint: " + errs.Clip(d.Hint, maxFaultText))
		}
		b.WriteByte('\n')
		if d.Line > 0 && d.Line <= len(lines) {
			b.WriteString("    " + errs.Clip(strings.TrimSpace(lines[d.Line-1]), maxLine) + "\n")
		}
	}
}
