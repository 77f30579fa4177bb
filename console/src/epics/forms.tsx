// Forms that make epics and tasks, and raise budgets.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { address, post, put, requestId } from "../api/client";
import type { Budget, Epic, Task } from "../api/types";
import { navigate } from "../router";
import { Choice, FormDialog, listOf, nanoOf, Text } from "../ui/act";

const priorities: [string, string][] = [
  ["PRIORITY_CRITICAL", "critical"],
  ["PRIORITY_HIGH", "high"],
  ["PRIORITY_MEDIUM", "medium"],
  ["PRIORITY_LOW", "low"],
];

export function EpicForm({ onClose }: { onClose: () => void }) {
  const send = async (f: Record<string, string>) => {
    const epic: Partial<Epic> = {
      title: f.title,
      description: f.description,
      tags: listOf(f.tags),
      priority: f.priority as Epic["priority"],
      workflowSlug: f.workflow,
      userId: f.user,
    };
    const nano = nanoOf(f.usd);
    if (nano !== undefined) epic.budgetNanoUsd = nano;
    if (f.tokens) epic.budgetTokens = f.tokens;
    const made = await post<Epic>(address("/v1/epics", { requestId: requestId() }), epic);
    navigate(`/epics/${made.id}`);
  };
  return (
    <FormDialog title="New epic" submit="Create the epic" onClose={onClose} send={send}>
      <Text name="title" label="Title" required autoFocus />
      <Text name="description" label="The goal, its constraints, and how success is judged" rows={4} />
      <Text name="tags" label="Tags" placeholder="sales, 2026" />
      <Choice name="priority" label="Priority" value="PRIORITY_MEDIUM" options={priorities} />
      <Text name="usd" label="Budget in dollars" type="number" step="any" min="0" about="Nothing goes over it. Empty is no cap." />
      <Text name="tokens" label="Budget in tokens" type="number" min="0" />
      <Text name="workflow" label="Workflow of its tasks" placeholder="digest@prod" about="It works on tasks that name none, when the epic runs by itself." />
      <Text name="user" label="User" about="Whose goal it is." />
    </FormDialog>
  );
}

export function TaskForm({ epic, tasks, onClose }: { epic: string; tasks: Task[]; onClose: () => void }) {
  const queries = useQueryClient();
  const send = async (f: Record<string, string>) => {
    const task: Partial<Task> = {
      epicId: epic,
      title: f.title,
      description: f.description,
      priority: f.priority as Task["priority"],
      dependsOn: listOf(f.after).map((name) => tasks.find((t) => t.title === name)?.id ?? name),
    };
    if (f.workflow) task.workflowSlug = f.workflow;
    if (f.input) task.input = JSON.parse(f.input);
    await post<Task>(address("/v1/tasks", { requestId: requestId() }), task);
    await queries.invalidateQueries({ queryKey: ["epic", epic] });
  };
  return (
    <FormDialog title="New task" submit="Add the task" onClose={onClose} send={send}>
      <Text name="title" label="Title" required autoFocus />
      <Text name="description" label="What is to be done" rows={3} />
      <Text name="after" label="After these tasks" about="Titles or ids, with commas between them." placeholder={tasks[0]?.title} />
      <Choice name="priority" label="Priority" value="PRIORITY_MEDIUM" options={priorities} />
      <Text name="workflow" label="Workflow" placeholder="digest@prod" />
      <Text name="input" label="Inputs of the workflow (JSON)" rows={3} placeholder='{"topic": "tea"}' />
    </FormDialog>
  );
}

export function BudgetForm({ epic, budget: now, onClose }: { epic: string; budget: Budget; onClose: () => void }) {
  const queries = useQueryClient();
  // What the form shows goes with the etag of that time, so that a change of somebody else is not lost.
  const [budget] = useState(now);
  const dollarsOf = (nano: string | undefined) => (nano === undefined ? "" : String(Number(nano) / 1e9));
  const send = async (f: Record<string, string>) => {
    const caps = (usd: string | undefined, tokens: string | undefined) => {
      const nano = nanoOf(usd);
      return { ...(nano === undefined ? {} : { nanoUsd: nano }), ...(tokens ? { tokens } : {}) };
    };
    const body: Partial<Budget> = { hard: caps(f.hardUsd, f.hardTokens), soft: caps(f.softUsd, f.softTokens), etag: budget.etag };
    await put<Budget>(address(`/v1/budgets/epic/${epic}`, { requestId: requestId() }), body);
    await queries.invalidateQueries({ queryKey: ["epic", epic] });
  };
  return (
    <FormDialog title="Budget of the epic" submit="Set the budget" onClose={onClose} send={send}>
      <p className="small">An epic that is paused because its budget is exhausted goes on once the budget is raised.</p>
      <Text name="hardUsd" label="At most, in dollars" type="number" step="any" min="0" value={dollarsOf(budget.hard?.nanoUsd)} autoFocus />
      <Text name="hardTokens" label="At most, in tokens" type="number" min="0" value={budget.hard?.tokens} />
      <Text name="softUsd" label="Told from, in dollars" type="number" step="any" min="0" value={dollarsOf(budget.soft?.nanoUsd)} about="Spending goes on, and the feed tells of it." />
      <Text name="softTokens" label="Told from, in tokens" type="number" min="0" value={budget.soft?.tokens} />
    </FormDialog>
  );
}
