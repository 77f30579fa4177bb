// One task: what it is, where it stands, and the runs that worked on it.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { get, post, requestId } from "../api/client";
import type { ListRuns, Task } from "../api/types";
import { Link } from "../router";
import { Act } from "../ui/act";
import { Fact } from "../ui/facts";
import { count, dollars, duration, milliseconds, word } from "../ui/format";
import { Fault, Json, State, When } from "../ui/parts";

/** next is what a person may ask of a task in each state. */
const next: Record<string, [label: string, state: string][]> = {
  pending: [
    ["Complete", "COMPLETED"],
    ["Cancel the task…", "CANCELED"],
  ],
  blocked: [["Cancel the task…", "CANCELED"]],
  running: [["Cancel the task…", "CANCELED"]],
  failed: [["Try again", "PENDING"]],
};

function Runs({ task }: { task: string }) {
  const runs = useQuery({
    queryKey: ["runs", "of task", task],
    queryFn: ({ signal }) => get<ListRuns>("/v1/runs", { taskId: task, pageSize: 20 }, signal),
  });
  const list = runs.data?.runs ?? [];
  return (
    <>
      <h3>Runs</h3>
      <Fault error={runs.error} />
      {runs.data && list.length === 0 ? <p className="small muted">No run has worked on it.</p> : null}
      <ul className="plain">
        {list.map((r) => (
          <li key={r.id}>
            <Link href={`/runs/${r.id}`}>{r.graphName || r.id}</Link> <State of={r.state} /> <When time={r.createTime} />
          </li>
        ))}
      </ul>
    </>
  );
}

export function TaskPanel({ id, tasks, onChoose, onClose }: { id: string; tasks: Task[]; onChoose: (id: string) => void; onClose: () => void }) {
  const queries = useQueryClient();
  const listed = tasks.find((t) => t.id === id);
  const whole = useQuery({
    queryKey: ["epic", listed?.epicId ?? "", "task", id],
    queryFn: ({ signal }) => get<Task>(`/v1/tasks/${id}`, {}, signal),
    placeholderData: listed,
  });
  const task = whole.data;
  if (!task) return <Fault error={whole.error} />;
  const name = (other: string) => tasks.find((t) => t.id === other)?.title || other;
  const move = async (state: string) => {
    await post<Task>(`/v1/tasks/${id}:transition`, { state: `TASK_STATE_${state}`, etag: task.etag, requestId: requestId(), note: `${state.toLowerCase()} in the console` });
    await queries.invalidateQueries({ queryKey: ["epic", task.epicId] });
  };
  return (
    <aside className="panel" aria-label={`Task ${task.title}`}>
      <header>
        <h2>{task.title || task.id}</h2>
        <button type="button" className="quiet" onClick={onClose} aria-label="Close the task">
          ✕
        </button>
      </header>
      <p className="small muted">
        <code>{task.id}</code>
      </p>
      <p className="prompt">{task.description}</p>
      <p className="buttons">
        {(next[word(task.state)] ?? []).map(([label, state]) => (
          <Act key={label} label={label} danger={state === "CANCELED"} ask={state === "CANCELED" ? <p>Its run is told to end. What depends on it follows its dependency policy.</p> : undefined} run={() => move(state)} />
        ))}
      </p>
      <dl className="facts">
        <Fact name="State">
          <State of={task.state} />
        </Fact>
        <Fact name="Priority">{word(task.priority?.replace("PRIORITY_", ""))}</Fact>
        <Fact name="Workflow">{task.workflowSlug}</Fact>
        <Fact name="After">
          {task.dependsOn?.length
            ? task.dependsOn.map((d) => (
                <button key={d} type="button" className="quiet inline" onClick={() => onChoose(d)}>
                  {name(d)}
                </button>
              ))
            : ""}
        </Fact>
        <Fact name="Waits for">{task.blockedBy?.map(name).join(", ")}</Fact>
        <Fact name="Used">{Number(task.actualTokens) > 0 ? `${count(task.actualTokens)} tokens ${dollars(task.actualNanoUsd)}` : ""}</Fact>
        <Fact name="Took">{milliseconds(task.duration) > 0 ? duration(milliseconds(task.duration)) : ""}</Fact>
        <Fact name="Tried again">{task.retryCount}</Fact>
        <Fact name="Result">{task.resultSummary}</Fact>
      </dl>
      {task.errorMessage ? <div className="fault">{task.errorMessage}</div> : null}
      {task.notes && task.notes.length > 0 ? (
        <>
          <h3>Notes</h3>
          <ul className="plain">
            {task.notes.map((n, i) => (
              <li key={`${n.time}-${i}`}>
                {n.text} <span className="small muted">{n.author || n.principal} </span>
                <When time={n.time} />
              </li>
            ))}
          </ul>
        </>
      ) : null}
      {task.input !== undefined ? (
        <>
          <h3>Inputs</h3>
          <Json value={task.input} label="Inputs" />
        </>
      ) : null}
      <Runs task={id} />
    </aside>
  );
}
