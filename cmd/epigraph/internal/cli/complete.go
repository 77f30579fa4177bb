package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints what a shell needs in order to complete our commands.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Help says how to use it.
func (completionCmd) Help() string {
	return `Add the line for your shell to its start-up file:

    source <(epigraph completion bash)
    source <(epigraph completion zsh)
    epigraph completion fish | source`
}

var scripts = map[string]string{
	"bash": `_epigraph() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$(epigraph __complete -- "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[$COMP_CWORD]}"))
}
complete -o default -F _epigraph epigraph
`,
	"zsh": `#compdef epigraph
_epigraph() {
  local -a words_found
  words_found=("${(@f)$(epigraph __complete -- "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
  if [[ -n "$words_found" ]]; then compadd -a words_found; else _files; fi
}
compdef _epigraph epigraph
`,
	"fish": `complete -c epigraph -f -a '(set -l words (commandline -opc) (commandline -ct); epigraph __complete -- $words[2..] 2>/dev/null)'
complete -c epigraph -n 'not epigraph __complete -- (commandline -opc)[2..] "" 2>/dev/null | string length -q' -F
`,
}

// Run prints.
func (c *completionCmd) Run(e *env) error {
	_, err := fmt.Fprint(e.io.Out, scripts[c.Shell])
	return err
}

// completeCmd answers what may follow the words so far; the last one may be half written.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints one candidate per line.
func (c *completeCmd) Run(e *env) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, w := range candidates(e.model.Node, words) {
		if _, err := fmt.Fprintln(e.io.Out, w); err != nil {
			return err
		}
	}
	return nil
}

func candidates(node *kong.Node, words []string) []string {
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	var flags []*kong.Flag
	flags = append(flags, node.Flags...)
	var pending *kong.Flag // the flag that waits for its value
	for _, w := range words {
		if pending != nil {
			pending = nil
			continue
		}
		if strings.HasPrefix(w, "-") {
			for _, f := range flags {
				if (w == "--"+f.Name || f.Short != 0 && w == "-"+string(f.Short)) && !f.IsBool() {
					pending = f
				}
			}
			continue
		}
		for _, child := range node.Children {
			if child.Name == w || slices.Contains(child.Aliases, w) {
				node = child
				flags = append(flags, child.Flags...)
				break
			}
		}
	}
	if node.DefaultCmd != nil {
		flags = append(flags, node.DefaultCmd.Flags...)
	}
	var out []string
	add := func(s string) {
		if strings.HasPrefix(s, last) {
			out = append(out, s)
		}
	}
	switch {
	case pending != nil:
		for _, v := range pending.EnumSlice() {
			add(v)
		}
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				add("--" + f.Name)
			}
		}
	case last == "" && node.DefaultCmd != nil: // a file, most often
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name)
			}
		}
		for _, p := range node.Positional {
			for _, v := range p.EnumSlice() {
				add(v)
			}
		}
	}
	return out
}
