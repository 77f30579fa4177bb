// The graph of a plan, as it is read.
import { useMemo } from "react";
import type { ProblemGraph } from "../api/types";
import { word } from "../ui/format";
import { type Item, Picture, type Way } from "../ui/picture";

interface Props {
  graph: ProblemGraph;
  faulty: ReadonlySet<string>;
  onChoose: (line: number, column: number) => void;
}

export function PlanPicture({ graph, faulty, onChoose }: Props) {
  const problems = graph.problems ?? [];
  const items = useMemo<Item[]>(
    () =>
      problems.map((p) => ({
        id: p.id ?? "",
        title: p.id ?? "",
        about: p.request === p.id ? (p.tool ?? "") : (p.request ?? ""),
        whole: p.request,
        kind: faulty.has(p.id ?? "") ? "faulty" : "",
      })),
    [problems, faulty],
  );
  const ways = useMemo<Way[]>(
    () =>
      (graph.edges ?? []).map((e) => {
        const source = word(e.source);
        return { from: e.from ?? "", to: e.to ?? "", about: source, kind: source === "stated" || source === "variable" ? "" : "guessed" };
      }),
    [graph],
  );
  const choose = (id: string) => {
    const p = problems.find((one) => one.id === id);
    onChoose(p?.line ?? 0, p?.column ?? 1);
  };
  return <Picture label={`Graph of ${problems.length} problems`} items={items} ways={ways} onChoose={choose} />;
}
