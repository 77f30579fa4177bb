import type { GraphEdge } from "../api/types";
import type { Line } from "./layout";

export function linesOf(edges: GraphEdge[]): Line[] {
  return edges.map((e) => ({ from: e.from ?? "", to: e.to ?? "", back: e.kind === "EDGE_KIND_BACK" }));
}
