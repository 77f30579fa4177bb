// The critical path of a run: the chain of visits that its time is made of.
import type { GraphEdge, Visit } from "../api/types";

/** criticalPath goes back from the visit that ended last, each time to that before it which ended last. */
export function criticalPath(visits: Visit[], edges: GraphEdge[], now: number): Set<Visit> {
  const byNode = new Map<string, Visit[]>();
  for (const v of visits) {
    if (!v.startTime) continue;
    const all = byNode.get(v.nodeId ?? "");
    if (all) all.push(v);
    else byNode.set(v.nodeId ?? "", [v]);
  }
  const before = new Map<string, string[]>();
  for (const e of edges) {
    const all = before.get(e.to ?? "");
    if (all) all.push(e.from ?? "");
    else before.set(e.to ?? "", [e.from ?? ""]);
  }
  const end = (v: Visit) => (v.endTime ? Date.parse(v.endTime) : now);
  let at: Visit | undefined;
  for (const all of byNode.values()) for (const v of all) if (!at || end(v) > end(at)) at = v;
  const path = new Set<Visit>();
  while (at && !path.has(at)) {
    path.add(at);
    const start = Date.parse(at.startTime ?? "");
    let next: Visit | undefined;
    for (const from of before.get(at.nodeId ?? "") ?? []) {
      for (const v of byNode.get(from) ?? []) if (v.endTime && end(v) <= start + 5 && (!next || end(v) > end(next))) next = v;
    }
    at = next;
  }
  return path;
}
