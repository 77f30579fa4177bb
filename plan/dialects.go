package plan

// dialect is a notation with a reader of its own. read returns nil when the text is not of this dialect; it must be strict
// about what it accepts, because the first dialect in the table that accepts a text decides how it is read.
type dialect struct {
	name string
	read func(*document) *reading
	// data is set for dialects that read a value, in JSON or the like, rather than lines of text.
	data bool
}

// dialects is the table of the notations that the general way does not read as well, most specific first.
var dialects = [...]dialect{
	{"xml_problems", readXMLProblems, false},
	{"xml_functions", readXMLFunctions, false},
	{"tool_graph", readToolGraph, true},
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

// Dialects returns the names of all notations with a reader of their own, in the order in which they are tried, and of
// the forms of text that are read in the general way.
func Dialects() []string {
	names := make([]string, 0, len(dialects)+len(forms))
	for _, d := range dialects {
		names = append(names, d.name)
	}
	return append(names, forms[:]...)
}
