// A start of a workflow, with a form made from the schema of its inputs.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, requestId } from "../api/client";
import type { ListRuns, Run, Workflow, WorkflowVersion } from "../api/types";
import { Link, navigate } from "../router";
import { SchemaForm } from "../ui/form";
import { Fault, State, When } from "../ui/parts";
import { ForecastOf } from "./forecast";
import { inputsOf } from "./inputs";

/** Start runs a version or an alias, and shows the runs of the workflow so far. */
export function Start({ workflow }: { workflow: Workflow }) {
  const names = [...(workflow.aliases ?? []).map((a) => a.name ?? ""), ...Array.from({ length: Math.min(Number(workflow.latestVersion), 20) }, (_, i) => String(Number(workflow.latestVersion) - i))];
  const [at, setAt] = useState(names.find((n) => n === workflow.latestVersion) ?? "");
  const [user, setUser] = useState("");
  const ref = at ? `${workflow.slug}@${at}` : (workflow.slug ?? "");
  const number = /^\d+$/.test(at) ? at : (workflow.aliases?.find((a) => a.name === at)?.versions?.[0]?.version ?? workflow.latestVersion);
  const version = useQuery({
    queryKey: ["workflow", workflow.slug, "version", number],
    queryFn: ({ signal }) => get<WorkflowVersion>(`/v1/workflows/${workflow.slug}/versions/${number}`, {}, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const runs = useQuery({
    queryKey: ["runs", "of workflow", workflow.slug],
    queryFn: ({ signal }) => get<ListRuns>("/v1/runs", { workflow: workflow.slug, pageSize: 10 }, signal),
  });
  const run = useMutation({
    mutationFn: (named: unknown) => post<Run>("/v1/runs", { workflow: ref, named, userId: user, requestId: requestId() }),
    onSuccess: (started) => navigate(`/runs/${started.id}`),
  });
  const schema = inputsOf(version.data);
  return (
    <div className="columns">
      <section>
        <h2>Test run</h2>
        <div className="fields">
          <label>
            Version
            <select value={at} onChange={(e) => setAt(e.target.value)}>
              {names.map((n) => (
                <option key={n} value={n}>
                  {n}
                </option>
              ))}
            </select>
          </label>
          <label>
            User
            <input value={user} onChange={(e) => setUser(e.target.value)} autoComplete="off" />
          </label>
        </div>
        <Fault error={version.error} />
        {version.data ? <SchemaForm key={number} schema={schema ?? { type: "object" }} busy={run.isPending} submit="Start the run" onSubmit={(v) => run.mutate(v)} /> : null}
        <Fault error={run.error} />
      </section>
      <section>
        <ForecastOf body={{ ref }} />
        <h2>Newest runs</h2>
        {runs.data && !runs.data.runs?.length ? <p className="muted">It has no runs yet.</p> : null}
        <ul className="plain">
          {runs.data?.runs?.map((r) => (
            <li key={r.id}>
              <Link href={`/runs/${r.id}`}>{r.workflow}</Link> <State of={r.state} /> <When time={r.createTime} />
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}
