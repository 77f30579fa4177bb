// The graph of a run, drawn as it stands. Only what is in sight is rendered; nodes follow the run one by one.
import { BaseEdge, Controls, type Edge, type EdgeProps, Handle, type Node, type NodeProps, Position, ReactFlow, ReactFlowProvider, useReactFlow } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import type { Graph, GraphEdge, Visit } from "../api/types";
import { duration, word } from "../ui/format";
import { ChildGraphs, childHeight } from "./children";
import type { Box, Point } from "./layout";
import { linesOf } from "./lines";
import { Overview } from "./overview";
import { type Placed, usePlaces } from "./place";
import { useModel, useTopic, useVisits } from "./use";

export const nodeWidth = 190;
export const nodeHeight = 50;
export const gridHeight = 26;
/** large graphs are not shown whole at first: their nodes could not be read. */
const large = 150;

type DrawnNode = Node<{ open: boolean; toggle: (id: string) => void }, "work">;
type DrawnEdge = Edge<{ bends: Point[]; back: boolean; error: boolean }, "line">;

function Cells({ visit }: { visit: Visit }) {
  const total = visit.itemsTotal ?? 0;
  const done = visit.itemsDone ?? 0;
  const waits = visit.itemsWaiting ?? 0;
  const text = `${done} of ${total} items ended${waits ? `, ${waits} wait` : ""}`;
  // A grid of cells as long as they can be told apart, each for as many items as fit.
  const cells = Math.min(total, 48);
  const share = total / Math.max(cells, 1);
  return (
    <span className="cells" role="img" aria-label={text} title={text}>
      {Array.from({ length: cells }, (_, i) => {
        const at = (i + 1) * share;
        const kind = at <= done ? "done" : at <= done + waits ? "waits" : "open";
        return <i key={i} className={kind} />;
      })}
    </span>
  );
}

const WorkNode = memo(function WorkNode({ id, data, selected }: NodeProps<DrawnNode>) {
  const model = useModel();
  const visits = useVisits(model, id);
  const node = model.node(id);
  const last = visits[visits.length - 1];
  const state = word(last?.state) || "idle";
  const waits = (last?.wait?.childRunIds?.length ?? 0) > 0;
  const spawns = waits || node?.actor === "spawn" || node?.actor === "agent";
  return (
    <div className={`node node-${state.replaceAll(" ", "-")}${selected ? " chosen" : ""}`}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <div className="title">
        <span className="dot" aria-hidden="true" />
        <strong title={node?.name || id}>{node?.name || id}</strong>
        {visits.length > 1 ? <span className="count">×{visits.length}</span> : null}
        {last?.reused || last?.cached ? <span className="count">{last.reused ? "reused" : "cached"}</span> : null}
      </div>
      <div className="line small">
        <span className="muted">{node?.actor}</span>
        <span>{last ? `${state}${last.duration && last.endTime ? ` ${duration(Number.parseFloat(last.duration) * 1000)}` : ""}` : ""}</span>
        {last && (last.attempts ?? 0) > 1 && !last.itemsTotal ? <span className="muted">try {last.attempts}</span> : null}
        {spawns && last ? (
          <button
            type="button"
            className="nodrag quiet fold"
            aria-expanded={data.open}
            onClick={(e) => {
              e.stopPropagation();
              data.toggle(id);
            }}
          >
            {data.open ? "▾" : "▸"} runs
          </button>
        ) : null}
      </div>
      {last?.itemsTotal ? <Cells visit={last} /> : null}
      {data.open ? <ChildGraphs node={id} visits={visits} /> : null}
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  );
});

