// What can be said of a plan before it runs, from its shape alone.
import type { ProblemGraph } from "../api/types";

export interface Forecast {
  problems: number;
  /** depth is how many problems wait for each other on the longest way. */
  depth: number;
  /** width is how many can be worked on at once, at most. */
  width: number;
}

export function forecast(graph: ProblemGraph): Forecast {
  const ids = (graph.problems ?? []).map((p) => p.id ?? "");
  const after = new Map<string, string[]>(ids.map((id) => [id, []]));
  const missing = new Map<string, number>(ids.map((id) => [id, 0]));
  for (const e of graph.edges ?? []) {
    const from = after.get(e.from ?? "");
    const to = e.to ?? "";
    if (!from || !missing.has(to)) continue;
    from.push(to);
    missing.set(to, (missing.get(to) ?? 0) + 1);
  }
  let layer = ids.filter((id) => missing.get(id) === 0);
  let depth = 0;
  let width = 0;
  while (layer.length > 0) {
    depth++;
    width = Math.max(width, layer.length);
    const next: string[] = [];
    for (const id of layer) {
      for (const to of after.get(id) ?? []) {
        const left = (missing.get(to) ?? 0) - 1;
        missing.set(to, left);
        if (left === 0) next.push(to);
      }
    }
    layer = next;
  }
  return { problems: ids.length, depth, width };
}
