// Places nodes away from the page, so that it answers while a large graph is laid out.
import { type Box, layout, type Line } from "./layout";

self.onmessage = (e: MessageEvent<{ id: number; boxes: Box[]; lines: Line[] }>) => {
  const { id, boxes, lines } = e.data;
  self.postMessage({ id, layout: layout(boxes, lines) });
};
