package plan

// Code names a kind of diagnostic or repair. Codes are stable.
type Code string

// Codes of faults in the graph.
const (
	UnknownReference Code = "UNKNOWN_REFERENCE"
	DuplicateID      Code = "DUPLICATE_ID"
	DuplicateEdge    Code = "DUPLICATE_EDGE"
	Cycle            Code = "CYCLE"
	SelfLoop         Code = "SELF_LOOP"
	EmptyPlan        Code = "EMPTY_PLAN"
	EmptyID          Code = "EMPTY_ID"
	UnknownParent    Code = "UNKNOWN_PARENT"
	ParentCycle      Code = "PARENT_CYCLE"
)

// Codes of faults and doubts in the text.
const (
	Truncated         Code = "TRUNCATED"
	Unclosed          Code = "UNCLOSED"
	Unbalanced        Code = "UNBALANCED"
	Malformed         Code = "MALFORMED"
	Ambiguous         Code = "AMBIGUOUS"
	AmbiguousPlan     Code = "AMBIGUOUS_PLAN"
	Contradiction     Code = "CONTRADICTION"
	MissingField      Code = "MISSING_FIELD"
	SkippedText       Code = "SKIPPED_TEXT"
	NumberingGap      Code = "NUMBERING_GAP"
	AssumedOrder      Code = "ASSUMED_ORDER"
	NoEdgesStated     Code = "NO_EDGES_STATED"
	IsolatedProblem   Code = "ISOLATED_PROBLEM"
	SeveralPlans      Code = "SEVERAL_PLANS"
	LimitReached      Code = "LIMIT_REACHED"
	UnknownDialect    Code = "UNKNOWN_DIALECT"
	UndefinedVariable Code = "UNDEFINED_VARIABLE"
	Redefined         Code = "REDEFINED"
	OpenEnd           Code = "OPEN_END"
	Retracted         Code = "RETRACTED"
	UnknownTool       Code = "UNKNOWN_TOOL"
)

// Codes of restatements by a model.
const (
	RestatementRefused Code = "RESTATEMENT_REFUSED"
	RestatementFailed  Code = "RESTATEMENT_FAILED"
)

// Codes of repairs.
const (
	FenceRemoved    Code = "FENCE_REMOVED"
	ProseRemoved    Code = "PROSE_REMOVED"
	ThinkRemoved    Code = "THINK_REMOVED"
	SyntaxTolerated Code = "SYNTAX_TOLERATED"
	PythonLiteral   Code = "PYTHON_LITERAL"
	ReusedTool      Code = "REUSED_TOOL"
	Restated        Code = "RESTATED"
)
