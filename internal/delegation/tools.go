package delegation

// Tool is what a model is told of a tool.
type Tool struct {
	Name, Description string
	// Reads says that it changes nothing.
	Reads bool
	// Destroys says that it may end or replace what is there.
	Destroys bool

	required, properties string
}

// Schema is the JSON Schema of the arguments. more are properties besides, as JSON texts.
func (t *Tool) Schema(more ...string) string {
	properties := t.properties
	for _, p := range more {
		properties += ", " + p
	}
	return Object(t.required, properties)
}

// Object is the JSON Schema of arguments. required and properties are parts of its JSON text.
func Object(required, properties string) string {
	return `{"type": "object", "additionalProperties": false, "required": [` + required + `], "properties": {` + properties + `}}`
}

// Names of the tools.
const (
	EpicCreate = "epic_create"
	EpicStatus = "epic_status"
	EpicUpdate = "epic_update"
	EpicSearch = "epic_search"
	TaskCreate = "task_create"
	TaskList   = "task_list"
	TaskUpdate = "task_update"
	TaskCancel = "task_cancel"
)

// Properties of the schemas.
const (
	tagsProperty     = `"tags": {"description": "A list of words, or words with commas between them; 20 at most."}`
	priorityProperty = `"priority": {"type": "integer", "minimum": 1, "maximum": 4, "description": "1 critical, 2 high, 3 medium, 4 low."}`
	budgetProperties = `"budget_tokens": {"type": "integer", "minimum": 0, "description": "How many tokens may be spent; no bound when absent."},
    "budget_usd": {"type": "number", "minimum": 0, "description": "How many dollars may be spent; no bound when absent."}`
	epicProperty         = `"epic_id": {"type": "string", "maxLength": 64, "description": "The id of the epic, ep_…"}`
	inputProperty        = `"input": {"description": "Inputs of the workflow that does it, as an object or its JSON as a text. The workflow is told title, description, task_id and epic_id besides."}`
	policyProperty       = `"dependency_policy": {"type": "string", "description": "What becomes of it when a task that it depends on has failed or was cancelled: block (it waits), skip (it is cancelled) or fail; as the epic says when absent."}`
	dependsProperty      = `"depends_on": {"description": "Ids of tasks of the same epic that come first: a list, or ids with commas between them."}`
	requirementsProperty = `"requirements": {"description": "What a workflow must offer to do it, as an object or its JSON as a text: triggers, node_types, tools, tags, description, model_capability."}`
	sourceProperty       = `"workflow_source": {"type": "string", "enum": ["inline", "existing", "created"], "description": "Where that workflow comes from: existing, or created for the task; inline is done without one."}`
	estimateProperties   = `"estimated_tokens": {"type": "integer", "minimum": 0, "description": "How many tokens it will use, as far as you know; a cap must leave room for them."},
    "max_retries": {"type": "integer", "minimum": 0, "maximum": 100, "description": "How often it may be tried again; 2 when absent."}`
	taskProperty = `"task_id": {"type": "string", "maxLength": 64, "description": "The id of the task, tk_…"}`
)

// Tools are the tools over epics and tasks.
func Tools() []Tool {
	return []Tool{
		{Name: EpicCreate, required: `"title"`,
			Description: "Makes an epic: a goal that takes several tasks, with tags to find it by and a budget. Answers its epic_id.",
			properties: `"title": {"type": "string", "maxLength": 512, "description": "Its short name."},
    "description": {"type": "string", "description": "The goal, its constraints, and how success is judged."}, ` + tagsProperty + `, ` + priorityProperty + `, ` + budgetProperties},
		{Name: EpicStatus, Reads: true, required: `"epic_id"`,
			Description: "Tells how far an epic is: its counters, what it cost, and its tasks.", properties: epicProperty},
		{Name: EpicUpdate, Destroys: true, required: `"epic_id"`,
			Description: "Changes an epic: its status (active, paused, completed, failed, cancelled), texts, tags, priority and budget. A completed epic takes a result_summary. Canceling it cancels its open tasks and their runs.",
			properties: epicProperty + `, "status": {"type": "string", "description": "Where it goes: active, paused, completed, failed or cancelled."},
    "title": {"type": "string", "maxLength": 512}, "description": {"type": "string"}, ` + tagsProperty + `, ` + priorityProperty + `, ` + budgetProperties + `, "result_summary": {"type": "string", "description": "What came of it."}`},
		{Name: EpicSearch, Reads: true,
			Description: "Looks for epics of the past by words of their titles, tags, descriptions and results and those of their tasks, best first, with their workflows, success rate and cost.",
			properties: `"query": {"type": "string", "maxLength": 1024, "description": "Words to look for; the newest epics when absent."}, ` + tagsProperty + `,
    "status": {"type": "string", "description": "Only epics of this status, such as completed."}, "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 10 when absent."}`},
		{Name: TaskCreate, required: `"epic_id", "title"`,
			Description: "Adds a task to an epic. It is blocked until the tasks that it depends on are completed. Answers its task_id.",
			properties: epicProperty + `, "title": {"type": "string", "maxLength": 512, "description": "What is to be done, in few words."}, "description": {"type": "string"}, ` + tagsProperty + `,
    ` + dependsProperty + `, ` + policyProperty + `, ` + inputProperty + `, ` + priorityProperty + `, ` + requirementsProperty + `, "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow that is to do it."}, ` + sourceProperty + `, ` + estimateProperties},
		{Name: TaskList, Reads: true, Description: "Lists tasks, oldest first, by epic, status and tags.",
			properties: epicProperty + `, "status": {"type": "string", "description": "pending, blocked, running, completed, failed or cancelled."}, ` + tagsProperty + `,
    "limit": {"type": "integer", "description": "How many are told, from 1 to 100; 20 when absent."}, "page_token": {"type": "string", "maxLength": 2048, "description": "The next_page_token of the answer before."}`},
		{Name: TaskUpdate, Destroys: true, required: `"task_id"`,
			Description: "Changes a task: its status (pending to try it again, running, completed, failed, cancelled), texts, tags, priority, workflow, requirements, input, estimate, retries and what it waits for, or adds a note. Work that is done without a run begins with running, from when on it is booked on the task, and ends with completed and a result_summary.",
			properties: taskProperty + `, "status": {"type": "string", "description": "Where it goes: pending, running, completed, failed or cancelled."}, "title": {"type": "string", "maxLength": 512},
    "description": {"type": "string"}, ` + priorityProperty + `, "result_summary": {"type": "string", "description": "What came of it."}, "error_message": {"type": "string", "description": "What went wrong."},
    "notes": {"type": "string", "description": "A remark to add."}, ` + dependsProperty + `, ` + policyProperty + `, ` + inputProperty + `, "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow that does it."}, ` + sourceProperty + `, ` + tagsProperty + `, ` + requirementsProperty + `, ` + estimateProperties},
		{Name: TaskCancel, Destroys: true, required: `"task_id"`, Description: "Cancels a task, and the run that works on it.",
			properties: taskProperty + `, "reason": {"type": "string", "description": "Why."}`},
	}
}
