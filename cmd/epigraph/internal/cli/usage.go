package cli

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
)

// misuse is a fault of the command line that parsing does not find; it ends the command with the same exit
// code.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

// usage makes a fault of the command line of an error.
func usage(err error) error { return misuse{err} }

// maxPriority is the least urgent.
const maxPriority = 4

// checkText refuses text that is not UTF-8, by the name of its flag, argument or variable: no request could
// carry it, and the parser would replace the bad bytes silently.
func checkText(model *kong.Node, args []string) error {
	var pending *kong.Flag // the flag that waits for its value
	flags := slices.Clone(model.Flags)
	for i, a := range args {
		name := fmt.Sprintf("word %d of the command line", i+1)
		flag, _, has := strings.Cut(a, "=")
		switch {
		case pending != nil:
			name, pending = "--"+pending.Name, nil
		case a == "--":
		case strings.HasPrefix(a, "-"):
			j := slices.IndexFunc(flags, func(f *kong.Flag) bool {
				return flag == "--"+f.Name || f.Short != 0 && strings.HasPrefix(a, "-"+string(f.Short)) || slices.Contains(f.Aliases, strings.TrimPrefix(flag, "--"))
			})
			switch {
			case j >= 0:
				name = "--" + flags[j].Name
				if f := flags[j]; !f.IsBool() && !has && (strings.HasPrefix(a, "--") || a == "-"+string(f.Short)) {
					pending = f
				}
			case has && utf8.ValidString(flag):
				name = flag
			}
		default:
			if k := slices.IndexFunc(model.Children, func(n *kong.Node) bool { return n.Name == a || slices.Contains(n.Aliases, a) }); k >= 0 {
				model = model.Children[k]
				flags = append(flags, model.Flags...)
			}
		}
		if !utf8.ValidString(a) {
			return notUTF8(name)
		}
	}
	for _, f := range flags {
		for _, env := range f.Envs {
			if !utf8.ValidString(os.Getenv(env)) {
				return notUTF8(env)
			}
		}
	}
	return nil
}

func notUTF8(name string) error {
	return usage(errs.New(errs.InvalidArgument, "VALUE_NOT_UTF8", "%s is not UTF-8 text", name).Hint("write it in UTF-8"))
}

// checkFlags refuses values that no command can use: negative counts and durations, and header values that
// are not plain text.
func checkFlags(flags []*kong.Flag) error {
	given := map[string]bool{}
	for _, f := range flags {
		invalid := func(what string) error {
			return usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--%s must %s", f.Name, what))
		}
		x := reflect.Indirect(f.Target)
		given[f.Name] = x.IsValid() && !x.IsZero()
		switch {
		case f.Name == "namespace" || f.Name == "api-key":
			if strings.ContainsFunc(x.String(), func(r rune) bool { return r < ' ' || r > '~' }) {
				return invalid("be printable ASCII text")
			}
		case !x.IsValid() || !x.CanInt():
		case x.Int() < 0:
			return invalid("not be below 0")
		case f.Name == "priority" && x.Int() > maxPriority:
			return invalid(fmt.Sprintf("be from 1 (first) to %d", maxPriority))
		case f.Name == "timeout" && x.Int() == 0:
			return invalid("be more than 0s")
		}
	}
	if given["webhook-on"] && !given["webhook"] {
		return usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--webhook-on says what an address is told, and there is none").Hint("name it with --webhook"))
	}
	return nil
}

// fromFile are the beginnings of the places in a request that a file fills, and not the command line.
var fromFile = []string{"graph", "patch", "text", "plan", "attachments", "start.graph", "schedule.start.graph"}

// misused reports whether a server found the fault in a value of the command line: not in a file, and not in
// the state of the server.
func misused(x *errs.Error) bool {
	if x.Kind != errs.InvalidArgument || x.Reason == "REQUEST_ID_REUSED" || x.Reason == "ANSWER_INVALID" || x.Reason == conf.ReasonInvalid || len(x.Violations) == 0 {
		return false
	}
	for _, v := range x.Violations {
		for _, f := range fromFile {
			if rest, ok := strings.CutPrefix(v.Field, f); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[")) {
				return false
			}
		}
		var line, column int
		if n, _ := fmt.Sscanf(v.Field, "%d:%d", &line, &column); n == 2 { // a place in a plan
			return false
		}
	}
	return true
}
