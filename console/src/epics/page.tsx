// One epic: its tasks as board and as tree, its budget and its bill.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, remove, requestId } from "../api/client";
import type { Budget, Epic, EpicForecast, ListTasks, Task } from "../api/types";
import { Link, navigate, setQuery, useAddress } from "../router";
import { Act, FormDialog, Text } from "../ui/act";
import { useFeed } from "../ui/feed";
import { Tabs } from "../ui/filters";
import { count, dollars, duration, word } from "../ui/format";
import { readAll } from "../ui/pages";
import { Fault, State, usePageTitle, When } from "../ui/parts";
import { step, useShortcuts } from "../ui/shortcuts";
import { Bill } from "./bill";
import { Board } from "./board";
import { BudgetBars } from "./budget";
import { BudgetForm, TaskForm } from "./forms";
import { isDone } from "./states";
import { TaskPanel } from "./task";
import { Tree } from "./tree";

const tabs = [
  { name: "board", title: "Board" },
  { name: "tree", title: "Tree" },
  { name: "bill", title: "Bill" },
];

type Form = "task" | "budget" | "run";

function Actions({ epic, onForm }: { epic: Epic; onForm: (f: Form) => void }) {
  const queries = useQueryClient();
  const state = word(epic.state);
  const move = async (to: string) => {
    await post<Epic>(`/v1/epics/${epic.id}:transition`, { state: `EPIC_STATE_${to}`, etag: epic.etag, requestId: requestId() });
    await queries.invalidateQueries({ queryKey: ["epic", epic.id] });
  };
  return (
    <div className="buttons">
      {!isDone(epic) ? (
        <>
          <button type="button" onClick={() => onForm("task")}>
            New task
          </button>
          <button type="button" onClick={() => onForm("budget")}>
            Budget
          </button>
        </>
      ) : null}
      {state === "active" || state === "planning" ? (
        <button type="button" className="primary" onClick={() => onForm("run")}>
          {epic.parallel ? "Run otherwise" : "Run"}
        </button>
      ) : null}
      {state === "active" ? <Act label="Pause" run={() => move("PAUSED")} /> : null}
      {state === "paused" ? <Act label="Resume" run={() => move("ACTIVE")} /> : null}
      {state === "active" ? <Act label="Complete" run={() => move("COMPLETED")} /> : null}
      {!isDone(epic) ? <Act label="Cancel…" danger ask={<p>Its runs are told to end, and its open tasks are canceled.</p>} run={() => move("CANCELED")} /> : null}
      {isDone(epic) ? (
        <Act
          label="Delete…"
          danger
          ask={<p>The epic is removed with its tasks. What it has used stays booked.</p>}
          run={async () => {
            await remove(`/v1/epics/${epic.id}?etag=${encodeURIComponent(epic.etag ?? "")}`);
            navigate("/epics");
          }}
        />
      ) : null}
    </div>
  );
}

function RunForm({ epic: now, onClose }: { epic: Epic; onClose: () => void }) {
  const queries = useQueryClient();
  const [epic] = useState(now); // with its etag: what changed meanwhile is not overwritten
  return (
    <FormDialog
      title="Run the epic by itself"
      submit="Run it"
      onClose={onClose}
      send={async (f) => {
        await post<Epic>(`/v1/epics/${epic.id}:run`, { parallel: Number(f.parallel || "0"), workflowSlug: f.workflow, etag: epic.etag, requestId: requestId() });
        await queries.invalidateQueries({ queryKey: ["epic", epic.id] });
      }}
    >
      <p className="small">Tasks whose dependencies are completed are started, until all have ended or the budget is exhausted.</p>
      <Text name="parallel" label="How many tasks at once" type="number" min="1" value={epic.parallel ? String(epic.parallel) : "2"} autoFocus />
      <Text name="workflow" label="Workflow of tasks that name none" value={epic.workflowSlug} placeholder="digest@prod" />
    </FormDialog>
  );
}

function Forecast({ epic }: { epic: string }) {
  const forecast = useQuery({
    queryKey: ["epic", epic, "forecast"],
    queryFn: ({ signal }) => get<EpicForecast>(`/v1/epics/${epic}:forecast`, {}, signal),
    retry: false,
  });
  const f = forecast.data;
  if (!f || !f.tasks) return null;
  const unknown = Number(f.tokens?.unknownTasks ?? 0);
  const p50 = f.tokens?.p50 ?? f.tokens?.knownP50;
  const p90 = f.tokens?.p90 ?? f.tokens?.knownP90;
  return (
    <p className="small">
      Forecast of the {count(f.tasks)} open {f.tasks === 1 ? "task" : "tasks"}: {p50 && unknown < f.tasks ? `${count(p50)} to ${count(p90)} tokens` : "tokens are not known"}
      {f.costNanoUsd?.p50 ? `, ${dollars(f.costNanoUsd.p50)} to ${dollars(f.costNanoUsd.p90)}` : ""}
      {f.durationMs?.p50 ? `, ${duration(Number(f.durationMs.p50))} to ${duration(Number(f.durationMs.p90))}` : ""}
      {unknown > 0 ? `; nothing is known of ${count(unknown)}` : ""}.
    </p>
  );
}

