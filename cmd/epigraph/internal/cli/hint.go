package cli

import "regexp"

// commandOf names the command, with a flag where there is one, for each call of the API that hints may speak of: they are written for whoever
// calls the API, and here a command is what can be typed.
var commandOf = map[string]string{
	"StartRun": "run", "ParsePlan": "plan",
	"ListRuns": "runs ls", "GetRun": "runs get", "GetRunGraph": "runs graph", "ListVisits": "runs visits", "WatchRun": "runs watch", "ExplainRun": "runs explain",
	"PauseRun": "runs pause", "ResumeRun": "runs resume", "CancelRun": "runs cancel", "RetryRun": "runs retry", "ForkRun": "runs fork", "AmendRun": "runs amend",
	"DeleteRun": "runs delete", "ReconcileVisit": "runs reconcile", "SignalRun": "runs signal", "SendMessage": "runs send",
	"BulkCancelRuns": "runs bulk-cancel", "BulkRetryRuns": "runs bulk-retry", "BulkDeleteRuns": "runs bulk-delete",
	"ListInterrupts": "interrupts list", "GetInterrupt": "interrupts show", "AnswerInterrupt": "interrupts answer",
	"DECISION_APPROVED": "interrupts answer --approve", "DECISION_REJECTED": "interrupts answer --reject",
	"ListSchedules": "schedules list", "GetSchedule": "schedules show", "CreateSchedule": "schedules create", "UpdateSchedule": "schedules update",
	"PauseSchedule": "schedules pause", "ResumeSchedule": "schedules resume", "TriggerSchedule": "schedules trigger", "BackfillSchedule": "schedules backfill",
	"DeleteSchedule": "schedules delete",
	"ListLimits":     "limits list", "PutLimit": "limits put", "DeleteLimit": "limits delete", "ListWorkers": "workers list", "ListActors": "actors",
	"ListEpics": "epics ls", "GetEpic": "epics get", "CreateEpic": "epics create", "UpdateEpic": "epics update", "TransitionEpic": "epics transition",
	"DeleteEpic": "epics rm",
	"ListTasks":  "tasks ls", "GetTask": "tasks get", "CreateTask": "tasks create", "TransitionTask": "tasks transition", "DeleteTask": "tasks rm",
	"CompleteTask": "tasks complete", "ListUsage": "usage", "GetNamespaceUsage": "usage", "ListPrices": "prices ls", "CreatePrice": "prices set",
}

var apiName = regexp.MustCompile(`\b[A-Z][A-Za-z_]+\b`)

// inCommands is a hint with commands in place of calls.
func inCommands(hint string) string {
	return apiName.ReplaceAllStringFunc(hint, func(name string) string {
		if c, ok := commandOf[name]; ok {
			return "`epigraph " + c + "`"
		}
		return name
	})
}