/** curve goes through the bends of a long line, so that it passes nodes and does not cross them. */
function curve(from: Point, bends: Point[], to: Point): string {
  const points = [from, ...bends, to];
  let path = `M${from.x},${from.y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1] ?? from;
    const b = points[i] ?? to;
    const half = Math.max((b.x - a.x) / 2, 10);
    path += Math.abs(a.y - b.y) < 0.5 ? `L${b.x},${b.y}` : `C${a.x + half},${a.y} ${b.x - half},${b.y} ${b.x},${b.y}`;
  }
  return path;
}

const LineEdge = memo(function LineEdge({ id, data, sourceX, sourceY, targetX, targetY, markerEnd }: EdgeProps<DrawnEdge>) {
  const from = { x: sourceX, y: sourceY };
  const to = { x: targetX, y: targetY };
  const depth = Math.min(40 + Math.abs(sourceX - targetX) / 6, 160);
  const path = data?.back
    ? `M${from.x},${from.y}C${from.x + 60},${from.y + depth} ${to.x - 60},${to.y + depth} ${to.x},${to.y}`
    : curve(from, data?.bends ?? [], to);
  return <BaseEdge id={id} path={path} markerEnd={markerEnd} className={data?.back ? "back" : data?.error ? "error" : ""} />;
});

const nodeTypes = { work: WorkNode };
const edgeTypes = { line: LineEdge };

function drawn(placed: Placed, edges: GraphEdge[], open: ReadonlySet<string>, chosen: string, toggle: (id: string) => void): { nodes: DrawnNode[]; edges: DrawnEdge[] } {
  const nodes = placed.boxes.map(
    (b, i): DrawnNode => ({
      id: b.id,
      type: "work",
      position: placed.layout.places[i] ?? { x: 0, y: 0 },
      width: b.width,
      height: b.height,
      measured: { width: b.width, height: b.height },
      handles: [
        { type: "target", position: Position.Left, x: 0, y: b.height / 2, width: 1, height: 1 },
        { type: "source", position: Position.Right, x: b.width, y: b.height / 2, width: 1, height: 1 },
      ],
      selected: b.id === chosen,
      ariaLabel: `Node ${b.id}`,
      data: { open: open.has(b.id), toggle },
    }),
  );
  const lines = placed.lines.map(
    (l, i): DrawnEdge => ({
      id: `${i}`,
      type: "line",
      source: l.from,
      target: l.to,
      focusable: false,
      selectable: false,
      data: { bends: placed.layout.bends[i] ?? [], back: l.back, error: edges[i]?.kind === "EDGE_KIND_ERROR" },
    }),
  );
  return { nodes, edges: lines };
}

interface Props {
  graph: Graph;
  chosen: string;
  onChoose: (id: string) => void;
}

function Picture({ graph, chosen, onChoose }: Props) {
  const model = useModel();
  const flow = useReactFlow();
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = useMemo(
    () => (id: string) =>
      setOpen((old) => {
        const next = new Set(old);
        if (!next.delete(id)) next.add(id);
        return next;
      }),
    [],
  );
  const boxes = useMemo<Box[]>(
    () =>
      (graph.nodes ?? []).map((n) => ({
        id: n.id ?? "",
        width: open.has(n.id ?? "") ? 340 : nodeWidth,
        height: nodeHeight + (n.map ? gridHeight : 0) + (open.has(n.id ?? "") ? childHeight : 0),
      })),
    [graph, open],
  );
  const edges = graph.edges ?? [];
  const lines = useMemo(() => linesOf(edges), [edges]);
  const placed = usePlaces(boxes, lines);
  const picture = useMemo(() => (placed ? drawn(placed, edges, open, chosen, toggle) : undefined), [placed, edges, open, chosen, toggle]);
  const shown = useRef<Graph | undefined>(undefined);
  const many = boxes.length > large;

  const show = (id: string, zoom?: number) => {
    const at = placed?.boxes.findIndex((b) => b.id === id) ?? -1;
    const p = placed?.layout.places[at];
    const b = placed?.boxes[at];
    if (p && b) flow.setCenter(p.x + b.width / 2, p.y + b.height / 2, { zoom: zoom ?? Math.max(flow.getZoom(), 0.8) });
  };
  useEffect(() => {
    if (!placed || shown.current === graph) return;
    const first = !shown.current;
    shown.current = graph;
    if (!first) return;
    if (!many) {
      flow.fitView({ padding: 0.1, maxZoom: 1.1 });
      return;
    }
    // Where something goes on, else where it begins.
    const busy = placed.boxes.find((b) => ["running", "waiting", "failed"].includes(word(model.visitsOf(b.id).at(-1)?.state)));
    const box = busy ?? placed.boxes[0];
    if (box) show(box.id, 0.8);
  });
  const before = useRef(chosen);
  useEffect(() => {
    if (chosen && chosen !== before.current && placed) {
      const node = flow.getInternalNode(chosen);
      const el = document.querySelector(`.react-flow__node[data-id="${CSS.escape(chosen)}"]`);
      if (node && !el) show(chosen);
    }
    before.current = chosen;
  });

  if (!placed || !picture) return <p className="muted pad">Placing {boxes.length} nodes…</p>;
  return (
    <>
      <ReactFlow
        nodes={picture.nodes}
        edges={picture.edges}
        nodeTypes={nodeTypes}
        edgeTypes={edgeTypes}
        onNodeClick={(_, n) => onChoose(n.id)}
        onNodesChange={(changes) => {
          // The keyboard chooses by Enter and Space.
          for (const c of changes) if (c.type === "select" && c.selected && c.id !== chosen) onChoose(c.id);
        }}
        onPaneClick={() => onChoose("")}
        onlyRenderVisibleElements
        nodesDraggable={false}
        nodesConnectable={false}
        edgesFocusable={false}
        deleteKeyCode={null}
        selectionKeyCode={null}
        multiSelectionKeyCode={null}
        minZoom={many ? 0.2 : 0.1}
        maxZoom={2}
        proOptions={{ hideAttribution: true }}
        disableKeyboardA11y={false}
        aria-label="Graph of the run"
      >
        <Controls showInteractive={false} fitViewOptions={{ padding: 0.1 }} />
      </ReactFlow>
      {many ? <Overview placed={placed} onGo={(x, y) => flow.setCenter(x, y, { zoom: flow.getZoom() })} /> : null}
    </>
  );
}

/** Find leads to a node by its id or name. */
function Find({ graph, onChoose }: Pick<Props, "graph" | "onChoose">) {
  const [text, setText] = useState("");
  const found = useMemo(() => {
    const want = text.trim().toLowerCase();
    if (!want) return [];
    return (graph.nodes ?? []).filter((n) => n.id?.toLowerCase().includes(want) || n.name?.toLowerCase().includes(want)).slice(0, 12);
  }, [text, graph]);
  return (
    <div className="find">
      <input
        id="find-node"
        type="search"
        placeholder="Find a node"
        aria-label="Find a node"
        value={text}
        onChange={(e) => setText(e.target.value)}
        onKeyDown={(e) => {
          const first = found[0]?.id;
          if (e.key === "Enter" && first) onChoose(first);
          if (e.key === "Escape") setText("");
        }}
        autoComplete="off"
        spellCheck={false}
      />
      {found.length > 0 ? (
        <ul className="plain">
          {found.map((n) => (
            <li key={n.id}>
              <button
                type="button"
                className="quiet"
                onClick={() => {
                  onChoose(n.id ?? "");
                  setText("");
                }}
              >
                {n.name || n.id} <span className="muted">{n.actor}</span>
              </button>
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  );
}

export function GraphView(props: Props) {
  const model = useModel();
  useTopic(model, "graph");
  return (
    <div className="graph">
      <Find graph={props.graph} onChoose={props.onChoose} />
      <ReactFlowProvider>
        <Picture {...props} />
      </ReactFlowProvider>
    </div>
  );
}
