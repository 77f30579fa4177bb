// What is known of one node: what it was given, and each of its visits.
import { useState } from "react";
import type { Visit } from "../api/types";
import { Link } from "../router";
import { Fact } from "../ui/facts";
import { count, dollars, duration, milliseconds, word } from "../ui/format";
import { Json, State, When } from "../ui/parts";
import { childrenOf, useChildren } from "./children";
import { Detail, NodeArguments } from "./detail";
import { Elsewhere } from "./elsewhere";
import { Fork } from "./fork";
import { useModel, useVisits } from "./use";

function Took({ visit }: { visit: Visit }) {
  const whole = visit.startTime && visit.endTime ? Date.parse(visit.endTime) - Date.parse(visit.startTime) : undefined;
  const calls = milliseconds(visit.duration);
  if (whole === undefined) return visit.startTime ? <>since <When time={visit.startTime} /></> : null;
  return (
    <>
      {duration(whole)}
      {calls > 0 && whole - calls > 50 ? <span className="muted"> ({duration(calls)} in attempts)</span> : null}
    </>
  );
}

function VisitFacts({ visit }: { visit: Visit }) {
  const model = useModel();
  const children = useChildren(model.id);
  const mine = childrenOf(children.data?.runs, visit.nodeId ?? "", visit.visit);
  const tokens = Number(visit.usage?.inputTokens ?? 0) + Number(visit.usage?.outputTokens ?? 0);
  return (
    <>
      <dl className="facts">
        <Fact name="State">
          <State of={visit.state} />
        </Fact>
        <Fact name="Skipped">{visit.skipReason ? `${word(visit.skipReason)} ${visit.skipMessage ?? ""}` : ""}</Fact>
        <Fact name="Attempts">{visit.attempts}</Fact>
        <Fact name="Took">
          <Took visit={visit} />
        </Fact>
        <Fact name="Items">{visit.itemsTotal ? `${visit.itemsDone} of ${visit.itemsTotal} ended${visit.itemsWaiting ? `, ${visit.itemsWaiting} wait` : ""}` : ""}</Fact>
        <Fact name="Used">
          {visit.usage && Number(visit.usage.calls) > 0
            ? `${count(visit.usage.calls)} calls, ${count(tokens)} tokens ${dollars(visit.usage.costNanoUsd)}`
            : ""}
        </Fact>
        <Fact name="Waits for">{visit.wait?.kind ? `${word(visit.wait.kind)} ${visit.wait.signal ?? ""}` : ""}</Fact>
        <Fact name="Until">{visit.wait?.dueTime ? <When time={visit.wait.dueTime} /> : ""}</Fact>
        <Fact name="Effect key">{visit.effectKey ? <code>{visit.effectKey}</code> : ""}</Fact>
        <Fact name="Taken from">{visit.cached ? "the node cache" : visit.reused ? "the run of which this is a fork" : ""}</Fact>
      </dl>
      {visit.error?.message ? (
        <div className="fault">
          <p>
            {visit.error.message} <code>{visit.error.reason}</code> <span className="muted">{word(visit.error.type)}</span>
          </p>
        </div>
      ) : null}
      {visit.progress !== undefined ? (
        <>
          <h3>Progress</h3>
          <Json value={visit.progress} label="Progress" />
        </>
      ) : null}
      {mine.length > 0 ? (
        <>
          <h3>Runs</h3>
          <ul className="plain scroll" tabIndex={0} aria-label="Runs of this visit">
            {mine.map((r) => (
              <li key={r.id}>
                <Link href={`/runs/${r.id}`}>{r.graphName || r.id}</Link> <State of={r.state} />
              </li>
            ))}
          </ul>
        </>
      ) : null}
      {visit.values && visit.values.length > 0 ? (
        <>
          <h3>Result</h3>
          <Json value={visit.values.length === 1 ? visit.values[0] : visit.values} label="Result of the visit" />
        </>
      ) : null}
    </>
  );
}

export function NodePanel({ id, onClose }: { id: string; onClose: () => void }) {
  const model = useModel();
  const visits = useVisits(model, id);
  const node = model.node(id);
  const [picked, setPicked] = useState(0); // 0 is the last
  const visit = visits.find((v) => v.visit === picked) ?? visits[visits.length - 1];
  const from = (model.graph?.edges ?? []).filter((e) => e.to === id).map((e) => e.from ?? "");
  if (!node) return null;
  const rules: Record<string, unknown> = {};
  for (const name of ["when", "transform", "retry", "timeout", "onError", "join", "map", "check", "concurrencyKey", "cache", "on"] as const) {
    if (node[name] !== undefined && node[name] !== "") rules[name] = node[name];
  }
  return (
    <aside className="panel" aria-label={`Node ${id}`}>
      <header>
        <h2>{node.name || id}</h2>
        <button type="button" className="quiet" onClick={onClose} aria-label="Close the node">
          ✕
        </button>
      </header>
      <p className="small muted">
        <code>{id}</code> calls <code>{node.actor}</code> <span>{word(node.effect?.replace("EFFECT_", ""))}</span>
      </p>
      {visits.length > 1 ? (
        <label className="small">
          Visit{" "}
          <select value={visit?.visit} onChange={(e) => setPicked(Number(e.target.value))}>
            {visits.map((v) => (
              <option key={v.visit} value={v.visit}>
                {v.visit}: {word(v.state)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      {visit ? <VisitFacts visit={visit} /> : <p className="muted">The node has not run yet.</p>}
      {visit ? <Detail key={visit.visit} node={node} visit={visit} from={from} /> : <NodeArguments node={node} from={from} />}
      {model.run && visit ? (
        <p className="small elsewhere">
          <Elsewhere run={model.run} visit={visit} />
        </p>
      ) : null}
      <p className="buttons">
        <Fork node={node} visit={visit} />
      </p>
      <details>
        <summary>Rules</summary>
        <Json value={rules} label="Rules of the node" />
      </details>
    </aside>
  );
}
