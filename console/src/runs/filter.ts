// The filter of the list of runs: in the address, in the query of the list, and in bulk requests.
import type { Query } from "../api/client";
import type { RunFilter, RunState } from "../api/types";
import { runStates } from "../ui/states";

const spans: Record<string, number> = { "1h": 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000 };
export const spanNames = Object.keys(spans);

export interface Filter {
  states: string[];
  labels: string[];
  user: string;
  task: string;
  epic: string;
  workflow: string;
  key: string;
  parent: string;
  schedule: string;
  span: string;
  after: string;
  before: string;
}

export function readFilter(query: URLSearchParams): Filter {
  const one = (name: string) => query.get(name) ?? "";
  return {
    states: query.getAll("state").filter((s) => (runStates as string[]).includes(s)),
    labels: query.getAll("label").filter((l) => labelParts(l)),
    user: one("user"),
    task: one("task"),
    epic: one("epic"),
    workflow: one("workflow"),
    key: one("key"),
    parent: one("parent"),
    schedule: one("schedule"),
    span: one("span") in spans ? one("span") : "",
    after: validTime(one("after")),
    before: validTime(one("before")),
  };
}

function validTime(text: string): string {
  return Number.isNaN(Date.parse(text)) ? "" : text;
}

export function isEmpty(f: Filter): boolean {
  return Object.values(f).every((v) => v.length === 0);
}

/** labelParts splits "team=red"; undefined is no label. */
export function labelParts(text: string): [string, string] | undefined {
  const at = text.indexOf("=");
  return at > 0 ? [text.slice(0, at).trim(), text.slice(at + 1).trim()] : undefined;
}

function stateNames(f: Filter): RunState[] {
  return f.states.map((s) => `RUN_STATE_${s.toUpperCase()}` as RunState);
}

function times(f: Filter, now: number): { createdAfter?: string; createdBefore?: string } {
  const out: { createdAfter?: string; createdBefore?: string } = {};
  const span = spans[f.span];
  if (f.after) out.createdAfter = new Date(f.after).toISOString();
  // To the minute, so that the address of a request is the same for a while.
  else if (span) out.createdAfter = new Date(Math.floor((now - span) / 60_000) * 60_000).toISOString();
  if (f.before) out.createdBefore = new Date(f.before).toISOString();
  return out;
}

export function listQuery(f: Filter, now: number): Query {
  const out: Query = {
    states: stateNames(f),
    taskId: f.task,
    epicId: f.epic,
    workflow: f.workflow,
    userId: f.user,
    businessKey: f.key,
    parentRunId: f.parent,
    scheduleId: f.schedule,
    ...times(f, now),
  };
  for (const label of f.labels) {
    const parts = labelParts(label);
    if (parts) out[`labels[${parts[0]}]`] = parts[1];
  }
  return out;
}

/** bulkFilter is undefined where bulk requests cannot say what the list shows. */
export function bulkFilter(f: Filter, now: number): RunFilter | undefined {
  if (f.key || f.parent || f.schedule) return undefined;
  const labels = Object.fromEntries(f.labels.map(labelParts).filter((p) => p !== undefined));
  const out: RunFilter = { ...times(f, now) };
  if (f.states.length > 0) out.states = stateNames(f);
  if (f.labels.length > 0) out.labels = labels;
  if (f.task) out.taskId = f.task;
  if (f.epic) out.epicId = f.epic;
  if (f.workflow) out.workflow = f.workflow;
  if (f.user) out.userId = f.user;
  return out;
}
