package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/doctor"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// doctorCmd examines the databases.
type doctorCmd struct {
	settings
	Data     string   `help:"Folder of the databases of \"epigraph dev\", in place of the databases of \"epigraph serve\"." aliases:"data-dir" placeholder:"DIR" type:"existingdir"`
	Services []string `arg:"" optional:"" enum:"registry,executor" help:"Database to check: registry or executor; default both."`
	All      bool     `help:"Check everything in place of a sample; this may take long."`
	Strict   bool     `help:"Fail on warnings as well."`
}

// Help describes the command and its exit codes.
func (doctorCmd) Help() string {
	return `Looks for inconsistencies in the databases of the services (gaps in journals, visits that ended twice, commands to ended runs, runs that do not move, wrong sums) and for settings that endanger them. It only reads, may run beside live services, and examines the newest runs and a random range of others unless --all is given. It reads the same file and environment as "epigraph serve", or, with --data, as "epigraph dev" on that folder, where no service needs to run. The exit code is 0 if there are no faults, and 1 if there are (with --strict, also for warnings).`
}

// Run examines.
func (c *doctorCmd) Run(e *env) error {
	cfg := stack.DefaultConfig()
	if c.Data != "" {
		cfg = stack.DevConfig()
	}
	if err := c.load(&cfg); err != nil {
		return err
	}
	if c.Data != "" {
		cfg.InDir(c.Data)
	}
	reports, err := stack.Examine(e.ctx, cfg, doctor.Options{All: c.All}, c.Services...)
	if errs.ReasonOf(err) == dbkit.ReasonFileMissing && c.Data == "" {
		if dir, derr := stack.DefaultDataDir(); derr == nil {
			return errs.From(err).Hint("--config, --set and the environment name the files of `epigraph serve`; `epigraph doctor --data " + shellQuoted(dir) + "` is about the databases of `epigraph dev`")
		}
	}
	if err != nil {
		return err
	}
	if c.Data != "" {
		for i := range reports {
			reports[i].Findings = c.atRest(reports[i].Findings)
		}
	}
	worst := doctor.Severity(0)
	for _, r := range reports {
		worst = max(worst, r.Worst())
		for i := range r.Findings {
			r.Findings[i].RecoveryStep = c.recoveryStep(r.Findings[i].RecoveryStep)
		}
	}
	if e.json {
		err = printValue(e.io.Out, map[string]any{"reports": reports, "healthy": worst < doctor.Fault})
	} else {
		var b strings.Builder
		for _, r := range reports {
			examined(&b, e.io.style(), r)
		}
		err = e.say(b.String())
	}
	if err != nil {
		return err
	}
	if worst >= doctor.Fault || c.Strict && worst >= doctor.Warning {
		return exit(exitFailed)
	}
	return nil
}

// followsRest are the findings in a folder that no process serves and that holds unfinished runs.
var followsRest = []string{"executor-silent", "command-old", "owner-gone", "evicted-overdue", "run-released", "schedule-overdue"}

// atRest makes one note of the findings that exist only because no process serves the folder: dev was
// stopped, or this is a backup. One process serves such a folder, so no other could have taken its runs over.
func (c *doctorCmd) atRest(found []doctor.Finding) []doctor.Finding {
	none := slices.IndexFunc(found, func(f doctor.Finding) bool { return f.Check == "executors-none" })
	if none < 0 {
		return found
	}
	found[none].Severity, found[none].What = doctor.Note, "nothing works in this folder, and runs wait for it"
	found[none].RecoveryStep = "`epigraph dev --data " + shellQuoted(c.Data) + "` lets them go on"
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return slices.Contains(followsRest, f.Check) })
}

// recoveryStep is what to do, in commands for the databases that were examined.
func (c *doctorCmd) recoveryStep(text string) string {
	const migrate = "`epigraph migrate`"
	if c.Data == "" {
		return text
	}
	return strings.ReplaceAll(text, migrate, "`epigraph migrate --data "+shellQuoted(c.Data)+"`")
}

// shellQuoted is a word as a shell takes it.
func shellQuoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("/._-+:,@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// shownExamples is how many examples of a finding people are shown.
const shownExamples = 5

func examined(b *strings.Builder, style view.Style, r doctor.Report) {
	how := "everything"
	if r.Sampled > 0 {
		how = fmt.Sprintf("the newest and a random stretch, %d rows at most; --all looks at everything", r.Sampled)
	}
	fmt.Fprintf(b, "%s on %s: %s in %s (%s)\n", style.Bold(r.Service), r.Store, view.Plural(r.Checks, "interrupt"), r.Took.Round(time.Millisecond), how)
	if len(r.Findings) == 0 {
		b.WriteString("  nothing is wrong\n")
	}
	for _, f := range r.Findings {
		count := fmt.Sprint(f.Count)
		if f.More {
			count += " or more"
		}
		fmt.Fprintf(b, "  %s %s: %s (%s)\n", style.Bold(strings.ToUpper(f.Severity.String())), f.Check, f.What, count)
		for i, x := range f.Examples {
			if i == shownExamples {
				b.WriteString("      …\n")
				break
			}
			fmt.Fprintf(b, "      %s\n", view.OneLine(x, 0))
		}
		if f.RecoveryStep != "" {
			fmt.Fprintf(b, "    %s %s\n", style.Dim("what to do:"), f.RecoveryStep)
		}
	}
}
