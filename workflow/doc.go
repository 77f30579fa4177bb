// Package workflow reads definitions of workflows, written in YAML or JSON, and makes graphs of them.
//
//	text --Read--> Definition --Compile--> workgraph.Graph
//	Spec --New--> text and Definition
//
// Read tells every fault of the structure at once, Compile every fault of what the parts mean to each
// other, each with line, column and how to mend it. Every type of step becomes one node that calls an
// actor of the executor; nothing of a definition is interpreted while it runs. References such as {{
// fetch.body }} become bindings of the graph, which cost no expression.
//
// The package is pure: it knows no server, and which actors there are is for workgraph.Validate. Texts
// are untrusted: they are bounded in size, depth and number of values before work is done on them.
package workflow
