// A change of the graph of a run under way: edited as a whole, compared, and then applied.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { post, requestId } from "../api/client";
import type { AmendRun, GraphDiff } from "../api/types";
import { setQuery } from "../router";
import { pretty } from "../ui/format";
import { Fault } from "../ui/parts";
import { hasEnded } from "../ui/states";
import { useModel, useTopic } from "./use";

function Diff({ of }: { of: GraphDiff }) {
  const lines: [string, string[]][] = [
    ["New nodes", of.addedNodes ?? []],
    ["Removed nodes", of.removedNodes ?? []],
    ["Changed nodes", (of.changedNodes ?? []).map((c) => `${c.nodeId}: ${c.fields?.join(", ")}`)],
    ["New edges", of.addedEdges ?? []],
    ["Removed edges", of.removedEdges ?? []],
    ["Canceled visits", (of.canceled ?? []).map((v) => `${v.nodeId} ${v.visit}`)],
  ];
  const some = lines.filter(([, all]) => all.length > 0);
  if (some.length === 0) return <p className="muted">Nothing changes.</p>;
  return (
    <dl className="facts">
      {some.map(([name, all]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{all.join("; ")}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Amend() {
  const model = useModel();
  useTopic(model, "graph");
  useTopic(model, "run");
  const [text, setText] = useState(() => pretty(model.graph));
  const [revision] = useState(model.revision);
  const amend = async (dryRun: boolean) => {
    const body = { graph: JSON.parse(text), expectedRevision: revision, dryRun, ...(dryRun ? {} : { requestId: requestId() }) };
    return post<AmendRun>(`/v1/runs/${model.id}:amend`, body);
  };
  const look = useMutation({ mutationFn: () => amend(true) });
  const apply = useMutation({
    mutationFn: () => amend(false),
    onSuccess: () => setQuery({ tab: "graph" }),
  });
  if (hasEnded(model.run)) return <p className="muted">The run has ended. A fork from one of its nodes can have another graph.</p>;
  return (
    <div className="playground">
      <section className="side" aria-label="Graph as text">
        <label className="small">
          The graph as JSON
          <textarea
            className="code whole"
            rows={24}
            spellCheck={false}
            value={text}
            onChange={(e) => {
              setText(e.target.value);
              look.reset();
            }}
          />
        </label>
      </section>
      <section className="side" aria-label="What changes">
        <p>The graph of the run is changed for what it has not done yet. The difference is shown before anything changes.</p>
        <p className="buttons">
          <button type="button" onClick={() => look.mutate()} disabled={look.isPending}>
            Show the difference
          </button>
          <button type="button" className="primary" onClick={() => apply.mutate()} disabled={!look.isSuccess || apply.isPending}>
            Apply it
          </button>
        </p>
        <div role="status">{look.data?.diff ? <Diff of={look.data.diff} /> : null}</div>
        <Fault error={apply.error ?? look.error} />
      </section>
    </div>
  );
}
