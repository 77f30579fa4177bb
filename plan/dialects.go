package plan

// dialect is a notation that has a reader of its own. read returns nil if the text is not of this dialect. It
// must be strict: the first dialect for lines of text that accepts a text decides how it is read. Of the
// dialects for data, the one that finds the most decides.
type dialect struct {
	name string
	read func(*document) *reading
	// data is set for dialects that read a value (JSON and the like) rather than lines of text.
	data bool
}

// dialects is the table of the notations that the general reader reads less well, most specific first. The
// comment above each row says what is lost without its reader, as counted on the recorded plans, their round
// trips and their damaged copies. A row is deleted when its reason no longer holds.
var dialects = [...]dialect{
	// Half of the round trips: the names of the tags alone do not show that a list of problems without a
	// graph is a plan.
	{"xml_problems", readXMLProblems, false},
	// Functions that lost their "<" (one damaged copy in six), and a third of the lists of functions without
	// variables.
	{"xml_functions", readXMLFunctions, false},
	// 750 of 1,061: the order of the links distinguishes nodes that share the name of a tool.
	{"tool_graph", readToolGraph, true},
	// All 711: steps are named by their text, and the lists of relations repeat it with small changes.
	{"step_relations", readShape(stepRelations), true},
	// One of 13, and streaming: commands whose arguments are the task.
	{"command_tasks", readShape(commandTasks), true},
	// The general reader takes no single action for a plan.
	{"single_action", readShape(singleAction), true},
	// All 214: references such as $var_1.result$ in arguments whose names say nothing.
	{"nested_calls", readShape(nestedCalls), true},
	// 43 of 3,499 generated texts, and streaming: values in separate lines or documents.
	{"task_list", readScattered(taskList), true},
	// 42 of 2,203: lists of one step, and lists that repeat the number of a step.
	{"step_tools", readScattered(stepTools), true},
	// Five of 13: task names whose numbers are their order.
	{"task_names", readShape(taskNames), true},
	// 1,537 of 1,547: lines of "Node:" and "Edges:", damaged in ways that only this reader understands.
	{"node_edge", readNodeEdge, false},
	// One damaged copy in fifteen (the cut is in a plan line), and streaming.
	{"evidence", readEvidence, false},
	// Logs of calls with the results between them, and streaming.
	{"call_log", readCallLog, false},
	// All four, and streaming: $1 in the arguments of numbered calls.
	{"numbered_calls", readNumberedCalls, false},
	// 24 of 1,209, calls that lost a bracket, and streaming.
	{"assignments", readAssignments, false},
}

// forms are the kinds of text that the general reader reads: it finds the form first, then the meaning.
var forms = [...]string{"records", "table", "code", "diagram", "outline", "prose"}

// isData reports whether the named dialect reads values rather than lines of text.
func isData(name string) bool {
	for i := range dialects {
		if dialects[i].name == name {
			return dialects[i].data
		}
	}
	return name == "records"
}

// Dialects returns the names of all notations that have a reader of their own, in the order in which they are
// tried, and then the forms of text that the general reader reads.
func Dialects() []string {
	names := make([]string, 0, len(dialects)+len(forms))
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return append(names, forms[:]...)
}
