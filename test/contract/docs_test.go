package contract_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// maxDocsColumns is the width of prose in the docs. Tables and code may be wider, and so may a word.
const maxDocsColumns = 100

// notWrapped are pages whose prose may still be wider.
var notWrapped = map[string]bool{"docs/events.md": true}

// doc is a page of the documentation: its path from the root of the repository, and its lines.
type doc struct {
	path  string
	lines []string
}

// docs reads docs/ and the pages at the root of the repository, of the SDK, the examples and the benchmarks.
func docs(t *testing.T) (pages []doc) {
	t.Helper()
	root := filepath.Join("..", "..")
	var names []string
	for _, pattern := range []string{"*.md", "sdk/*.md", "bench/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		require.NoError(t, err)
		names = append(names, found...)
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(name string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	}))
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		rel, err := filepath.Rel(root, name)
		require.NoError(t, err)
		pages = append(pages, doc{path: filepath.ToSlash(rel), lines: strings.Split(string(text), "\n")})
	}
	return pages
}

// block is a fenced block of code; line is that of its first fence.
type block struct {
	language string
	line     int
	lines    []string
	closed   bool
}

var fence = regexp.MustCompile("^\\s*```(\\w*)")

// blocks returns the fenced blocks of a page, and its other lines by number from 1 on.
func (d doc) blocks() (code []block, prose map[int]string) {
	prose = map[int]string{}
	in := false
	for i, line := range d.lines {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && !in:
			in = true
			code = append(code, block{language: m[1], line: i + 1})
		case m != nil:
			in = false
			code[len(code)-1].closed = true
		case in:
			last := &code[len(code)-1]
			last.lines = append(last.lines, line)
		default:
			prose[i+1] = line
		}
	}
	return code, prose
}

// anchors are the fragments by which GitHub reaches the headings of a page.
func (d doc) anchors() map[string]bool {
	_, prose := d.blocks()
	out := map[string]bool{}
	for _, line := range prose {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
			title = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(title), "")
			out[strings.ReplaceAll(strings.TrimSpace(title), " ", "-")] = true
		}
	}
	return out
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan = regexp.MustCompile("`[^`\n]*`")
)

// TestDocsLinks follows every link of the docs to a file of the repository, and to its heading.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	pages := docs(t)
	byPath := map[string]doc{}
	for _, d := range pages {
		byPath[d.path] = d
	}
	for _, d := range pages {
		_, prose := d.blocks()
		text := make([]string, 0, len(prose))
		for i := range d.lines {
			text = append(text, prose[i+1])
		}
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(strings.Join(text, "\n"), ""), -1) {
			to := m[1]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			name, fragment, _ := strings.Cut(to, "#")
			target := d.path
			if name != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(d.path), filepath.FromSlash(name)))
			}
			if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link to %q leads nowhere", d.path, to)
				continue
			}
			page, known := byPath[target]
			if fragment != "" && known && !page.anchors()[fragment] {
				t.Errorf("%s: %s has no heading for the link to %q", d.path, target, to)
			}
		}
	}
}

