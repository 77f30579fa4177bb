// The tasks of an epic in columns by state.
import type { Task } from "../api/types";
import { count, word } from "../ui/format";
import { State } from "../ui/parts";
import { taskStates } from "./states";

/** most is how many cards a column shows. */
const most = 100;

interface Props {
  tasks: Task[];
  chosen: string;
  onChoose: (id: string) => void;
}

function Card({ task, chosen, onChoose }: { task: Task; chosen: boolean; onChoose: () => void }) {
  const waits = task.dependsOn?.length ?? 0;
  return (
    <li>
      <button type="button" className="card" data-row aria-pressed={chosen} onClick={onChoose}>
        <strong>{task.title || task.id}</strong>
        <span className="small muted">
          {task.workflowSlug ? `${task.workflowSlug} ` : ""}
          {waits > 0 ? `after ${waits} ` : ""}
          {Number(task.actualTokens) > 0 ? `${count(task.actualTokens)} tokens` : ""}
        </span>
      </button>
    </li>
  );
}

export function Board({ tasks, chosen, onChoose }: Props) {
  return (
    <div className="board" role="group" aria-label="Tasks by state">
      {taskStates.map((s) => {
        const mine = tasks.filter((t) => word(t.state) === s);
        if (mine.length === 0 && (s === "canceled" || s === "failed" || s === "blocked")) return null;
        return (
          <section key={s} aria-label={`${s} tasks`}>
            <h2>
              <State of={`TASK_STATE_${s.toUpperCase()}`} /> <span className="muted">{mine.length}</span>
            </h2>
            <ul className="plain">
              {mine.slice(0, most).map((t) => (
                <Card key={t.id} task={t} chosen={t.id === chosen} onChoose={() => onChoose(t.id ?? "")} />
              ))}
            </ul>
            {mine.length > most ? <p className="small muted">and {mine.length - most} more</p> : null}
          </section>
        );
      })}
    </div>
  );
}