export default function EpicPage({ id }: { id: string }) {
  const { query } = useAddress();
  const [form, setForm] = useState<Form | undefined>();
  const feed = useFeed({ epicId: id }, [["epic", id], ["runs"]]);
  const found = useQuery({ queryKey: ["epic", id, "itself"], queryFn: ({ signal }) => get<Epic>(`/v1/epics/${id}`, {}, signal) });
  const budget = useQuery({ queryKey: ["epic", id, "budget"], queryFn: ({ signal }) => get<Budget>(`/v1/budgets/epic/${id}`, {}, signal) });
  const read = useQuery({
    queryKey: ["epic", id, "tasks"],
    queryFn: ({ signal }) => readAll<Task>("/v1/tasks", { epicId: id }, (p: ListTasks) => p.tasks, signal),
    placeholderData: (old) => old,
  });
  const epic = found.data;
  const tasks = read.data ?? [];
  const tab = tabs.find((t) => t.name === query.get("tab"))?.name ?? "board";
  const chosen = query.get("task") ?? "";
  const choose = (task: string) => setQuery({ task });
  usePageTitle(epic?.title || "Epic");
  useShortcuts([
    ...tabs.map((t, i) => ({ keys: String(i + 1), does: t.title, run: () => setQuery({ tab: t.name }) })),
    { keys: "j", does: "Next task", run: () => step(1) },
    { keys: "k", does: "Previous task", run: () => step(-1) },
    { keys: "n", does: "New task", run: () => setForm("task") },
    { keys: "Escape", does: "Close the task", run: () => choose("") },
  ]);
  if (!epic) return found.error ? <Fault error={found.error} retry={() => found.refetch()} /> : <p className="muted">Loading…</p>;
  return (
    <>
      <div className="heading">
        <h1>{epic.title || "Epic"}</h1>
        <span role="status">
          <State of={epic.state} reason={epic.pauseReason} />
        </span>
        {feed === "broken" ? <span className="small muted">not live, connecting again</span> : null}
        <Actions epic={epic} onForm={setForm} />
      </div>
      <p className="small run-facts">
        <code>{epic.id}</code>
        {epic.parallel ? <span>runs by itself, {epic.parallel} at once</span> : null}
        {epic.workflowSlug ? <span className="tag">{epic.workflowSlug}</span> : null}
        {epic.tags?.map((t) => (
          <Link key={t} className="tag" href={`/epics?tag=${encodeURIComponent(t)}`}>
            {t}
          </Link>
        ))}
        <span>
          created <When time={epic.createTime} />
        </span>
        <span>
          {count(epic.completedTasks)} of {count(epic.totalTasks)} tasks completed
        </span>
      </p>
      {epic.description ? <p className="prompt">{epic.description}</p> : null}
      {epic.resultSummary ? <p className="explain">{epic.resultSummary}</p> : null}
      <BudgetBars epic={epic} budget={budget.data} />
      {isDone(epic) ? null : <Forecast epic={id} />}
      <Fault error={read.error ?? budget.error} />
      <Tabs label="Views of the epic" tabs={tabs} at={tab} />
      <div className="split">
        <div className="view">
          {tab !== "bill" && read.isSuccess && tasks.length === 0 ? (
            <p className="muted">
              There is no task yet.{" "}
              <button type="button" onClick={() => setForm("task")}>
                Add the first task
              </button>
            </p>
          ) : null}
          {tab === "board" ? <Board tasks={tasks} chosen={chosen} onChoose={choose} /> : null}
          {tab === "tree" && tasks.length > 0 ? <Tree tasks={tasks} chosen={chosen} onChoose={choose} /> : null}
          {tab === "bill" ? <Bill epic={id} tasks={tasks} /> : null}
        </div>
        {chosen && tab !== "bill" ? <TaskPanel key={chosen} id={chosen} tasks={tasks} onChoose={choose} onClose={() => choose("")} /> : null}
      </div>
      {form === "task" ? <TaskForm epic={id} tasks={tasks} onClose={() => setForm(undefined)} /> : null}
      {form === "budget" && budget.data ? <BudgetForm epic={id} budget={budget.data} onClose={() => setForm(undefined)} /> : null}
      {form === "run" ? <RunForm epic={epic} onClose={() => setForm(undefined)} /> : null}
    </>
  );
}
