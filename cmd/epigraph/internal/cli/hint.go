package cli

import (
	"regexp"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// commandOf is the command, with a flag where needed, for each call of the API in hints: hints are written
// for callers of the API, and users of the command line need the command.
var commandOf = map[string]string{
	"StartRun": "run", "ParsePlan": "plan read", "CreatePlan": "plan create", "StreamPlan": "plan create --run", "RevisePlan": "runs revise",
	"ListRuns": "runs ls", "GetRun": "runs get", "GetRunGraph": "runs graph", "ListVisits": "runs visits", "WatchRun": "runs watch", "ExplainRun": "runs explain", "CompareRuns": "runs compare",
	"PauseRun": "runs pause", "StopRun": "runs stop", "ResumeRun": "runs resume", "CancelRun": "runs cancel", "RetryRun": "runs retry", "ForkRun": "runs fork", "AmendRun": "runs amend",
	"DeleteRun": "runs delete", "ReconcileVisit": "runs reconcile", "SignalRun": "runs signal", "SendMessage": "runs send",
	"BulkCancelRuns": "runs bulk-cancel", "BulkPauseRuns": "runs bulk-pause", "BulkResumeRuns": "runs bulk-resume", "BulkRetryRuns": "runs bulk-retry", "BulkDeleteRuns": "runs bulk-delete",
	"ListInterrupts": "interrupts list", "GetInterrupt": "interrupts show", "AnswerInterrupt": "interrupts answer",
	"DECISION_APPROVED": "interrupts answer --approve", "DECISION_REJECTED": "interrupts answer --reject",
	"ListThreads": "threads ls", "GetThread": "threads show", "ForkThread": "threads fork", "ExportThread": "threads export", "ImportThread": "threads import", "DeleteThread": "threads rm", "ListTurns": "threads turns", "AppendMessage": "chat",
	"ListMemory": "memory ls", "SearchMemory": "memory search", "GetMemory": "memory show", "WriteMemory": "memory write", "DeleteMemory": "memory rm", "ExportMemory": "memory export",
	"ForgetMemory": "memory forget", "ListMemoryReads": "memory reads",
	"ListSchedules": "schedules list", "GetSchedule": "schedules show", "CreateSchedule": "schedules create", "UpdateSchedule": "schedules update",
	"PauseSchedule": "schedules pause", "ResumeSchedule": "schedules resume", "TriggerSchedule": "schedules trigger", "BackfillSchedule": "schedules backfill",
	"DeleteSchedule":   "schedules delete",
	"ActivateTriggers": "triggers on", "DeactivateTriggers": "triggers off", "ListTriggers": "triggers ls", "GetTrigger": "triggers show",
	"ListTriggerDeliveries": "triggers deliveries", "GetTriggerDelivery": "triggers show", "RepeatTriggerDelivery": "triggers repeat", "RotateTriggerSecret": "triggers rotate",
	"ListLimits": "limits list", "UpdateLimit": "limits put", "DeleteLimit": "limits delete", "ListWorkers": "workers list", "CreateKey": "keys create", "GetCaller": "keys whoami", "GetKey": "keys show", "ListKeys": "keys list", "RevokeKey": "keys revoke", "ListAudit": "audit", "ListActors": "actors",
	"ListEpics": "epics ls", "SearchEpics": "epics search", "ImportEpic": "epics import", "GetEpic": "epics get", "CreateEpic": "epics create", "UpdateEpic": "epics update", "TransitionEpic": "epics transition", "RunEpic": "epics run", "ForecastEpic": "epics run",
	"DeleteEpic":    "epics rm",
	"ListWorkflows": "workflows ls", "GetWorkflow": "workflows show", "ListWorkflowVersions": "workflows versions",
	"ListTasks": "tasks ls", "GetTask": "tasks get", "CreateTask": "tasks create", "UpdateTask": "tasks update", "TransitionTask": "tasks transition", "DeleteTask": "tasks rm",
	"CompleteAttempt": "attempts complete", "ListUsage": "usage list", "GetNamespaceUsage": "usage list", "ReportUsage": "usage report", "ListPrices": "prices ls", "CreatePrice": "prices set", "ImportPrices": "prices import", "GetBudget": "budgets show", "SetBudget": "budgets set",
	"ListEvents": "events", "WatchEvents": "events --follow",
}

// flagOf names the flag that says what a field of a request says, for fields that hints speak of.
var flagOf = map[string]string{
	"allow_unsafe": "--allow-unsafe", "request_id": "--request-id", "task_id": "--task", "business_key": "--business-key", "max_bytes": "--bytes",
	"max_fan_out": "--fan-out", "max_pending_runs": "--pending-runs", "max_open_runs": "--open-runs", "next_page_token": "--page-token",
	"x-epigraph-namespace": "--namespace",
}

var (
	apiName   = regexp.MustCompile(`\b[A-Z][A-Za-z_]+\b`)
	fieldName = regexp.MustCompile(`[a-z.]+(?:[_-][a-z]+)+`)
)

// inCommands is a hint with commands in place of calls, and flags in place of fields.
func inCommands(hint string) string {
	hint = fieldName.ReplaceAllStringFunc(hint, func(name string) string {
		if f, ok := flagOf[name]; ok {
			return f
		}
		return name
	})
	return apiName.ReplaceAllStringFunc(hint, func(name string) string {
		if c, ok := commandOf[name]; ok {
			return "`epigraph " + c + "`"
		}
		return name
	})
}

// nameHint describes in words the pattern of a name that a request did not match.
func nameHint(faults []errs.Violation) string {
	for _, v := range faults {
		switch {
		case v.Reason != "STRING_PATTERN":
		case v.Field == "schedule.id":
			return "an id is of a-z, 0-9, . _ and -, at most 63, with a letter or digit first and last, such as nightly-report"
		case v.Field == "limit.name":
			return "a limit is called namespace, actor/NAME or key/VALUE, such as actor/llm"
		case strings.Contains(v.Field, "labels["):
			return "the name of a label is of a-z, 0-9, . _ - and /, at most 63, with a letter or digit first and last, such as team"
		}
	}
	return ""
}
