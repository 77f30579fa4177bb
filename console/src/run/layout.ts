// The places of the nodes of a graph: layers from left to right, few crossings, straight edges. It is linear
// in nodes and edges but for sorting, because graphs of 5,000 nodes are drawn while somebody waits.

export interface Box {
  id: string;
  width: number;
  height: number;
}

export interface Line {
  from: string;
  to: string;
  /** back marks an edge that closes a loop: it has no part in the order. */
  back: boolean;
}

export interface Point {
  x: number;
  y: number;
}

export interface Layout {
  /** places are the left upper corners of the boxes, in their order. */
  places: Point[];
  /** bends are the points that a line passes between its ends, in the order of the lines. */
  bends: Point[][];
  width: number;
  height: number;
}

const columnGap = 70;
const rowGap = 22;
const bendHeight = 4;
/** sweeps is how often layers are sorted; large graphs gain little by more than half as many. */
const sweeps = (cells: number) => (cells > 2000 ? 4 : 8);
/** maxBends bounds the places that long lines take; beyond it they go straight. */
const maxBends = 30_000;

/** Cell is a box, or the place where a long line passes a layer. */
interface Cell {
  box: number; // -1 for a bend
  layer: number;
  height: number;
  y: number; // of its middle
  before: number[];
  after: number[];
}

export function layout(boxes: Box[], lines: Line[]): Layout {
  const index = new Map(boxes.map((b, i) => [b.id, i]));
  const ends = lines.map((l) => ({ from: index.get(l.from) ?? -1, to: index.get(l.to) ?? -1, back: l.back }));
  const forward = acyclic(boxes.length, ends);
  const layerOf = layers(boxes.length, forward);
  const cells: Cell[] = boxes.map((b, i) => ({ box: i, layer: layerOf[i] ?? 0, height: b.height, y: 0, before: [], after: [] }));
  const passing = connect(cells, forward, lines.length);
  const rows = order(cells);
  place(cells, rows);
  return positions(boxes, cells, rows, passing);
}

interface Edge {
  line: number;
  from: number;
  to: number;
}

/** acyclic leaves out the lines back, loose ones, and those that would close a cycle nevertheless. */
function acyclic(n: number, ends: { from: number; to: number; back: boolean }[]): Edge[] {
  const out: Edge[][] = Array.from({ length: n }, () => []);
  ends.forEach((e, line) => {
    if (!e.back && e.from >= 0 && e.to >= 0 && e.from !== e.to) out[e.from]?.push({ line, from: e.from, to: e.to });
  });
  const color = new Uint8Array(n); // 1 on the way, 2 done
  const kept: Edge[] = [];
  for (let root = 0; root < n; root++) {
    if (color[root]) continue;
    color[root] = 1;
    const stack = [{ node: root, next: 0 }];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      if (!top) break;
      const edge = out[top.node]?.[top.next++];
      if (!edge) {
        color[top.node] = 2;
        stack.pop();
        continue;
      }
      if (color[edge.to] === 1) continue;
      kept.push(edge);
      if (!color[edge.to]) {
        color[edge.to] = 1;
        stack.push({ node: edge.to, next: 0 });
      }
    }
  }
  return kept;
}

/** layers puts each node behind all before it, and what nothing comes before next to what follows it. */
function layers(n: number, edges: Edge[]): number[] {
  const after: number[][] = Array.from({ length: n }, () => []);
  const missing = new Array<number>(n).fill(0);
  for (const e of edges) {
    after[e.from]?.push(e.to);
    missing[e.to] = (missing[e.to] ?? 0) + 1;
  }
  const layer = new Array<number>(n).fill(0);
  const sources = missing.map((m) => m === 0);
  const queue: number[] = [];
  for (let i = 0; i < n; i++) if (sources[i]) queue.push(i);
  for (let at = 0; at < queue.length; at++) {
    const node = queue[at] ?? 0;
    for (const to of after[node] ?? []) {
      layer[to] = Math.max(layer[to] ?? 0, (layer[node] ?? 0) + 1);
      missing[to] = (missing[to] ?? 0) - 1;
      if (missing[to] === 0) queue.push(to);
    }
  }
  for (let i = 0; i < n; i++) {
    const next = after[i] ?? [];
    if (sources[i] && next.length > 0) layer[i] = next.reduce((least, to) => Math.min(least, (layer[to] ?? 0) - 1), Number.MAX_SAFE_INTEGER);
  }
  return layer;
}

/** connect links cells of neighboring layers, with bends where a line is longer. It returns the bends by line. */
function connect(cells: Cell[], edges: Edge[], lines: number): number[][] {
  const passing: number[][] = Array.from({ length: lines }, () => []);
  const span = (e: Edge) => (cells[e.to]?.layer ?? 0) - (cells[e.from]?.layer ?? 0);
  const bent = edges.reduce((sum, e) => sum + span(e) - 1, 0) <= maxBends;
  for (const e of edges) {
    let from = e.from;
    const last = cells[e.to]?.layer ?? 0;
    for (let layer = (cells[from]?.layer ?? 0) + 1; bent && layer < last; layer++) {
      const bend = cells.length;
      cells.push({ box: -1, layer, height: bendHeight, y: 0, before: [from], after: [] });
      cells[from]?.after.push(bend);
      passing[e.line]?.push(bend);
      from = bend;
    }
    cells[from]?.after.push(e.to);
    cells[e.to]?.before.push(from);
  }
  return passing;
}

