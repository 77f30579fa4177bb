// Two graphs side by side: what only one of them has, what differs, and whose visits ended otherwise.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { get } from "../api/client";
import type { CompareRuns, Graph, GraphComparison, RunGraph, VisitComparison } from "../api/types";
import { navigate } from "../router";
import { count } from "../ui/format";
import { Fault } from "../ui/parts";
import { type Item, Picture, type Way } from "../ui/picture";

/** most is how many nodes are drawn: two larger pictures beside each other cannot be read. */
const most = 300;

interface Marks {
  /** only are the nodes that the other graph has not. */
  only: ReadonlySet<string>;
  changed: ReadonlySet<string>;
  /** visits are the nodes with a visit that differs. */
  visits: ReadonlySet<string>;
  first: string;
}

function Side({ name, runId, graph, marks }: { name: string; runId: string; graph: Graph; marks: Marks }) {
  const items = useMemo<Item[]>(
    () =>
      (graph.nodes ?? []).map((n) => {
        const id = n.id ?? "";
        const [kind, what] = marks.only.has(id)
          ? ["only-here", "only here"]
          : id === marks.first
            ? ["first-difference", "differs first"]
            : marks.changed.has(id)
              ? ["differs", "changed"]
              : marks.visits.has(id)
                ? ["differs", "other outcome"]
                : ["", n.actor ?? ""];
        return { id, title: n.name || id, about: what, kind };
      }),
    [graph, marks],
  );
  const ways = useMemo<Way[]>(() => (graph.edges ?? []).map((e) => ({ from: e.from ?? "", to: e.to ?? "", back: e.kind === "EDGE_KIND_BACK" })), [graph]);
  return (
    <div className="plan-box" tabIndex={0} role="region" aria-label={`Graph of the ${name}`}>
      <Picture label={`${count(items.length)} nodes of the ${name}`} items={items} ways={ways} onChoose={(id) => navigate(`/runs/${runId}?node=${encodeURIComponent(id)}`)} />
    </div>
  );
}

function Lists({ of }: { of: GraphComparison | undefined }) {
  if (!of) return null;
  if (of.same) return <p className="muted">The graphs are the same.</p>;
  const lines: [string, string[]][] = [
    ["Nodes of the run only", of.addedNodes ?? []],
    ["Nodes of the base only", of.removedNodes ?? []],
    ["Changed nodes", (of.changedNodes ?? []).map((c) => `${c.nodeId}: ${c.fields?.join(", ")}`)],
    ["Edges of the run only", of.addedEdges ?? []],
    ["Edges of the base only", of.removedEdges ?? []],
    ["State", of.changedState ?? []],
  ];
  return (
    <dl className="facts" aria-label="Differences of the graphs">
      {lines
        .filter(([, all]) => all.length > 0)
        .map(([name, all]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              {all.slice(0, 30).join("; ")}
              {all.length > 30 ? ` and ${all.length - 30} more` : ""}
            </dd>
          </div>
        ))}
    </dl>
  );
}

function useGraph(id: string | undefined) {
  return useQuery({ queryKey: ["graph", id], queryFn: ({ signal }) => get<RunGraph>(`/v1/runs/${id}/graph`, {}, signal), enabled: Boolean(id), staleTime: 30_000 });
}

export function Graphs({ of, visits }: { of: CompareRuns; visits: VisitComparison[] }) {
  const base = useGraph(of.base?.id);
  const run = useGraph(of.run?.id);
  const first = of.firstDifference?.nodeId ?? "";
  const [left, right] = useMemo<[Marks, Marks]>(() => {
    const changed = new Set((of.graph?.changedNodes ?? []).map((c) => c.nodeId ?? ""));
    const other = new Set(visits.filter((v) => v.differences?.length).map((v) => v.nodeId ?? ""));
    const of_ = (only: string[] | undefined): Marks => ({ only: new Set(only), changed, visits: other, first });
    return [of_(of.graph?.removedNodes), of_(of.graph?.addedNodes)];
  }, [of, visits, first]);
  const a = base.data?.graph;
  const b = run.data?.graph;
  const large = (a?.nodes?.length ?? 0) > most || (b?.nodes?.length ?? 0) > most;
  return (
    <section aria-label="Graphs">
      <h2>Graph</h2>
      <Lists of={of.graph} />
      <Fault error={base.error ?? run.error} />
      {large ? <p className="muted">Graphs of more than {most} nodes are not drawn beside each other. Their pages show them.</p> : null}
      {a && b && !large ? (
        <div className="beside">
          <Side name="base" runId={of.base?.id ?? ""} graph={a} marks={left} />
          <Side name="run" runId={of.run?.id ?? ""} graph={b} marks={right} />
        </div>
      ) : null}
    </section>
  );
}
