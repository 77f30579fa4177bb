// A small picture of a large graph, on a canvas: where something happens, and what is in sight.
import { useStore } from "@xyflow/react";
import { type PointerEvent, useEffect, useRef } from "react";
import { word } from "../ui/format";
import type { Placed } from "./place";
import { useCalm, useModel } from "./use";

const width = 220;
const height = 120;

const colors: Record<string, string> = {
  running: "--blue",
  waiting: "--amber",
  "backing off": "--amber",
  held: "--amber",
  completed: "--green",
  failed: "--red",
  "needs reconciliation": "--red",
};

/** colorsOf resolves the colors of the style sheet, which depend on dark and light, as an element shows them. */
function colorsOf(el: HTMLElement): (name: string) => string {
  const known = new Map<string, string>();
  return (name) => {
    let value = known.get(name);
    if (value === undefined) {
      el.style.color = `var(${name})`;
      value = getComputedStyle(el).color;
      known.set(name, value);
    }
    return value;
  };
}

export function Overview({ placed, onGo }: { placed: Placed; onGo: (x: number, y: number) => void }) {
  const model = useModel();
  const version = useCalm(model, "visits", 500);
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useStore((s) => s.transform);
  const sight = useStore((s) => `${s.width} ${s.height}`);
  const scale = Math.min(width / placed.layout.width, height / placed.layout.height);
  const sx = Math.max(scale, Math.min(width / placed.layout.width, 1));
  const sy = Math.max(scale, Math.min(height / placed.layout.height, 1));
  const frame = useRef<ImageData | undefined>(undefined);

  useEffect(() => {
    const g = canvas.current?.getContext("2d", { willReadFrequently: true });
    if (!g) return;
    const color = colorsOf(g.canvas);
    g.fillStyle = color("--raised");
    g.fillRect(0, 0, width, height);
    placed.boxes.forEach((b, i) => {
      const p = placed.layout.places[i];
      if (!p) return;
      g.fillStyle = color(colors[word(model.visitsOf(b.id).at(-1)?.state)] ?? "--line");
      g.fillRect(p.x * sx, p.y * sy, Math.max(b.width * sx, 1), Math.max(b.height * sy, 1));
    });
    frame.current = g.getImageData(0, 0, width, height);
  }, [placed, version, model, sx, sy]);

  useEffect(() => {
    const g = canvas.current?.getContext("2d", { willReadFrequently: true });
    if (!g || !frame.current) return;
    const [w = 0, h = 0] = sight.split(" ").map(Number);
    const [x, y, zoom] = view;
    g.putImageData(frame.current, 0, 0);
    g.strokeStyle = colorsOf(g.canvas)("--text");
    g.strokeRect((-x / zoom) * sx, (-y / zoom) * sy, (w / zoom) * sx, (h / zoom) * sy);
  }, [view, sight, version, placed, sx, sy]);

  const go = (e: PointerEvent<HTMLCanvasElement>) => {
    if (e.buttons === 0) return;
    const box = e.currentTarget.getBoundingClientRect();
    onGo((e.clientX - box.left) / sx, (e.clientY - box.top) / sy);
  };
  return <canvas ref={canvas} className="overview" width={width} height={height} onPointerDown={go} onPointerMove={go} aria-hidden="true" />;
}
