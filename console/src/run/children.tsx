// The runs that a node has started, each as a small graph within the node.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { get } from "../api/client";
import type { ListRuns, ListVisits, Run, RunGraph, Visit } from "../api/types";
import { Link } from "../router";
import { word } from "../ui/format";
import { State } from "../ui/parts";
import { type Layout, layout } from "./layout";
import { linesOf } from "./lines";
import { useModel, useTopic } from "./use";

export const childHeight = 190;
/** most is how many children are shown within a node, and how many nodes each may have there. */
const most = 20;
const mostNodes = 400;

export function useChildren(id: string) {
  const model = useModel();
  const version = useTopic(model, "children");
  return useQuery({
    queryKey: ["children", id, version],
    queryFn: ({ signal }) => get<ListRuns>("/v1/runs", { parentRunId: id, pageSize: 200 }, signal),
    placeholderData: (old) => old,
    refetchInterval: (q) => (q.state.data?.runs?.some((r) => !r.endTime) ? 4_000 : false),
  });
}

/** childrenOf are the children of a node, or of one visit of it. */
export function childrenOf(runs: Run[] | undefined, node: string, visit?: number): Run[] {
  return (runs ?? []).filter((r) => r.parentVisit?.nodeId === node && (!visit || r.parentVisit?.visit === visit));
}

function Small({ run }: { run: Run }) {
  const open = !run.endTime;
  const graph = useQuery({
    queryKey: ["graph", run.id, run.graphRevision],
    queryFn: ({ signal }) => get<RunGraph>(`/v1/runs/${run.id}/graph`, {}, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const visits = useQuery({
    queryKey: ["visits", run.id, run.endTime],
    queryFn: ({ signal }) => get<ListVisits>(`/v1/runs/${run.id}/visits`, { pageSize: 1000 }, signal),
    refetchInterval: open ? 3_000 : false,
  });
  const nodes = graph.data?.graph?.nodes ?? [];
  const states = useMemo(() => new Map((visits.data?.visits ?? []).map((v: Visit) => [v.nodeId, word(v.state)])), [visits.data]);
  const [places, setPlaces] = useState<Layout | undefined>();
  const lines = useMemo(() => linesOf(graph.data?.graph?.edges ?? []), [graph.data]);
  useEffect(() => {
    if (nodes.length > 0 && nodes.length <= mostNodes) setPlaces(layout(nodes.map((n) => ({ id: n.id ?? "", width: 120, height: 34 })), lines));
  }, [nodes, lines]);
  if (nodes.length > mostNodes) return <p className="small muted">{nodes.length} nodes: open the run to see them</p>;
  if (!places) return null;
  const at = new Map(nodes.map((n, i) => [n.id ?? "", places.places[i] ?? { x: 0, y: 0 }]));
  return (
    <svg className="small-graph" viewBox={`-4 -4 ${places.width + 8} ${places.height + 8}`} role="img" aria-label={`${nodes.length} nodes`}>
      {lines.map((l, i) => {
        const a = at.get(l.from);
        const b = at.get(l.to);
        return a && b && !l.back ? <path key={i} d={`M${a.x + 120},${a.y + 17}L${b.x},${b.y + 17}`} /> : null;
      })}
      {nodes.map((n) => {
        const p = at.get(n.id ?? "") ?? { x: 0, y: 0 };
        return (
          <g key={n.id} className={`state-${(states.get(n.id) ?? "idle").replaceAll(" ", "-")}`} transform={`translate(${p.x},${p.y})`}>
            <rect width="120" height="34" rx="5" />
            <text x="8" y="22">
              {(n.name || n.id || "").slice(0, 15)}
            </text>
          </g>
        );
      })}
    </svg>
  );
}

export function ChildGraphs({ node, visits }: { node: string; visits: Visit[] }) {
  const model = useModel();
  const children = useChildren(model.id);
  const last = visits[visits.length - 1];
  const mine = childrenOf(children.data?.runs, node, last?.visit);
  return (
    <div className="children nowheel nodrag nopan" tabIndex={0} role="region" aria-label={`Runs of ${node}`}>
      {mine.slice(0, most).map((r) => (
        <div key={r.id}>
          <Link href={`/runs/${r.id}`} onMouseDown={(e) => e.stopPropagation()}>
            {r.graphName || r.id}
          </Link>{" "}
          <State of={r.state} />
          <Small run={r} />
        </div>
      ))}
      {mine.length > most ? <p className="small">and {mine.length - most} more</p> : null}
      {children.data && mine.length === 0 ? <p className="small muted">No run was started by this visit.</p> : null}
    </div>
  );
}
