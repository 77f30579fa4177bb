// The graph of a plan, as it is read.
import { useMemo } from "react";
import type { ProblemGraph } from "../api/types";
import { short, word } from "../ui/format";
import type { Box, Line } from "../run/layout";
import { usePlaces } from "../run/place";

const width = 170;
const height = 44;

interface Props {
  graph: ProblemGraph;
  faulty: ReadonlySet<string>;
  onChoose: (line: number, column: number) => void;
}

export function PlanPicture({ graph, faulty, onChoose }: Props) {
  const problems = graph.problems ?? [];
  const edges = graph.edges ?? [];
  const boxes = useMemo<Box[]>(() => problems.map((p) => ({ id: p.id ?? "", width, height })), [problems]);
  const lines = useMemo<Line[]>(() => edges.map((e) => ({ from: e.from ?? "", to: e.to ?? "", back: false })), [edges]);
  const placed = usePlaces(boxes, lines);
  if (!placed || placed.boxes !== boxes) return null;
  const { places, bends, width: w, height: h } = placed.layout;
  const at = new Map(problems.map((p, i) => [p.id ?? "", places[i] ?? { x: 0, y: 0 }]));
  return (
    <svg className="plan" width={w + 20} height={h + 20} viewBox={`-10 -10 ${w + 20} ${h + 20}`} role="group" aria-label={`Graph of ${problems.length} problems`}>
      {lines.map((l, i) => {
        const a = at.get(l.from);
        const b = at.get(l.to);
        if (!a || !b) return null;
        const points = [{ x: a.x + width, y: a.y + height / 2 }, ...(bends[i] ?? []), { x: b.x, y: b.y + height / 2 }];
        const path = points.map((p, n) => {
          const before = points[n - 1];
          if (!before) return `M${p.x},${p.y}`;
          const half = Math.max((p.x - before.x) / 2, 10);
          return `C${before.x + half},${before.y} ${p.x - half},${p.y} ${p.x},${p.y}`;
        });
        const source = word(edges[i]?.source);
        return (
          <path key={i} d={path.join("")} className={source === "stated" || source === "variable" ? "" : "guessed"}>
            <title>
              {l.from} before {l.to}: {source}
            </title>
          </path>
        );
      })}
      {problems.map((p) => {
        const pos = at.get(p.id ?? "") ?? { x: 0, y: 0 };
        const go = () => onChoose(p.line ?? 0, p.column ?? 1);
        return (
          <g
            key={p.id}
            transform={`translate(${pos.x},${pos.y})`}
            className={faulty.has(p.id ?? "") ? "faulty" : ""}
            role="button"
            tabIndex={0}
            onClick={go}
            onKeyDown={(e) => {
              if (e.key === "Enter" || e.key === " ") {
                e.preventDefault();
                go();
              }
            }}
          >
            <rect width={width} height={height} rx="7" />
            <text x="9" y="18" className="id">
              {short(p.id ?? "", 20)}
            </text>
            <text x="9" y="34">
              {short(p.request === p.id ? (p.tool ?? "") : (p.request ?? ""), 25)}
            </text>
            <title>{p.request}</title>
          </g>
        );
      })}
    </svg>
  );
}
