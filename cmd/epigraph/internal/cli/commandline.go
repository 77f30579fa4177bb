package cli

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/near"
)

var (
	proposed    = regexp.MustCompile(`^(.*?(\S+)), did you mean (?:one of )?("[^?]*)\?$`)
	notPair     = regexp.MustCompile(`^(--\S+): expected "<key>=<value>" but got (".*")$`)
	notDuration = regexp.MustCompile(`^(--\S+): expected duration but got (".*?"): time: `)
	belowZero   = regexp.MustCompile(`^(--\S+): expected (?:int|float|duration) value but got ("-[0-9.][^"]*") \(`)
)

// usageError describes the fault of a command line that cannot be parsed, in the words of the help.
func usageError(err error) *errs.Error {
	msg := usageText(err)
	wrong := func(format string, args ...any) *errs.Error {
		return errs.New(errs.InvalidArgument, "USAGE", format, args...)
	}
	if m := notPair.FindStringSubmatch(msg); m != nil {
		return wrong("%s: %s is not NAME=VALUE", m[1], m[2]).Hint("write it as " + m[1] + " NAME=VALUE, once for each")
	}
	if m := notDuration.FindStringSubmatch(msg); m != nil {
		return wrong("%s: %s is no length of time", m[1], m[2]).Hint("write it like 90s, 10m or 2h")
	}
	if m := belowZero.FindStringSubmatch(msg); m != nil {
		msg = m[1] + ": " + m[2] + " is below 0"
	}
	return wrong("%s", msg).Hint("see `epigraph " + helpPath(err) + "--help`")
}

// usageText describes the fault of a command line.
func usageText(err error) string {
	// an empty value is a flag that was not given
	msg := strings.Replace(err.Error(), `must be one of "",`, "must be one of ", 1)
	if args, ok := strings.CutPrefix(msg, `expected "<`); ok {
		return "this needs <" + strings.TrimSuffix(args, `"`)
	}
	word, unexpected := strings.CutPrefix(msg, "unexpected argument ")
	if pe, ok := errors.AsType[*kong.ParseError](err); ok && unexpected {
		if at := pe.Context.Selected(); at == nil || len(at.Children) > 0 {
			msg = "there is no command " + word
			name, _, _ := strings.Cut(word, ",")
			if found := ofGroups(pe.Context.Model.Node, name); len(found) > 0 {
				return "there is no command " + name + "; there is " + strings.Join(found, " and ")
			}
			if alias := aliasNear(at, name); alias != "" && !strings.Contains(nearest(msg), "did you mean") {
				return "there is no command " + name + ", did you mean \"" + alias + "\"?"
			}
		}
	}
	return nearest(msg)
}

// ofGroups lists the commands that have a name and stand below another one: the verbs of runs, tasks and
// others.
func ofGroups(root *kong.Node, name string) (found []string) {
	for _, group := range root.Children {
		for _, c := range group.Children {
			if c.Name == name && !c.Hidden {
				found = append(found, "`epigraph "+group.Name+" "+name+"`")
			}
		}
	}
	return found
}

// aliasNear is the other name of a command below a node that a word is near to; empty if there is none.
func aliasNear(at *kong.Node, word string) string {
	if at == nil {
		return ""
	}
	for _, child := range at.Children {
		for _, alias := range child.Aliases {
			if _, ok := near.Within(word, alias, max(1, len(word)/3)); ok && !child.Hidden {
				return alias
			}
		}
	}
	return ""
}

// nearest keeps the nearest of the proposed words of a message, if they are near for the length of the typed
// word: a short word is near to nearly every other.
func nearest(msg string) string {
	m := proposed.FindStringSubmatch(msg)
	if m == nil {
		return msg
	}
	typed := strings.TrimLeft(m[2], "-")
	var kept []string
	best := max(1, len(typed)/3)
	for quoted := range strings.SplitSeq(m[3], ", ") {
		word := strings.TrimLeft(strings.Trim(quoted, `"`), "-")
		d := near.Distance(typed, word)
		if strings.HasPrefix(word, typed) {
			d = 1
		}
		if d < best {
			best, kept = d, nil
		}
		if d == best {
			kept = append(kept, quoted)
		}
	}
	slices.Sort(kept)
	switch len(kept) {
	case 0:
		return m[1]
	case 1:
		return m[1] + ", did you mean " + kept[0] + "?"
	}
	return m[1] + ", did you mean one of " + strings.Join(kept, ", ") + "?"
}

// helpPath is the command whose help the error of a wrong command line refers to.
func helpPath(err error) string {
	if pe, ok := errors.AsType[*kong.ParseError](err); ok && pe.Context != nil && pe.Context.Command() != "" {
		words := []string{}
		for _, w := range strings.Fields(pe.Context.Command()) {
			if !strings.HasPrefix(w, "<") {
				words = append(words, w)
			}
		}
		return strings.Join(words, " ") + " "
	}
	return ""
}

// checkServerFlags refuses flags about the server and the caller for commands that are servers or open
// databases themselves: they would have no effect. Environment variables may be meant for other commands.
func checkServerFlags(ctx *kong.Context) error {
	at := ctx.Selected()
	if !local(at) {
		return nil
	}
	for _, p := range ctx.Path {
		if p.Flag == nil || p.Resolved || !ofConnection(p.Flag) {
			continue
		}
		what, hint := "is a server", "it takes its settings from --config, --set and the environment"
		switch at.Name {
		case "dev":
			hint = "--grpc and --http say where it serves"
		case "demo":
			what, hint = "brings its own server", "leave it out"
		case "migrate", "doctor":
			what = "opens the databases themselves"
		}
		return usage(errs.New(errs.InvalidArgument, "FLAG_FOR_CLIENTS", "--%s tells clients where to connect, and `epigraph %s` %s", p.Flag.Name, at.Name, what).Hint(hint))
	}
	return nil
}

// local reports whether a command calls no server.
func local(at *kong.Node) bool {
	if at == nil {
		return false
	}
	g := at.ClosestGroup()
	return g != nil && g.Key == "server"
}

// ofConnection reports whether a flag says how to reach a server.
func ofConnection(f *kong.Flag) bool { return f.Group != nil && f.Group.Key == "connection" }
