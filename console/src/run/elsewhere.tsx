// Where else something of a run is told: its trace and its logs.
import type { Run, Visit } from "../api/types";
import { linkOf, useServer } from "../ui/server";

/** Elsewhere links to the trace and the logs of a run, or of the time of one visit, where the configuration says where. */
export function Elsewhere({ run, visit }: { run: Run; visit?: Visit }) {
  const server = useServer().data;
  const of = visit ? { ...run, createTime: visit.startTime ?? run.createTime, endTime: visit.endTime } : run;
  const trace = run.traceId ? linkOf(server?.links?.trace, of, server?.namespace) : undefined;
  const logs = linkOf(server?.links?.logs, of, server?.namespace);
  return (
    <>
      {run.traceId ? (
        <span title="The id of the trace, to be found in the tracing system">
          trace{" "}
          {trace ? (
            <a href={trace} target="_blank" rel="noreferrer">
              {run.traceId}
            </a>
          ) : (
            <code>{run.traceId}</code>
          )}
        </span>
      ) : null}
      {logs ? (
        <a href={logs} target="_blank" rel="noreferrer">
          logs
        </a>
      ) : null}
    </>
  );
}
