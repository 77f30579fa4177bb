// Why a run does not go on, in words.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { Blocker, Explain } from "../api/types";
import { Link } from "../router";
import { word } from "../ui/format";
import { When } from "../ui/parts";
import { useCalm, useModel, useTopic } from "./use";

const shown = 5;
const moving = ["running", "completed"];

function One({ of, onChoose }: { of: Blocker; onChoose: (node: string) => void }) {
  const node = of.visit?.nodeId;
  return (
    <li>
      {of.message}
      {node ? (
        <>
          {" "}
          <button type="button" className="quiet inline" onClick={() => onChoose(node)}>
            show {node}
          </button>
        </>
      ) : null}
      {of.until ? (
        <span className="muted">
          {" "}
          ends <When time={of.until} />
        </span>
      ) : null}
      {of.runIds?.slice(0, 5).map((r) => (
        <span key={r}>
          {" "}
          <Link href={`/runs/${r}`}>{r}</Link>
        </span>
      ))}
      {of.hint ? <div className="small muted">{of.hint}</div> : null}
    </li>
  );
}

export function Explanation({ onChoose }: { onChoose: (node: string) => void }) {
  const model = useModel();
  useTopic(model, "run");
  const version = useCalm(model, "visits", 2000);
  const [all, setAll] = useState(false);
  const stands = Boolean(model.run) && !moving.includes(word(model.run?.state));
  const explained = useQuery({
    queryKey: ["explain", model.id, model.run?.etag, version],
    queryFn: ({ signal }) => get<Explain>(`/v1/runs/${model.id}:explain`, {}, signal),
    placeholderData: (old) => old,
    enabled: stands,
  });
  if (!stands || !explained.data) return null;
  const { summary, blockers = [], more = 0 } = explained.data;
  // The one blocker of an ended run says what the summary says.
  const list = blockers.length === 1 && blockers[0]?.message === summary ? [] : blockers;
  const hint = list.length === 0 ? blockers[0]?.hint : "";
  return (
    <section className={`explain explain-${word(model.run?.state)}`} aria-label="Why the run stands">
      <p>
        <strong>{summary}</strong>
      </p>
      {hint ? <p className="small muted">{hint}</p> : null}
      {list.length > 0 ? (
        <ul>
          {(all ? list : list.slice(0, shown)).map((b, i) => (
            <One key={`${b.kind}-${b.visit?.nodeId}-${i}`} of={b} onChoose={onChoose} />
          ))}
        </ul>
      ) : null}
      {list.length > shown && !all ? (
        <button type="button" className="quiet" onClick={() => setAll(true)}>
          {list.length - shown + more} more
        </button>
      ) : null}
    </section>
  );
}
