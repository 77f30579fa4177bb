// One visit in detail: what its actor was called with, and each attempt.
import { useState } from "react";
import type { GraphNode, Visit, VisitAttempt, VisitDetail } from "../api/types";
import { count, dollars, duration, word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Json, When } from "../ui/parts";
import { useModel } from "./use";

/** Given are the arguments: those of the call, or, of a visit that made none, those that the graph has. */
function Given({ node, detail, from }: { node: GraphNode; detail: VisitDetail | undefined; from: string[] }) {
  const known = detail?.argumentsKnown ?? false;
  const args: Record<string, unknown> = {};
  const of = known ? (detail ?? {}) : node;
  if (of.args && of.args.length > 0) args.args = of.args;
  if (of.named && Object.keys(of.named).length > 0) args.named = of.named;
  if (!known && node.bind && Object.keys(node.bind).length > 0) args.bind = node.bind;
  const some = Object.keys(args).length > 0;
  return (
    <>
      <h3>{known ? "Arguments of the call" : "Arguments of the node"}</h3>
      {some ? <Json value={args} label={known ? "Arguments of the call" : "Arguments of the node"} /> : null}
      {!some && known ? <p className="small muted">The actor was called without arguments.</p> : null}
      {!some && !known ? <p className="small muted">The node has none of its own.</p> : null}
      {detail?.leftOut?.map((l) => (
        <p key={l.argument} className="small muted">
          <code>{l.argument}</code> is left out: it has {count(l.bytes)} bytes.
        </p>
      ))}
      {!known && from.length > 0 ? <p className="small muted">With what is passed on by {from.join(", ")}.</p> : null}
    </>
  );
}

function Attempt({ of: a }: { of: VisitAttempt }) {
  const tokens = Number(a.usage?.inputTokens ?? 0) + Number(a.usage?.outputTokens ?? 0);
  return (
    <li>
      <strong>
        {a.item ? `item ${a.item}, ` : ""}try {a.attempt}
      </strong>{" "}
      {a.endTime ? <span>{a.startTime ? duration(Date.parse(a.endTime) - Date.parse(a.startTime)) : "not begun"}</span> : <>under way since <When time={a.startTime} /></>}
      {a.cached ? <span className="count"> cached</span> : null}
      {tokens > 0 ? (
        <span className="muted">
          {" "}
          {count(tokens)} tokens {dollars(a.usage?.costNanoUsd)}
        </span>
      ) : null}
      {a.principal ? <span className="muted"> by {a.principal}</span> : null}
      {a.error?.message ? (
        <p className="small error-text">
          {a.error.message} <code>{a.error.reason}</code> {word(a.error.type)}
        </p>
      ) : null}
    </li>
  );
}

export function Detail({ node, visit, from }: { node: GraphNode; visit: Visit; from: string[] }) {
  const model = useModel();
  const [item, setItem] = useState(0);
  // The events of the run change the visit; then its detail is read again.
  const version = `${visit.state} ${visit.attempts} ${visit.itemsDone ?? ""}`;
  const list = usePages<VisitDetail>(["visit", model.id, version], `/v1/runs/${model.id}:visit`, { nodeId: visit.nodeId, visit: visit.visit, item: item || undefined });
  const first = list.data?.pages[0];
  const attempts = list.data?.pages.flatMap((p) => p.attempts ?? []) ?? [];
  return (
    <>
      {visit.itemsTotal ? (
        <label className="small">
          Item{" "}
          <select value={item} onChange={(e) => setItem(Number(e.target.value))}>
            <option value={0}>all of them</option>
            {Array.from({ length: Math.min(visit.itemsTotal, 500) }, (_, i) => (
              <option key={i} value={i + 1}>
                {i + 1}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      <Given node={node} detail={list.isPlaceholderData && item ? undefined : first} from={from} />
      {attempts.length > 0 ? (
        <>
          <h3>Attempts</h3>
          <ol className="plain attempts" aria-label="Attempts">
            {attempts.map((a) => (
              <Attempt key={`${a.item ?? 0}-${a.attempt}-${a.endSeq ?? ""}`} of={a} />
            ))}
          </ol>
        </>
      ) : null}
      <More of={list} />
    </>
  );
}

/** NodeArguments are those of a node that has not run yet. */
export function NodeArguments({ node, from }: { node: GraphNode; from: string[] }) {
  return <Given node={node} detail={undefined} from={from} />;
}
