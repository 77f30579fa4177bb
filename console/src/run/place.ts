// Asks the worker for the places of nodes.
import { useEffect, useRef, useState } from "react";
import type { Box, Layout, Line } from "./layout";
import LayoutWorker from "./layout.worker?worker";

// The worker starts with the page, so that it is there when the graph has come.
const worker = new LayoutWorker();
let last = 0;
const waiting = new Map<number, (l: Layout) => void>();

worker.onmessage = (e: MessageEvent<{ id: number; layout: Layout }>) => {
  waiting.get(e.data.id)?.(e.data.layout);
  waiting.delete(e.data.id);
};

export function placeNodes(boxes: Box[], lines: Line[]): Promise<Layout> {
  const id = ++last;
  worker.postMessage({ id, boxes, lines });
  return new Promise((done) => waiting.set(id, done));
}

export interface Placed {
  boxes: Box[];
  lines: Line[];
  layout: Layout;
}

/** usePlaces lays a graph out anew when it changes; the old places stay until then. */
export function usePlaces(boxes: Box[], lines: Line[]): Placed | undefined {
  const [placed, setPlaced] = useState<Placed | undefined>();
  const current = useRef(0);
  useEffect(() => {
    const turn = ++current.current;
    placeNodes(boxes, lines).then((layout) => {
      if (turn === current.current) setPlaced({ boxes, lines, layout });
    });
  }, [boxes, lines]);
  return placed;
}
