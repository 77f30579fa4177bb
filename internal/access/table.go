package access

import (
	"maps"
	"slices"
	"strings"
)

// Needed returns the scopes of which a caller of this method needs one.
func Needed(method string) []Scope {
	if scopes, ok := table[strings.TrimPrefix(method, "/")]; ok {
		return scopes
	}
	for _, prefix := range open {
		if strings.HasPrefix(method, prefix) {
			return anyScope
		}
	}
	return serviceOnly
}

// open are services of gRPC itself, which hold nothing of a namespace. Health needs no credential at all.
var open = []string{"/grpc.reflection.", "/grpc.health."}

var (
	anyScope    = []Scope{Read, Run, Worker, Approve, Admin}
	read        = []Scope{Read, Run}
	run         = []Scope{Run}
	admin       = []Scope{Admin}
	approve     = []Scope{Approve}
	serviceOnly = []Scope{Service}
)

// table has every method of the suite; a test compares it with the descriptors. A missing method is open to
// services alone.
var table = map[string][]Scope{
	"epigraph.planner.v1.PlannerService/ParsePlan":   read,
	"epigraph.planner.v1.PlannerService/CompilePlan": read,
	"epigraph.planner.v1.PlannerService/CreatePlan":  run,
	"epigraph.planner.v1.PlannerService/StreamPlan":  run,
	"epigraph.planner.v1.PlannerService/RevisePlan":  run,

	"epigraph.executor.v1.ExecutorService/StartRun":        run,
	"epigraph.executor.v1.ExecutorService/RunAndWait":      run,
	"epigraph.executor.v1.ExecutorService/ValidateGraph":   read,
	"epigraph.executor.v1.ExecutorService/GetRun":          read,
	"epigraph.executor.v1.ExecutorService/GetRunGraph":     read,
	"epigraph.executor.v1.ExecutorService/ListRuns":        read,
	"epigraph.executor.v1.ExecutorService/ListVisits":      read,
	"epigraph.executor.v1.ExecutorService/GetVisit":        read,
	"epigraph.executor.v1.ExecutorService/WatchRun":        read,
	"epigraph.executor.v1.ExecutorService/CancelRun":       run,
	"epigraph.executor.v1.ExecutorService/ResumeRun":       run,
	"epigraph.executor.v1.ExecutorService/ReconcileVisit":  run,
	"epigraph.executor.v1.ExecutorService/PauseRun":        run,
	"epigraph.executor.v1.ExecutorService/StopRun":         run,
	"epigraph.executor.v1.ExecutorService/SignalRun":       run,
	"epigraph.executor.v1.ExecutorService/SignalWithStart": run,
	"epigraph.executor.v1.ExecutorService/RetryRun":        run,
	"epigraph.executor.v1.ExecutorService/ForkRun":         run,
	"epigraph.executor.v1.ExecutorService/AmendRun":        run,
	"epigraph.executor.v1.ExecutorService/ExplainRun":      read,
	"epigraph.executor.v1.ExecutorService/CompareRuns":     read,
	"epigraph.executor.v1.ExecutorService/DeleteRun":       run,
	"epigraph.executor.v1.ExecutorService/BulkCancelRuns":  run,
	"epigraph.executor.v1.ExecutorService/BulkPauseRuns":   run,
	"epigraph.executor.v1.ExecutorService/BulkResumeRuns":  run,
	"epigraph.executor.v1.ExecutorService/BulkRetryRuns":   run,
	"epigraph.executor.v1.ExecutorService/BulkDeleteRuns":  run,
	// An approver sees the interrupts, and nothing else.
	"epigraph.executor.v1.ExecutorService/ListInterrupts":  {Read, Run, Approve},
	"epigraph.executor.v1.ExecutorService/GetInterrupt":    {Read, Run, Approve},
	"epigraph.executor.v1.ExecutorService/AnswerInterrupt": approve,
	// The attempt token identifies the visit, and whoever does the work has it, be it a worker or not.
	"epigraph.executor.v1.ExecutorService/CompleteAttempt": {Run, Worker},
	// A worker sends with the attempt token of its call alone, in the name of the call's node.
	"epigraph.executor.v1.ExecutorService/SendMessage": {Run, Worker},
	"epigraph.executor.v1.ExecutorService/ListActors":  {Read, Run, Worker},

	"epigraph.executor.v1.ScheduleService/CreateSchedule":   run,
	"epigraph.executor.v1.ScheduleService/GetSchedule":      read,
	"epigraph.executor.v1.ScheduleService/ListSchedules":    read,
	"epigraph.executor.v1.ScheduleService/UpdateSchedule":   run,
	"epigraph.executor.v1.ScheduleService/DeleteSchedule":   run,
	"epigraph.executor.v1.ScheduleService/PauseSchedule":    run,
	"epigraph.executor.v1.ScheduleService/ResumeSchedule":   run,
	"epigraph.executor.v1.ScheduleService/BackfillSchedule": run,
	"epigraph.executor.v1.ScheduleService/TriggerSchedule":  run,

	"epigraph.executor.v1.TriggerService/ActivateTriggers":      run,
	"epigraph.executor.v1.TriggerService/DeactivateTriggers":    run,
	"epigraph.executor.v1.TriggerService/ListTriggers":          read,
	"epigraph.executor.v1.TriggerService/GetTrigger":            read,
	"epigraph.executor.v1.TriggerService/RotateTriggerSecret":   run,
	"epigraph.executor.v1.TriggerService/ListTriggerDeliveries": read,
	"epigraph.executor.v1.TriggerService/GetTriggerDelivery":    read,
	"epigraph.executor.v1.TriggerService/RepeatTriggerDelivery": run,
	// The signature is checked behind it, and is the right to call.
	"epigraph.executor.v1.HookService/ReceiveWebhook": serviceOnly,

	"epigraph.executor.v1.ThreadService/CreateThread":  run,
	"epigraph.executor.v1.ThreadService/GetThread":     read,
	"epigraph.executor.v1.ThreadService/ListThreads":   read,
	"epigraph.executor.v1.ThreadService/DeleteThread":  run,
	"epigraph.executor.v1.ThreadService/ForkThread":    run,
	"epigraph.executor.v1.ThreadService/ExportThread":  read,
	"epigraph.executor.v1.ThreadService/ImportThread":  run,
	"epigraph.executor.v1.ThreadService/ListMessages":  read,
	"epigraph.executor.v1.ThreadService/ListStates":    read,
	"epigraph.executor.v1.ThreadService/ListLearnings": read,
	"epigraph.executor.v1.ThreadService/ListSummaries": read,
	"epigraph.executor.v1.ThreadService/AppendMessage": run,
	"epigraph.executor.v1.ThreadService/GetTurn":       read,
	"epigraph.executor.v1.ThreadService/ListTurns":     read,

	"epigraph.executor.v1.WorkerService/Work":        {Worker},
	"epigraph.executor.v1.WorkerService/ListWorkers": {Read, Run, Worker},

	"epigraph.executor.v1.LimitService/UpdateLimit": admin,
	"epigraph.executor.v1.LimitService/ListLimits":  {Read, Run, Admin},
	"epigraph.executor.v1.LimitService/DeleteLimit": admin,

	"epigraph.executor.v1.PeerService/Invoke":       serviceOnly,
	"epigraph.executor.v1.PeerService/ExplainLocal": serviceOnly,
	"epigraph.executor.v1.PeerService/Govern":       serviceOnly,
	"epigraph.executor.v1.PeerService/Follow":       serviceOnly,

	"epigraph.registry.v1.RegistryService/CreateEpic":     run,
	"epigraph.registry.v1.RegistryService/GetEpic":        read,
	"epigraph.registry.v1.RegistryService/ListEpics":      read,
	"epigraph.registry.v1.RegistryService/SearchEpics":    read,
	"epigraph.registry.v1.RegistryService/ImportEpic":     run,
	"epigraph.registry.v1.RegistryService/UpdateEpic":     run,
	"epigraph.registry.v1.RegistryService/TransitionEpic": run,
	"epigraph.registry.v1.RegistryService/RunEpic":        run,
	"epigraph.registry.v1.RegistryService/ForecastEpic":   read,
	"epigraph.registry.v1.RegistryService/DeleteEpic":     run,
	"epigraph.registry.v1.RegistryService/CreateTask":     run,
	"epigraph.registry.v1.RegistryService/GetTask":        read,
	"epigraph.registry.v1.RegistryService/ListTasks":      read,
	"epigraph.registry.v1.RegistryService/UpdateTask":     run,
	"epigraph.registry.v1.RegistryService/TransitionTask": run,
	"epigraph.registry.v1.RegistryService/DeleteTask":     run,
	// A claim says that a run works on a task. A caller that could make one could block the task for others,
	// or end it for them.
	"epigraph.registry.v1.RegistryService/ClaimTask":    serviceOnly,
	"epigraph.registry.v1.RegistryService/ConfirmClaim": serviceOnly,
	"epigraph.registry.v1.RegistryService/SettleClaim":  serviceOnly,
	// These return data of all namespaces.
	"epigraph.registry.v1.RegistryService/LeaseOrders":       serviceOnly,
	"epigraph.registry.v1.RegistryService/AcknowledgeOrders": serviceOnly,

	"epigraph.registry.v1.RegistryService/RecordUsage":       run,
	"epigraph.registry.v1.RegistryService/PriceUsage":        read,
	"epigraph.registry.v1.RegistryService/ListUsage":         read,
	"epigraph.registry.v1.RegistryService/GetNamespaceUsage": read,
	"epigraph.registry.v1.RegistryService/ReportUsage":       read,
	"epigraph.registry.v1.RegistryService/CreatePrice":       admin,
	"epigraph.registry.v1.RegistryService/ImportPrices":      admin,
	"epigraph.registry.v1.RegistryService/ListPrices":        {Read, Run, Admin},
	"epigraph.registry.v1.RegistryService/SetBudget":         admin,
	"epigraph.registry.v1.RegistryService/GetBudget":         {Read, Run, Admin},
	// A caller that could reserve could use up the budget of others without a call.
	"epigraph.registry.v1.RegistryService/ReserveUsage": serviceOnly,
	"epigraph.registry.v1.RegistryService/ReleaseUsage": serviceOnly,
	"epigraph.registry.v1.RegistryService/ListEvents":   read,
	"epigraph.registry.v1.RegistryService/WatchEvents":  read,
	// A caller that could tell of runs could make events, and a history of its own.
	"epigraph.registry.v1.RegistryService/RecordChanges": serviceOnly,

	"epigraph.registry.v1.MemoryService/WriteMemory":     run,
	"epigraph.registry.v1.MemoryService/LeaseUnembedded": serviceOnly,
	"epigraph.registry.v1.MemoryService/EmbedMemory":     serviceOnly,
	"epigraph.registry.v1.MemoryService/SearchMemory":    read,
	"epigraph.registry.v1.MemoryService/GetMemory":       read,
	"epigraph.registry.v1.MemoryService/ListMemory":      read,
	"epigraph.registry.v1.MemoryService/DeleteMemory":    run,
	"epigraph.registry.v1.MemoryService/ExportMemory":    admin,
	"epigraph.registry.v1.MemoryService/ForgetMemory":    admin,
	"epigraph.registry.v1.MemoryService/ListMemoryReads": {Read, Run, Admin},

	"epigraph.registry.v1.KeyService/GetCaller": anyScope,
	"epigraph.registry.v1.KeyService/CreateKey": admin,
	"epigraph.registry.v1.KeyService/GetKey":    admin,
	"epigraph.registry.v1.KeyService/ListKeys":  admin,
	"epigraph.registry.v1.KeyService/RevokeKey": admin,
	// A caller that could ask about hashes could try secrets.
	"epigraph.registry.v1.KeyService/ResolveKey": serviceOnly,

	"epigraph.registry.v1.AuditService/ListAudit": admin,
	// A caller that could add entries could make up what others did.
	"epigraph.registry.v1.AuditService/RecordAudit": serviceOnly,

	"epigraph.registry.v1.WorkflowService/CreateWorkflow":        run,
	"epigraph.registry.v1.WorkflowService/CreateWorkflowVersion": run,
	"epigraph.registry.v1.WorkflowService/GetWorkflow":           read,
	"epigraph.registry.v1.WorkflowService/ListWorkflows":         read,
	"epigraph.registry.v1.WorkflowService/GetWorkflowVersion":    read,
	"epigraph.registry.v1.WorkflowService/ListWorkflowVersions":  read,
	"epigraph.registry.v1.WorkflowService/SetWorkflowAlias":      run,
	"epigraph.registry.v1.WorkflowService/DeleteWorkflowAlias":   run,
	"epigraph.registry.v1.WorkflowService/ForkWorkflow":          run,
	"epigraph.registry.v1.WorkflowService/DiffWorkflowVersions":  read,
	"epigraph.registry.v1.WorkflowService/DeprecateWorkflow":     run,
	"epigraph.registry.v1.WorkflowService/ExposeWorkflow":        run,
	"epigraph.registry.v1.WorkflowService/DeleteWorkflow":        run,
	"epigraph.registry.v1.WorkflowService/ValidateWorkflow":      read,
	"epigraph.registry.v1.WorkflowService/DiscoverWorkflows":     read,
	"epigraph.registry.v1.WorkflowService/ResolveWorkflow":       read,
	"epigraph.registry.v1.WorkflowService/ForecastWorkflow":      read,
}

