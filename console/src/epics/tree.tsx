// The tasks of an epic as they depend on each other.
import { useMemo } from "react";
import type { Task } from "../api/types";
import { word } from "../ui/format";
import { type Item, Picture, type Way } from "../ui/picture";

/** most is how many tasks can still be told apart. */
const most = 1000;

export function Tree({ tasks, chosen, onChoose }: { tasks: Task[]; chosen: string; onChoose: (id: string) => void }) {
  const shown = useMemo(() => tasks.slice(0, most), [tasks]);
  const items = useMemo<Item[]>(
    () =>
      shown.map((t) => ({
        id: t.id ?? "",
        title: t.title || t.id || "",
        about: word(t.state),
        kind: `task-${word(t.state)}${t.id === chosen ? " chosen" : ""}`,
      })),
    [shown, chosen],
  );
  const ways = useMemo<Way[]>(() => shown.flatMap((t) => (t.dependsOn ?? []).map((from) => ({ from, to: t.id ?? "" }))), [shown]);
  return (
    <div className="plan-box tall" tabIndex={0} role="region" aria-label="Dependencies">
      <Picture label={`${shown.length} tasks and what they depend on`} items={items} ways={ways} onChoose={onChoose} />
      {tasks.length > most ? <p className="small muted pad">The first {most} tasks are shown.</p> : null}
    </div>
  );
}