// TestDocsIndex finds every page of docs/ in its index.
func TestDocsIndex(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile(filepath.Join("..", "..", "docs", "README.md"))
	require.NoError(t, err)
	for _, d := range docs(t) {
		if name, in := strings.CutPrefix(d.path, "docs/"); in && name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// TestDocsWidth holds the width of prose.
func TestDocsWidth(t *testing.T) {
	t.Parallel()
	for _, d := range docs(t) {
		if notWrapped[d.path] {
			continue
		}
		_, prose := d.blocks()
		for n, line := range prose {
			words := strings.TrimSpace(codeSpan.ReplaceAllStringFunc(line, func(s string) string { return strings.ReplaceAll(s, " ", "_") }))
			if utf8.RuneCountInString(line) > maxDocsColumns && strings.Contains(words, " ") && !strings.HasPrefix(words, "|") && !strings.HasPrefix(line, "    ") {
				t.Errorf("%s:%d has %d columns, %d at most", d.path, n, utf8.RuneCountInString(line), maxDocsColumns)
			}
		}
	}
}

// TestDocsPictures checks the shape of mermaid blocks: they are closed, of a kind in use, and balanced.
func TestDocsPictures(t *testing.T) {
	t.Parallel()
	pictures := 0
	for _, d := range docs(t) {
		code, _ := d.blocks()
		for _, b := range code {
			if !b.closed {
				t.Errorf("%s:%d: the block of code does not end", d.path, b.line)
			}
			if b.language != "mermaid" {
				continue
			}
			pictures++
			for _, fault := range mermaidFaults(b.lines) {
				t.Errorf("%s:%d: %s", d.path, b.line, fault)
			}
		}
	}
	require.Positive(t, pictures)
}

// reserved finds a word of the flowchart's grammar where the name of a box must stand.
var reserved = regexp.MustCompile(`(^|> ?|\| ?|-- ?)(graph|flowchart|subgraph|end|style|click|class|default)\[`)

// mermaidFaults are those of a picture that a reader would not be shown.
func mermaidFaults(lines []string) (faults []string) {
	if len(lines) == 0 {
		return []string{"the picture is empty"}
	}
	kind, _, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
	if !slices.Contains([]string{"flowchart", "sequenceDiagram", "stateDiagram-v2"}, kind) {
		faults = append(faults, "a picture of kind "+kind)
	}
	open := 0
	for _, line := range lines {
		line = strings.TrimSpace(line)
		first, _, _ := strings.Cut(line, " ")
		switch {
		case kind == "sequenceDiagram" && slices.Contains([]string{"loop", "alt", "opt", "par", "rect"}, first):
			open++
		case kind == "sequenceDiagram" && line == "end":
			if open--; open < 0 {
				faults = append(faults, "an end of nothing")
			}
		case kind == "flowchart" && reserved.MatchString(line):
			faults = append(faults, "a word of mermaid's own as the name of a box: "+line)
		case kind == "sequenceDiagram" && strings.Contains(line, ";"):
			faults = append(faults, "a semicolon ends a statement: "+line)
		}
		for _, pair := range []string{"()", "[]", "{}"} {
			if strings.Count(line, pair[:1]) != strings.Count(line, pair[1:]) {
				faults = append(faults, "brackets do not match: "+line)
			}
		}
		if strings.Count(line, `"`)%2 != 0 {
			faults = append(faults, "quotation marks do not match: "+line)
		}
	}
	if open > 0 {
		faults = append(faults, "a loop or an alternative without its end")
	}
	return faults
}

// TestTroubleshooting finds in docs/troubleshooting.md every kind of blocker and every finding of the doctor,
// and in the code every reason, metric and setting that the page names.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	require.NoError(t, err)
	spans := map[string]bool{}
	for _, s := range codeSpan.FindAllString(string(text), -1) {
		spans[strings.Trim(s, "`")] = true
	}
	for n, name := range executorv1.BlockerKind_name {
		kind := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "BLOCKER_KIND_")), "_", " ")
		if n != 0 && !spans[kind] {
			t.Errorf("the page does not say what the blocker %q means", kind)
		}
	}
	source := goSource(t, root)
	finding := regexp.MustCompile(`(?:Suspicion = |Probe\{+Name: |\{Name: )"([a-z-]+)"`)
	found := 0
	for _, dir := range []string{"services/executor", "services/registry"} {
		for name, code := range source {
			if !strings.HasPrefix(name, dir) || !strings.Contains(code, "doctor.") && !strings.Contains(code, "Suspicion") {
				continue
			}
			for _, m := range finding.FindAllStringSubmatch(code, -1) {
				found++
				if !spans[m[1]] {
					t.Errorf("the page does not say what the finding %q means", m[1])
				}
			}
		}
	}
	require.GreaterOrEqual(t, found, 30)
	named := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)+$|^epigraph(\.[a-z_]+)+$`)
	for span := range spans {
		if !named.MatchString(span) || strings.HasPrefix(span, "EPIGRAPH_") {
			continue
		}
		if !slices.ContainsFunc(values(source), func(code string) bool { return strings.Contains(code, `"`+span+`"`) }) {
			t.Errorf("the page names %s, the code does not", span)
		}
	}
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// goSource is the product's Go code without tests and generated code, by file.
func goSource(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{"services", "internal", "workgraph", "cmd"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			code, err := os.ReadFile(name)
			rel, _ := filepath.Rel(root, name)
			out[filepath.ToSlash(rel)] = string(code)
			return err
		}))
	}
	return out
}
