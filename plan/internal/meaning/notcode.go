package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

var (
	// planModules are modules that run steps, or that say nothing about the purpose of a program.
	planModules = setOf("asyncio concurrent threading multiprocessing joblib dask ray celery prefect airflow dagster luigi kfp metaflow typing __future__ dataclasses datetime time enum langgraph crewai invoke temporalio inngest restate hatchet trigger llama_index autogen golang.org")
	// libraries are common names of modules that compute something or process data.
	libraries = setOf("pd np plt sns tf torch nn sklearn scipy sys re math random requests json csv logging cv2 st px")
	// planWords are parts of the names of modules that hold the tools of a plan.
	planWords = [...]string{"tool", "agent", "step", "task", "plan", "flow", "skill", "action", "pipeline", "function"}
)

// ordinary reports whether the lines [first, end) are a program that computes something rather than a plan in
// the form of a program: the lines import libraries, or call them by their common names.
func ordinary(src *form.Source, first, end int) bool {
	for _, l := range src.Lines[first:end] {
		words := strings.Fields(l.Text)
		if name := imported(words); name != "" && !planModule(name) {
			return true
		}
		_, call, ok := strings.Cut(l.Text, "= ")
		if !ok {
			call = l.Text
		}
		if root, rest, ok := strings.Cut(call, "."); ok && libraries[root] && strings.Contains(rest, "(") {
			return true
		}
		if strings.Contains(l.Text, "= require(") || strings.HasPrefix(l.Text, "module.exports") {
			return true
		}
	}
	return false
}

// imported returns the module that a line imports, or "". In JavaScript the module is last and in quotes.
func imported(words []string) string {
	if len(words) < 2 || words[0] != "import" && words[0] != "from" {
		return ""
	}
	if last := words[len(words)-1]; words[0] == "import" && strings.ContainsAny(last, "'\"") {
		if last = strings.Trim(last, "'\";"); last == "" || last[0] == '.' {
			return "" // a file of the same program
		}
		return last
	}
	return words[1]
}

// planModule reports whether a module may hold the steps of a plan.
func planModule(name string) bool {
	name = strings.Trim(strings.ToLower(name), ",;\"'{")
	root, _, _ := strings.Cut(name, ".")
	if planModules[root] || root == "" {
		return true
	}
	for _, w := range planWords {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}
