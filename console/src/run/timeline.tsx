// When each visit ran, with the critical path.
import { useMemo, useState } from "react";
import { duration, word } from "../ui/format";
import { useNow } from "../ui/parts";
import { Rows } from "../ui/rows";
import { criticalPath } from "./critical";
import { useCalm, useModel } from "./use";

export function Timeline({ chosen, onChoose }: { chosen: string; onChoose: (id: string) => void }) {
  const model = useModel();
  const version = useCalm(model, "visits", 500);
  const graphVersion = useCalm(model, "graph", 500);
  const [only, setOnly] = useState(false);
  const second = useNow();
  const now = model.ended ? 0 : second;
  const { visits, path, start, end } = useMemo(() => {
    const all = model.allVisits().filter((v) => v.startTime);
    const latest = Math.max(now, ...[Date.parse(model.run?.endTime ?? "") || 0]);
    const path = criticalPath(all, model.graph?.edges ?? [], latest);
    all.sort((a, b) => (a.startTime ?? "").localeCompare(b.startTime ?? ""));
    let start = Number.POSITIVE_INFINITY;
    let end = 0;
    for (const v of all) {
      start = Math.min(start, Date.parse(v.startTime ?? ""));
      end = Math.max(end, v.endTime ? Date.parse(v.endTime) : latest);
    }
    return { visits: all, path, start, end: Math.max(end, start + 1) };
  }, [model, version, graphVersion, now]);
  const rows = only ? visits.filter((v) => path.has(v)) : visits;
  if (visits.length === 0) return <p className="muted">No visit has begun yet.</p>;
  let sum = 0;
  for (const v of path) sum += (v.endTime ? Date.parse(v.endTime) : end) - Date.parse(v.startTime ?? "");
  return (
    <div className="timeline">
      <p className="small">
        {visits.length} visits in {duration(end - start)}. The critical path has {path.size}, which took {duration(sum)} together.{" "}
        <label>
          <input type="checkbox" checked={only} onChange={(e) => setOnly(e.target.checked)} /> only the critical path
        </label>
      </p>
      <Rows
        label="Timeline"
        count={rows.length}
        row={(i) => {
          const v = rows[i];
          if (!v) return null;
          const from = Date.parse(v.startTime ?? "");
          const to = v.endTime ? Date.parse(v.endTime) : end;
          const critical = path.has(v);
          const name = `${v.nodeId}${(v.visit ?? 1) > 1 ? ` ×${v.visit}` : ""}`;
          return (
            <button type="button" className={`bar-row quiet${v.nodeId === chosen ? " chosen" : ""}`} onClick={() => onChoose(v.nodeId ?? "")}>
              <span className="bar-name">
                {critical ? <span title="on the critical path">◆ </span> : null}
                {name}
              </span>
              <span className="bar-space">
                <span
                  className={`bar bar-${word(v.state).replaceAll(" ", "-")}${critical ? " critical" : ""}`}
                  style={{ left: `${((from - start) / (end - start)) * 100}%`, width: `max(2px, ${((to - from) / (end - start)) * 100}%)` }}
                />
              </span>
              <span className="bar-time number">{duration(to - from)}</span>
            </button>
          );
        }}
      />
    </div>
  );
}
