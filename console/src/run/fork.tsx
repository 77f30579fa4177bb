// A fork of the run from a visit of a node, with changed arguments.
import { useState } from "react";
import { post, requestId } from "../api/client";
import type { GraphNode, Run, Visit } from "../api/types";
import { navigate } from "../router";
import { FormDialog, Text } from "../ui/act";
import { pretty } from "../ui/format";
import { useModel } from "./use";

/** changed are the arguments that differ from those of the node. */
function changed(node: GraphNode, text: string): Record<string, unknown> {
  const named: unknown = JSON.parse(text || "{}");
  if (typeof named !== "object" || named === null || Array.isArray(named)) throw new Error("the arguments must be a JSON object");
  const old = node.named ?? {};
  return Object.fromEntries(Object.entries(named).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(old[name])));
}

export function Fork({ node, visit }: { node: GraphNode; visit: Visit | undefined }) {
  const model = useModel();
  const [open, setOpen] = useState(false);
  const send = async (f: Record<string, string>) => {
    const body = {
      visit: { nodeId: node.id, visit: visit?.visit ?? 0 },
      named: changed(node, f.named ?? ""),
      allowUnsafe: f.unsafe === "on",
      requestId: requestId(),
    };
    const run = await post<Run>(`/v1/runs/${model.id}:fork`, body);
    navigate(`/runs/${run.id}`);
  };
  return (
    <>
      <button type="button" onClick={() => setOpen(true)}>
        Fork from here…
      </button>
      {open ? (
        <FormDialog title={`Fork from ${node.name || node.id}`} submit="Start the fork" onClose={() => setOpen(false)} send={send}>
          <p className="small">A new run begins with this visit. Outcomes of visits before it are taken from this run.</p>
          <Text name="named" label="Arguments (JSON)" rows={8} value={pretty(node.named ?? {})} autoFocus />
          <label>
            <span>
              <input type="checkbox" name="unsafe" /> Calls that must not be repeated may run again
            </span>
          </label>
        </FormDialog>
      ) : null}
    </>
  );
}