/** order sorts each layer so that few lines cross: again and again by the middle of the neighbors. */
function order(cells: Cell[]): number[][] {
  const rows: number[][] = [];
  const seen = new Uint8Array(cells.length);
  // The first order is that of a walk, which keeps what belongs together side by side.
  for (let root = 0; root < cells.length; root++) {
    const stack = seen[root] || (cells[root]?.before.length ?? 0) > 0 ? [] : [root];
    while (stack.length > 0) {
      const at = stack.pop() ?? 0;
      if (seen[at]) continue;
      seen[at] = 1;
      const cell = cells[at];
      if (!cell) continue;
      (rows[cell.layer] ??= []).push(at);
      for (let i = cell.after.length - 1; i >= 0; i--) stack.push(cell.after[i] ?? 0);
    }
  }
  for (let i = 0; i < rows.length; i++) rows[i] ??= [];
  const rank = new Float64Array(cells.length);
  const number = (row: number[]) => row.forEach((c, i) => (rank[c] = i));
  rows.forEach(number);
  const weight = new Float64Array(cells.length);
  for (let sweep = 0; sweep < sweeps(cells.length); sweep++) {
    const down = sweep % 2 === 0;
    for (let i = 0; i < rows.length; i++) {
      const row = rows[down ? i : rows.length - 1 - i] ?? [];
      for (const c of row) {
        const near = (down ? cells[c]?.before : cells[c]?.after) ?? [];
        weight[c] = near.length > 0 ? near.reduce((sum, o) => sum + (rank[o] ?? 0), 0) / near.length : (rank[c] ?? 0);
      }
      row.sort((a, b) => (weight[a] ?? 0) - (weight[b] ?? 0) || (rank[a] ?? 0) - (rank[b] ?? 0));
      number(row);
    }
  }
  return rows;
}

/** place moves each cell as near to the middle of its neighbors as those beside it allow. */
function place(cells: Cell[], rows: number[][]) {
  for (const row of rows) {
    let y = 0;
    for (const c of row) {
      const cell = cells[c];
      if (!cell) continue;
      cell.y = y + cell.height / 2;
      y += cell.height + rowGap;
    }
    const half = y / 2;
    for (const c of row) {
      const cell = cells[c];
      if (cell) cell.y -= half;
    }
  }
  for (let pass = 0; pass < 6; pass++) {
    const down = pass % 2 === 0;
    for (let i = 0; i < rows.length; i++) {
      const row = rows[down ? i : rows.length - 1 - i] ?? [];
      const wish = row.map((c) => {
        const cell = cells[c];
        const near = pass > 3 ? [...(cell?.before ?? []), ...(cell?.after ?? [])] : ((down ? cell?.before : cell?.after) ?? []);
        return near.length > 0 ? near.reduce((sum, o) => sum + (cells[o]?.y ?? 0), 0) / near.length : (cell?.y ?? 0);
      });
      settle(row.map((c) => cells[c]?.height ?? 0), wish).forEach((y, at) => {
        const cell = cells[row[at] ?? -1];
        if (cell) cell.y = y;
      });
    }
  }
}

/**
 * settle gives the places in order, not nearer than their heights allow, whose squared distance to the wishes is
 * least. Cells that push each other form a group, which stands at the mean of what its members wish.
 */
function settle(heights: number[], wish: number[]): number[] {
  const offset: number[] = [];
  let at = 0;
  heights.forEach((h, i) => {
    if (i > 0) at += ((heights[i - 1] ?? 0) + h) / 2 + rowGap;
    offset.push(at);
  });
  const groups: { sum: number; count: number }[] = [];
  wish.forEach((w, i) => {
    let group = { sum: w - (offset[i] ?? 0), count: 1 };
    for (;;) {
      const last = groups[groups.length - 1];
      if (!last || last.sum / last.count <= group.sum / group.count) break;
      groups.pop();
      group = { sum: last.sum + group.sum, count: last.count + group.count };
    }
    groups.push(group);
  });
  const out: number[] = [];
  for (const g of groups) for (let i = 0; i < g.count; i++) out.push(g.sum / g.count + (offset[out.length] ?? 0));
  return out;
}

function positions(boxes: Box[], cells: Cell[], rows: number[][], passing: number[][]): Layout {
  const left: number[] = [];
  const widths = rows.map((row) => row.reduce((most, c) => Math.max(most, boxes[cells[c]?.box ?? -1]?.width ?? 0), 0));
  let x = 0;
  for (const w of widths) {
    left.push(x);
    x += w + columnGap;
  }
  let top = Number.POSITIVE_INFINITY;
  let bottom = Number.NEGATIVE_INFINITY;
  for (const c of cells) {
    top = Math.min(top, c.y - c.height / 2);
    bottom = Math.max(bottom, c.y + c.height / 2);
  }
  if (cells.length === 0) top = bottom = 0;
  return {
    places: boxes.map((b, i) => ({ x: left[cells[i]?.layer ?? 0] ?? 0, y: (cells[i]?.y ?? 0) - b.height / 2 - top })),
    bends: passing.map((line) =>
      line.flatMap((c) => {
        const layer = cells[c]?.layer ?? 0;
        const y = (cells[c]?.y ?? 0) - top;
        const from = left[layer] ?? 0;
        return [{ x: from, y }, { x: from + (widths[layer] ?? 0), y }];
      }),
    ),
    width: Math.max(x - columnGap, 0),
    height: bottom - top,
  };
}
