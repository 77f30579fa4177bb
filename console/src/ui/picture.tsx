// A graph as a picture: boxes that can be chosen, and lines between them.
import { useMemo } from "react";
import type { Box, Line } from "../run/layout";
import { usePlaces } from "../run/place";
import { short } from "./format";

export const width = 170;
export const height = 44;

export interface Item {
  id: string;
  title: string;
  about: string;
  /** whole is told where there is room for it. */
  whole?: string;
  kind?: string;
}

export interface Way {
  from: string;
  to: string;
  back?: boolean;
  about?: string;
  kind?: string;
}

interface Props {
  label: string;
  items: Item[];
  ways: Way[];
  onChoose: (id: string) => void;
}

export function Picture({ label, items, ways, onChoose }: Props) {
  const boxes = useMemo<Box[]>(() => items.map((p) => ({ id: p.id, width, height })), [items]);
  const lines = useMemo<Line[]>(() => ways.map((e) => ({ from: e.from, to: e.to, back: e.back ?? false })), [ways]);
  const placed = usePlaces(boxes, lines);
  if (!placed || placed.boxes !== boxes) return null;
  const { places, bends, width: w, height: h } = placed.layout;
  const at = new Map(items.map((p, i) => [p.id, places[i] ?? { x: 0, y: 0 }]));
  return (
    <svg className="plan" width={w + 20} height={h + 20} viewBox={`-10 -10 ${w + 20} ${h + 20}`} role="group" aria-label={label}>
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
        return (
          <path key={i} d={path.join("")} className={ways[i]?.kind}>
            <title>{`${l.from} before ${l.to}${ways[i]?.about ? `: ${ways[i]?.about}` : ""}`}</title>
          </path>
        );
      })}
      {items.map((p) => {
        const pos = at.get(p.id) ?? { x: 0, y: 0 };
        const go = () => onChoose(p.id);
        return (
          <g
            key={p.id}
            transform={`translate(${pos.x},${pos.y})`}
            className={p.kind}
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
              {short(p.title, 20)}
            </text>
            <text x="9" y="34">
              {short(p.about, 25)}
            </text>
            <title>{p.whole ?? `${p.title} ${p.about}`}</title>
          </g>
        );
      })}
    </svg>
  );
}
