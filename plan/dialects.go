package plan

// dialect is one way of writing a plan. read returns nil when the text is not of this dialect; it must be strict about
// what it accepts, because the first dialect in the table that accepts a text decides how it is read.
type dialect struct {
	name string
	read func(*document) *reading
}

// looseFrom is the first of the dialects that accept what is merely formatted like a plan. They are not tried on a text
// that another dialect has recognized as data that is no plan.
const looseFrom = "arrows"

// dialects is the table of all dialects, most specific first. To add one, write its reader in a file of its own and
// name it here.
var dialects = [...]dialect{
	{"xml_problems", readXMLProblems},
	{"xml_functions", readXMLFunctions},
	{"tool_graph", readShape(toolGraph)},
	{"step_relations", readShape(stepRelations)},
	{"command_tasks", readShape(commandTasks)},
	{"single_action", readShape(singleAction)},
	{"nested_calls", readShape(nestedCalls)},
	{"task_list", readShape(taskList)},
	{"step_tools", readShape(stepTools)},
	{"task_names", readShape(taskNames)},
	{"node_edge", readNodeEdge},
	{"evidence", readEvidence},
	{"call_log", readCallLog},
	{"numbered_calls", readNumberedCalls},
	{"assignments", readAssignments},
	{"arrows", readArrows},
	{"yaml", readYAML},
	{"numbered", readNumbered},
}

// Dialects returns the names of all dialects in the order in which they are tried.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.name
	}
	return names
}
