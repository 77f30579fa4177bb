// The names under which the pages know the messages of the API. schema.d.ts is generated from
// /openapi.json before every build.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Run = Schemas["epigraph.executor.v1.Run"];
export type RunState = Schemas["epigraph.executor.v1.RunState"];
export type RunEvent = Schemas["epigraph.executor.v1.RunEvent"];
export type RunFilter = Schemas["epigraph.executor.v1.RunFilter"];
export type ListRuns = Schemas["epigraph.executor.v1.ListRunsResponse"];
export type BulkCancel = Schemas["epigraph.executor.v1.BulkCancelRunsResponse"];
export type BulkRetry = Schemas["epigraph.executor.v1.BulkRetryRunsResponse"];
export type BulkFailure = Schemas["epigraph.executor.v1.BulkFailure"];
export type Visit = Schemas["epigraph.executor.v1.Visit"];
export type VisitRef = Schemas["epigraph.executor.v1.VisitRef"];
export type VisitState = Schemas["epigraph.executor.v1.VisitState"];
export type ListVisits = Schemas["epigraph.executor.v1.ListVisitsResponse"];
export type RunGraph = Schemas["epigraph.executor.v1.GetRunGraphResponse"];
export type Explain = Schemas["epigraph.executor.v1.ExplainRunResponse"];
export type Blocker = Schemas["epigraph.executor.v1.Blocker"];
export type Interrupt = Schemas["epigraph.executor.v1.Interrupt"];
export type ListInterrupts = Schemas["epigraph.executor.v1.ListInterruptsResponse"];
export type RunError = Schemas["epigraph.executor.v1.RunError"];
export type Usage = Schemas["epigraph.executor.v1.Usage"];
export type Graph = Schemas["epigraph.graph.v1.Graph"];
export type GraphNode = Schemas["epigraph.graph.v1.Node"];
export type GraphEdge = Schemas["epigraph.graph.v1.Edge"];
export type ParsePlan = Schemas["epigraph.planner.v1.ParsePlanResponse"];
export type CompilePlan = Schemas["epigraph.planner.v1.CompilePlanResponse"];
export type Diagnostic = Schemas["epigraph.plan.v1.Diagnostic"];
export type Repair = Schemas["epigraph.plan.v1.Repair"];
export type ProblemGraph = Schemas["epigraph.plan.v1.ProblemGraph"];
export type ValidateGraph = Schemas["epigraph.executor.v1.ValidateGraphResponse"];
export type ListActors = Schemas["epigraph.executor.v1.ListActorsResponse"];
export type ListTasks = Schemas["epigraph.registry.v1.ListTasksResponse"];
export type ListEpics = Schemas["epigraph.registry.v1.ListEpicsResponse"];
export type ErrorBody = Schemas["epigraph.errors.v1.Error"];