// unchanging are those methods that change nothing although readers may not call them, and the stream of
// workers, in which nobody decides anything.
var unchanging = map[string]bool{
	"epigraph.registry.v1.KeyService/GetKey":          true,
	"epigraph.registry.v1.KeyService/ListKeys":        true,
	"epigraph.registry.v1.AuditService/ListAudit":     true,
	"epigraph.registry.v1.MemoryService/ExportMemory": true,
	"epigraph.executor.v1.WorkerService/Work":         true,
}

// Changes reports whether callers change something by a method. Such calls are in the audit log. Methods
// for services alone are no changes by a caller.
func Changes(method string) bool {
	method = strings.TrimPrefix(method, "/")
	need, known := table[method]
	return known && !slices.Contains(need, Read) && !slices.Contains(need, Service) && !unchanging[method]
}

// Methods are all that the table names, like epigraph.executor.v1.ExecutorService/GetRun.
func Methods() []string { return slices.Sorted(maps.Keys(table)) }

// FullMethod is the full name of a method that changes something, by its last part: "CancelRun". Other names
// stay as they are.
func FullMethod(name string) string {
	for m := range table {
		if Changes(m) && strings.HasSuffix(m, "/"+name) {
			return m
		}
	}
	return strings.TrimPrefix(name, "/")
}
