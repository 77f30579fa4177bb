package plan

// dialect is a notation with a reader of its own. read returns nil when the text is not of this dialect; it
// must be strict about what it accepts, because the first dialect for lines of text that accepts one decides
// how it is read. Of those for data, the one that says most decides.
type dialect struct {
	name string
	read func(*document) *reading
	// data is set for dialects that read a value, in JSON or the like, rather than lines of text.
	data bool
}

// dialects is the table of the notations that the general way does not read as well, most specific first.
// Above each stands what is lost without its reader, as counted on the recorded plans, their round trips and
// their damaged copies. A row whose reason has gone is to be deleted.
var dialects = [...]dialect{
	// Half of the round trips: a list of problems without a graph, which the names of tags alone do not show
	// to be a plan.
	{"xml_problems", readXMLProblems, false},
	// A function that lost its "<" (one damaged copy in six), and a third of the lists of functions without
	// variables.
	{"xml_functions", readXMLFunctions, false},
	// 750 of 1,061: nodes that share the name of a tool are told apart by the order of the links.
	{"tool_graph", readToolGraph, true},
	// All 711: steps are named by their text, which the lists of relations repeat with small changes.
	{"step_relations", readShape(stepRelations), true},
	// One of 13, and reading while the plan is being written: commands whose arguments are the task.
	{"command_tasks", readShape(commandTasks), true},
	// A single action is no plan in the general way.
	{"single_action", readShape(singleAction), true},
	// All 214: references such as $var_1.result$ in arguments whose names say nothing.
	{"nested_calls", readShape(nestedCalls), true},
	// 43 of 3,499 told texts, and reading while the plan is being written: values in separate lines or
	// documents.
	{"task_list", readScattered(taskList), true},
	// 42 of 2,203: a list of one step, and lists that repeat a step's number.
	{"step_tools", readScattered(stepTools), true},
	// Five of 13: names of tasks whose numbers are their order.
	{"task_names", readShape(taskNames), true},
	// 1,537 of 1,547: "Node:" and "Edges:" in lines, broken in ways that only this notation can be read in.
	{"node_edge", readNodeEdge, false},
	// One damaged copy in fifteen (a plan line at the cut), and reading while the plan is being written.
	{"evidence", readEvidence, false},
	// A log of calls whose results stand between them, and reading while the plan is being written.
	{"call_log", readCallLog, false},
	// All four, and reading while the plan is being written: $1 in the arguments of numbered calls.
	{"numbered_calls", readNumberedCalls, false},
	// 24 of 1,209, calls that lost a bracket, and reading while the plan is being written.
	{"assignments", readAssignments, false},
}

// forms are the kinds of text that are read in the general way: by their form first, then by what they mean.
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

// Dialects returns the names of all notations with a reader of their own, in the order in which they are
// tried, and of the forms of text that are read in the general way.
func Dialects() []string {
	names := make([]string, 0, len(dialects)+len(forms))
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return append(names, forms[:]...)
}
