package meaning

import (
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

var (
	// shellQuiet are commands that prepare a script and are no steps of a plan.
	shellQuiet = setOf("set export echo printf cd source . exit return true : trap shift local unset readonly declare alias umask shopt pwd")
	// shellTools are common programs. A script that only calls these is an instruction or a log, unless some
	// run in parallel.
	shellTools = setOf("git npm pip pip3 docker kubectl apt apt-get brew curl wget tar cp mv rm ls cat grep sed awk ssh scp rsync sudo chmod mkdir make cargo go yarn pnpm npx systemctl helm terraform touch find ps kill uv conda poetry aws gcloud az psql mysql dotnet mvn gradle")
	// shellRunners run the command in their arguments.
	shellRunners = setOf("python python3 bash sh zsh node ruby perl Rscript npm yarn pnpm run make just time nohup exec sudo env")
	// shellBlocks are the words that open (1), divide (0) and close (-1) blocks.
	shellBlocks = map[string]int{"if": 1, "for": 1, "while": 1, "until": 1, "case": 1, "then": 0, "do": 0, "else": 0, "elif": 0, "in": 0, "fi": -1, "done": -1, "esac": -1}
)

func shellLang(s string) bool {
	switch s {
	case "bash", "sh", "shell", "zsh", "console", "ksh":
		return true
	}
	return false
}

// readShell reads a script: commands that run one after the other, commands that run in the background until
// "wait" ("a &"), and groups in brackets.
func readShell(src *form.Source, first, end int) *Reading {
	fenced := src.Lines[first].InCode && shellLang(src.Lines[first].Lang)
	if !fenced {
		first, end = shellRun(src, first, end)
	}
	if first >= end {
		return nil
	}
	sh := &shell{program: newProgram(src, 0, "shell"), s: src.Text[:src.Lines[end-1].End], i: src.Lines[first].Off, jobs: map[string][]int{}, max: min(src.MaxDepth, 100)}
	sh.list(0, 0)
	n := len(sh.r.Items)
	switch {
	case n < 2 || sh.strange > 0:
		return nil
	case sh.waits > 0 && sh.background > 0:
		sh.r.Weight = 92
	case !fenced || n < 3 || sh.tools > 0 || sh.args > n/2:
		return nil
	default:
		sh.r.Weight = 86
	}
	r := sh.reading()
	r.Stated, r.End, r.Start = true, src.Lines[end-1].End, src.Lines[first].Off
	r.Open = !(end < len(src.Lines) && src.Lines[end].Fence)
	return r
}

// shellRun finds the first run of lines that are commands, of which some run in the background and are waited
// for.
func shellRun(src *form.Source, first, end int) (from, to int) {
	from, amp, wait := -1, false, false
	for k := first; k <= end; k++ {
		if k < end && (src.Lines[k].Text == "" || strings.HasPrefix(src.Lines[k].Text, "#") || isShellCommand(src.Lines[k].Text)) {
			t := src.Lines[k].Text
			if from < 0 && t != "" {
				from = k
			}
			if i := strings.Index(t, " #"); i > 0 {
				t = strings.TrimSpace(t[:i])
			}
			amp = amp || strings.HasSuffix(t, " &") || strings.Contains(t, " & ")
			wait = wait || t == "wait" || strings.HasPrefix(t, "wait ") || strings.Contains(t, "& wait")
			continue
		}
		if from >= 0 && amp && wait {
			return from, k
		}
		from, amp, wait = -1, false, false
	}
	return 0, 0
}

// isShellCommand reports whether a line may be a line of a script.
func isShellCommand(s string) bool {
	t := strings.TrimLeft(s, "({ ")
	n := nameLength(t, "./-~$_")
	if n == 0 {
		return strings.Trim(s, "(){}&; ") == ""
	}
	last := s[len(s)-1]
	return (n == len(t) || strings.IndexByte(" ;=&(", t[n]) >= 0) && strings.IndexByte(".:?!,", last) < 0 && len(s) < 300
}

// nameLength returns the length of the word of letters, digits and the given signs at the start of s.
func nameLength(s, signs string) int {
	for i, r := range s {
		if !isLetterOrDigit(r) && !strings.ContainsRune(signs, r) {
			return i
		}
	}
	return len(s)
}

func isLetterOrDigit(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// shell is the state of a reader of scripts.
type shell struct {
	*program
	s      string
	i, max int
	// front are the steps that precede the next command. back are the steps in the background; launch are the
	// steps that preceded the first of them.
	front, back, launch []int
	jobs                map[string][]int
	last                []int // the steps that the last "&" put into the background
	cond                int   // how many conditions and loops are open
	waits, background   int
	tools, args         int
	strange             int
}

// list reads commands up to the closing bracket.
func (sh *shell) list(closing byte, depth int) {
	if depth > sh.max {
		sh.i, sh.strange = len(sh.s), sh.strange+1
		return
	}
	before := sh.front
	for sh.i < len(sh.s) {
		switch c := sh.s[sh.i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\\':
			sh.i++
		case c == '#':
			sh.line()
		case c == '\n' || c == ';':
			sh.i++
			before = sh.front
		case strings.HasPrefix(sh.s[sh.i:], "&&"), strings.HasPrefix(sh.s[sh.i:], "||"):
			sh.i += 2
		case c == '|':
			sh.i++
		case c == '&':
			sh.i++
			sh.background++
			sh.last = sh.front
			if !slices.Equal(sh.front, before) {
				sh.back, sh.launch = append(sh.back, sh.front...), before
			}
			sh.front = before
		case c == '(' || c == '{':
			sh.i++
			sh.group(map[byte]byte{'(': ')', '{': '}'}[c], depth+1)
		case c == ')' || c == '}':
			sh.i++
			if c == closing {
				return
			}
		default:
			sh.command()
		}
	}
}

// group reads a list in brackets. Steps that it leaves in the background have to end before the group does.
func (sh *shell) group(closing byte, depth int) {
	back, launch := sh.back, sh.launch
	sh.back = nil
	sh.list(closing, depth)
	if len(sh.back) > 0 {
		sh.join(sh.back)
	}
	sh.back, sh.launch = back, launch
}

// join adds steps to those that precede the next command.
func (sh *shell) join(steps []int) {
	if slices.Equal(sh.front, sh.launch) {
		sh.front = nil // the steps already follow it
	}
	for _, x := range steps {
		if !slices.Contains(sh.front, x) && len(sh.front) < 500 {
			sh.front = append(sh.front[:len(sh.front):len(sh.front)], x)
		}
	}
}

func (sh *shell) line() {
	if n := strings.IndexByte(sh.s[sh.i:], '\n'); n >= 0 {
		sh.i += n
	} else {
		sh.i = len(sh.s)
	}
}

// words reads the words of a command.
func (sh *shell) words() (out []string) {
	for sh.i < len(sh.s) {
		from := sh.i
		for sh.i < len(sh.s) {
			c := sh.s[sh.i]
			if c == '"' || c == '\'' {
				if n := form.QuotedLength(sh.s[sh.i:]); n > 0 {
					sh.i += n
					continue
				}
			}
			if c == '&' && (sh.i > from && sh.s[sh.i-1] == '>' || sh.i+1 < len(sh.s) && sh.s[sh.i+1] == '>') {
				sh.i++
				continue
			}
			if c == '$' && sh.i+1 < len(sh.s) && (sh.s[sh.i+1] == '(' || sh.s[sh.i+1] == '{') {
				if n := strings.IndexAny(sh.s[sh.i:], ")}\n"); n > 0 {
					sh.i += n + 1
					continue
				}
			}
			if strings.IndexByte(" \t\r\n;&|()", c) >= 0 {
				break
			}
			sh.i++
		}
		if sh.i > from {
			out = append(out, sh.s[from:sh.i])
		}
		for sh.i < len(sh.s) && (sh.s[sh.i] == ' ' || sh.s[sh.i] == '\t' || strings.HasPrefix(sh.s[sh.i:], "\\\n")) {
			sh.i += 1 + b2i(sh.s[sh.i] == '\\')
		}
		if sh.i >= len(sh.s) || sh.i == from || strings.IndexByte("\r\n;&|()#", sh.s[sh.i]) >= 0 {
			return out
		}
	}
	return out
}

// command reads a command: a step, an assignment, a wait or a word of a block.
func (sh *shell) command() {
	off := sh.i
	words := sh.words()
	if len(words) == 0 {
		sh.i++
		return
	}

	name := words[0]
	if d, ok := shellBlocks[name]; ok && (d <= 0 || len(words) > 1) {
		sh.cond += d
		if d > 0 || name == "elif" {
			return
		}
		if words = words[1:]; len(words) == 0 {
			return
		}
		name = words[0]
	}
	key, value, sets := strings.Cut(name, "=")
	switch {
	case sh.i < len(sh.s) && sh.s[sh.i] == '(' && strings.HasPrefix(sh.s[sh.i:], "()"):
		sh.body()
		return
	case sets && nameLength(key, "_") == len(key):
		if value == "$!" {
			sh.jobs[key] = sh.last
		}
		return
	case name == "wait":
		sh.waits++
		some := sh.back
		if len(words) > 1 {
			some = nil
			for _, w := range words[1:] {
				some = append(some, sh.jobs[strings.Trim(w, "\"${}")]...)
			}
		} else {
			sh.back = nil
		}
		sh.join(some)
		return
	case shellQuiet[name]:
		return
	}
	sh.step(words, off)
}

// body skips the body of a function.
func (sh *shell) body() {
	open := strings.IndexByte(sh.s[sh.i:], '{')
	depth := 0
	for sh.i += max(open, 0); sh.i < len(sh.s); sh.i++ {
		if sh.s[sh.i] == '{' {
			depth++
		} else if sh.s[sh.i] == '}' {
			if depth--; depth == 0 {
				sh.i++
				return
			}
		}
	}
}

// step adds the step that a command runs.
func (sh *shell) step(words []string, off int) {
	id := words[0]
	for _, w := range words[1:] {
		if !shellRunners[id] {
			break
		}
		if w[0] != '-' {
			id = w
		}
	}
	if !strings.ContainsFunc(id, isLetterOrDigit) {
		sh.strange++
		return
	}
	sh.tools += b2i(shellTools[words[0]])
	sh.args += b2i(len(words) > 1)
	k := sh.item(id, strings.Join(words, " "), false, off, sh.i)
	if sh.cond > 0 {
		sh.note(false, "AMBIGUOUS", sh.r.Items[k].ID, "the script runs "+sh.r.Items[k].ID+" only under a condition or repeatedly; it was read as one step", "write each step to do", off)
	}
	sh.r.Items[k].Shown = true
	for _, x := range sh.front {
		sh.link(x, k, Stated, off)
	}
	sh.front = []int{k}
}
