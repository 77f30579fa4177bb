package cli

import (
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
)

// leastTwoColumns is how wide a terminal must be for names and what they mean beside each other.
const leastTwoColumns = 72

// helpPrinter prints help in two columns, and on a terminal that is too narrow for them what a name means
// below it.
func helpPrinter(style view.Style) kong.HelpPrinter {
	return func(o kong.HelpOptions, ctx *kong.Context) error {
		if local(ctx.Selected()) {
			for _, f := range ctx.Model.Flags {
				f.Hidden = f.Hidden || ofConnection(f)
			}
		}
		if style.Width <= 0 || style.Width >= leastTwoColumns {
			return kong.DefaultHelpPrinter(o, ctx)
		}
		node := ctx.Selected()
		if node == nil {
			node = ctx.Model.Node
		}
		_, err := io.WriteString(ctx.Stdout, narrowHelp(style, ctx.Model, node))
		return err
	}
}

// narrowHelp is the help of a command, or of the program, with each name on a line of its own.
func narrowHelp(style view.Style, app *kong.Application, node *kong.Node) string {
	var b strings.Builder
	entry := func(name, help string) {
		b.WriteString(style.Paragraph(name, "  ") + "\n")
		if help != "" {
			b.WriteString(style.Paragraph(help, "      ") + "\n")
		}
	}
	b.WriteString(style.Fit("Usage: "+strings.TrimSpace(app.Name+" "+node.Summary())) + "\n\n" + style.Paragraph(node.Help, "") + "\n")
	if node.Detail != "" {
		b.WriteString("\n" + style.Prose(node.Detail) + "\n")
	}
	if len(node.Positional) > 0 {
		b.WriteString("\nArguments:\n")
		for _, a := range node.Positional {
			entry(a.Summary(), kong.DefaultHelpValueFormatter(a))
		}
	}
	names, flags := []string{"Flags:"}, map[string][]*kong.Flag{}
	for _, level := range node.AllFlags(true) {
		for _, f := range level {
			title := names[0]
			if f.Group != nil {
				title = f.Group.Title
			}
			if title != names[0] && len(flags[title]) == 0 {
				names = append(names, title)
			}
			flags[title] = append(flags[title], f)
		}
	}
	for _, title := range names {
		if len(flags[title]) > 0 {
			b.WriteString("\n" + title + "\n")
		}
		for _, f := range flags[title] {
			entry(flagName(f), kong.DefaultHelpValueFormatter(f.Value))
		}
	}
	last := ""
	for _, c := range node.Leaves(true) {
		title := "Commands:"
		if g := c.ClosestGroup(); g != nil {
			title = g.Title
		}
		if title != last {
			b.WriteString("\n" + title + "\n")
			last = title
		}
		entry(strings.TrimSpace(c.Path()), c.Help)
	}
	if node == app.Node {
		b.WriteString("\n" + style.Fit("`"+app.Name+" <command> --help` tells more of a command.") + "\n")
	}
	return b.String()
}

// flagName is how a flag is written.
func flagName(f *kong.Flag) string {
	out := "--" + f.Name
	if f.Short != 0 {
		out = "-" + string(f.Short) + ", " + out
	}
	if !f.IsBool() && !f.IsCounter() {
		out += "=" + f.FormatPlaceHolder()
	}
	return out
}
