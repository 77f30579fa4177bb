// What a run may use, told before it starts.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { post } from "../api/client";
import type { ForecastAmount, Graph, WorkflowForecast } from "../api/types";
import { count, dollars, duration } from "../ui/format";
import { Fault } from "../ui/parts";

type Body = { ref: string } | { source: string; form?: string };

function Amount({ name, of, write }: { name: string; of: ForecastAmount | undefined; write: (n: string) => string }) {
  // Without runs of its own the numbers are made of the shape of the graph; the notes say of what.
  const half = of?.runs ? `in half of ${count(of.runs)} runs` : "as likely as not";
  const nine = of?.runs ? "in nine of ten" : "in nine of ten cases";
  const parts = [
    of?.p50 === undefined ? "" : `${write(of.p50)} ${half}`,
    of?.p90 === undefined ? "" : `${write(of.p90)} ${nine}`,
    of?.answers === undefined ? "" : `answers of models: ${write(of.answers) || "none"} at most`,
    of?.budget === undefined ? "" : `budget ${write(of.budget)}`,
  ].filter(Boolean);
  return (
    <div>
      <dt>{name}</dt>
      <dd>{parts.length > 0 ? parts.join(", ") : "not known before a run has ended"}</dd>
    </div>
  );
}

/** ForecastOf shows the forecast of a workflow or a graph; old says that it is of the text before the last change. */
export function ForecastOf({ body, old }: { body: Body; old?: boolean }) {
  const forecast = useQuery({
    queryKey: ["forecast", body],
    queryFn: ({ signal }) => post<WorkflowForecast>("/v1/workflows:forecast", body, signal),
    placeholderData: keepPreviousData,
    staleTime: 30_000,
    retry: false,
  });
  const f = forecast.data;
  if (!f) return <Fault error={forecast.error} />;
  return (
    <section aria-label="Forecast of cost and time">
      <h2>
        Forecast {old || forecast.isPlaceholderData ? <span className="small muted">being made anew</span> : null}
      </h2>
      <dl className="facts">
        <Amount name="Cost" of={f.costNanoUsd} write={(n) => dollars(n) || "$0"} />
        <Amount name="Tokens" of={f.tokens} write={(n) => count(n)} />
        <Amount name="Time" of={f.durationMs} write={(n) => duration(Number(n))} />
      </dl>
      {f.notes && f.notes.length > 0 ? (
        <ul className="small muted">
          {f.notes.slice(0, 8).map((n) => (
            <li key={n}>{n}</li>
          ))}
        </ul>
      ) : null}
    </section>
  );
}

/** GraphForecast is that of a graph which is not in the catalog. */
export function GraphForecast({ graph, old }: { graph: Graph; old: boolean }) {
  return <ForecastOf old={old} body={{ source: JSON.stringify(graph), form: "WORKFLOW_FORM_GRAPH" }} />;
}
