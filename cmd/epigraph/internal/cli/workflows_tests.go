package cli

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/flowtest"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/workflowfiles"
	"github.com/epigraph-run/epigraph/workflow"
)

type workflowsTestCmd struct {
	Files    []string `arg:"" optional:"" help:"The files of tests, *.test.yaml."`
	Only     string   `help:"Run the cases whose name matches this regular expression." name:"run" placeholder:"REGEX"`
	Junit    string   `help:"Write the results as JUnit XML, too." placeholder:"FILE"`
	Record   bool     `help:"Ask the model that OPENAI_BASE_URL and OPENAI_API_KEY name, and write the cassettes of the cases."`
	Parallel int      `help:"How many cases run at once; 0 is one for each processor." default:"0"`
	Schema   bool     `help:"Print the JSON Schema of files of tests, for editors."`
}

// Help says what a test is.
func (workflowsTestCmd) Help() string {
	return `Each case is a run of the workflow on a suite of its own in this process. Models are scripted or played from a cassette, waits take no time, people are answered for, and an actor that would do something to the world needs a stand-in. The exit code is 1 if a case fails.

    epigraph workflows test digest.test.yaml
    epigraph workflows test *.test.yaml --run complaint --junit results.xml`
}

// testedFile is a file of tests with what came of its cases.
type testedFile struct {
	File    string
	Suite   flowtest.Suite
	cases   []workflow.TestCase
	Results []flowtest.Result
}

// Run runs tests.
func (c *workflowsTestCmd) Run(e *env) error {
	if c.Schema {
		_, err := e.io.Out.Write(workflow.TestSchema())
		return err
	}
	if len(c.Files) == 0 {
		return usage(errs.New(errs.InvalidArgument, "FILE_MISSING", "name a file of tests, such as digest.test.yaml"))
	}
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--run is no regular expression: %v", err))
	}
	files := make([]*testedFile, len(c.Files))
	for i, name := range c.Files {
		if files[i], err = c.read(e, name, only); err != nil {
			return err
		}
	}
	if err := c.runAll(e.ctx, files); err != nil {
		return err
	}
	failed, err := c.report(e, files)
	if err == nil && failed > 0 {
		return exit(exitFailed)
	}
	return err
}

// read reads a file of tests, its workflow and those that its steps name.
func (c *workflowsTestCmd) read(e *env, name string, only *regexp.Regexp) (*testedFile, error) {
	text, err := e.readText(name)
	if err != nil {
		return nil, err
	}
	shown := &workflowFile{name: sourceName(name), text: text}
	tests, faults := workflow.ReadTest([]byte(text))
	if len(faults) > 0 {
		if err := wrongKind(shown.name, text, kindTests); err != nil {
			return nil, err
		}
		return nil, shown.refused(e, faults)
	}
	dir := filepath.Dir(name)
	of, err := e.workflowOf(beside(dir, tests.Workflow))
	if err != nil {
		return nil, err
	}
	f := &testedFile{File: name, Suite: flowtest.Suite{Dir: dir, Definition: of.definition, Graph: of.graph, Record: c.Record, IgnoreEnv: ignoredEnv()}}
	f.Suite.Stored = make(map[string]string, len(tests.Workflows))
	stored := make(map[string]*workflow.Definition, len(tests.Workflows))
	for ref, file := range tests.Workflows {
		if f.Suite.Stored[ref], stored[ref], err = e.stored(filepath.Join(dir, file)); err != nil {
			return nil, err
		}
	}
	if faults := tests.Check(of.definition, stored); len(faults) > 0 {
		return nil, shown.refused(e, faults)
	}
	for _, one := range tests.Cases {
		if only.MatchString(one.Name) {
			f.cases = append(f.cases, one)
		}
	}
	f.Results = make([]flowtest.Result, len(f.cases))
	return f, nil
}

// beside is a file beside another one; names of the catalog stay as they are.
func beside(dir, name string) string {
	if inCatalog(name) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return name
		}
	}
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// stored is the text of a file, which is a graph or a definition without faults. A graph has no
// definition.
func (e *env) stored(file string) (string, *workflow.Definition, error) {
	text, err := e.readText(file)
	if err != nil || workflowfiles.FormOf(text) == registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH {
		return text, nil, err
	}
	f, err := e.workflowFrom(file)
	if err != nil {
		return "", nil, err
	}
	return text, f.definition, nil
}

// runAll runs the cases of all files, several at once.
func (c *workflowsTestCmd) runAll(ctx context.Context, files []*testedFile) error {
	g, ctx := errgroup.WithContext(ctx)
	n := c.Parallel
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	g.SetLimit(n)
	for _, f := range files {
		for i := range f.cases {
			g.Go(func() error {
				f.Results[i] = f.Suite.Run(ctx, &f.cases[i])
				return ctx.Err()
			})
		}
	}
	return g.Wait()
}

// report shows the results and returns how many cases failed.
func (c *workflowsTestCmd) report(e *env, files []*testedFile) (failed int, err error) {
	ran := 0
	for _, f := range files {
		for _, r := range f.Results {
			ran++
			if len(r.Failures) > 0 {
				failed++
			}
		}
	}
	if c.Junit != "" {
		out, err := junit(files)
		if err != nil {
			return failed, err
		}
		if err := os.WriteFile(c.Junit, out, 0o644); err != nil { //nolint:gosec // results are for everybody
			return failed, fmt.Errorf("write results: %w", err)
		}
	}
	if e.json {
		return failed, json.NewEncoder(e.io.Out).Encode(map[string]any{"passed": ran - failed, "failed": failed, "cases": jsonCases(files)})
	}
	return failed, e.say(testText(files, ran, failed))
}

func testText(files []*testedFile, ran, failed int) string {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s\n", f.File)
		for _, r := range f.Results {
			word := "ok  "
			if len(r.Failures) > 0 {
				word = "FAIL"
			}
			fmt.Fprintf(&b, "  %s %s (%s)\n", word, view.OneLine(r.Name, 0), r.Took.Round(10*time.Millisecond))
			for _, failure := range r.Failures {
				fmt.Fprintf(&b, "       %s\n", strings.ReplaceAll(failure, "\n", "\n       "))
			}
		}
	}
	if ran == 0 {
		return b.String() + "no case has such a name\n"
	}
	fmt.Fprintf(&b, "%d passed, %d failed\n", ran-failed, failed)
	return b.String()
}

func jsonCases(files []*testedFile) []map[string]any {
	out := []map[string]any{}
	for _, f := range files {
		for _, r := range f.Results {
			out = append(out, map[string]any{"file": f.File, "name": r.Name, "passed": len(r.Failures) == 0, "failures": append([]string{}, r.Failures...), "seconds": r.Took.Seconds()})
		}
	}
	return out
}

// junitSuites is the form that CI systems read.
type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func junit(files []*testedFile) ([]byte, error) {
	var all junitSuites
	for _, f := range files {
		s := junitSuite{Name: f.File, Tests: len(f.Results)}
		for _, r := range f.Results {
			one := junitCase{Name: r.Name, Class: f.File, Time: fmt.Sprintf("%.3f", r.Took.Seconds())}
			if len(r.Failures) > 0 {
				s.Failures++
				one.Failure = &junitFailure{Message: view.OneLine(r.Failures[0], 200), Text: strings.Join(r.Failures, "\n")}
			}
			s.Cases = append(s.Cases, one)
		}
		all.Suites = append(all.Suites, s)
	}
	out, err := xml.MarshalIndent(all, "", "  ")
	return append(out, '\n'), err
}
