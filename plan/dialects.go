package plan

// dialect is one way of writing a plan. read returns nil when the text is not of this dialect; it must be strict about
// what it accepts, because the first dialect in the table that accepts a text decides how it is read.
type dialect struct {
	name string
	read func(*document) *reading
	// data is set for dialects that read a value, in JSON or the like, rather than lines of text.
	data bool
}

// looseFrom is the first of the dialects that accept what is merely formatted like a plan. They are not tried on a text
// that another dialect has recognized as data that is no plan.
const looseFrom = "arrows"

// dialects is the table of all dialects, most specific first. To add one, write its reader in a file of its own and
// name it here.
var dialects = [...]dialect{
	{"xml_problems", readXMLProblems, false},
	{"xml_functions", readXMLFunctions, false},
	{"tool_graph", readShape(toolGraph), true},
	{"step_relations", readShape(stepRelations), true},
	{"command_tasks", readShape(commandTasks), true},
	{"single_action", readShape(singleAction), true},
	{"nested_calls", readShape(nestedCalls), true},
	{"task_list", readScattered(taskList), true},
	{"step_tools", readScattered(stepTools), true},
	{"task_names", readShape(taskNames), true},
	{"node_edge", readNodeEdge, false},
	{"evidence", readEvidence, false},
	{"call_log", readCallLog, false},
	{"numbered_calls", readNumberedCalls, false},
	{"assignments", readAssignments, false},
	{"arrows", readArrows, false},
	{"yaml", readYAML, false},
	{"table", readTable, false},
	{"numbered", readNumbered, false},
	{"general", readGeneral, false},
}

// isData reports whether the named dialect reads values rather than lines of text.
func isData(name string) bool {
	for i := range dialects {
		if dialects[i].name == name {
			return dialects[i].data
		}
	}
	return false
}

// Dialects returns the names of all dialects in the order in which they are tried.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.name
	}
	return names
}
