// What an epic has paid for, by day, model and workflow.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { Task, UsageReport, UsageSum } from "../api/types";
import { type Bar, Bars } from "../ui/bars";
import { count, dollars } from "../ui/format";
import { Fault } from "../ui/parts";

function useReport(epic: string, by: string) {
  return useQuery({
    queryKey: ["epic", epic, "bill", by],
    queryFn: ({ signal }) => get<UsageReport>("/v1/usage:report", { by, epicId: epic, pageSize: 1000 }, signal),
    placeholderData: (old) => old,
  });
}

function tokens(sum: UsageSum | undefined): number {
  return Number(sum?.inputTokens ?? 0) + Number(sum?.outputTokens ?? 0);
}

interface Line {
  name: string;
  nano: number;
  tokens: number;
}

/** bars show money, or tokens where nothing has a price. */
function bars(lines: Line[]): Bar[] {
  const priced = lines.some((l) => l.nano > 0);
  return lines.map((l) => ({
    name: l.name,
    value: priced ? l.nano : l.tokens,
    text: `${dollars(String(l.nano))} ${count(l.tokens)} tokens`.trim(),
  }));
}

function linesOf(report: UsageReport | undefined, nameOf: (key: string) => string): Line[] {
  const sums = new Map<string, Line>();
  for (const row of report?.rows ?? []) {
    const name = nameOf(row.keys?.[0] ?? "");
    const line = sums.get(name) ?? { name, nano: 0, tokens: 0 };
    line.nano += Number(row.sum?.nanoUsd ?? 0);
    line.tokens += tokens(row.sum);
    sums.set(name, line);
  }
  return [...sums.values()];
}

export function Bill({ epic, tasks }: { epic: string; tasks: Task[] }) {
  const day = useReport(epic, "REPORT_KEY_DAY");
  const model = useReport(epic, "REPORT_KEY_MODEL");
  const task = useReport(epic, "REPORT_KEY_TASK");
  const slugs = new Map(tasks.map((t) => [t.id ?? "", t.runWorkflow || t.workflowSlug || "no workflow"]));
  const total = day.data?.total;
  if (day.data && (day.data.rows?.length ?? 0) === 0) return <p className="muted">Nothing was booked yet. Calls of models and tools appear here when they end.</p>;
  return (
    <div className="bill">
      <Fault error={day.error ?? model.error ?? task.error} />
      {total ? (
        <p>
          {count(total.calls)} calls, {count(tokens(total))} tokens {dollars(total.nanoUsd)}
          {Number(total.failedCalls) > 0 ? `, ${count(total.failedCalls)} of the calls failed` : ""}
        </p>
      ) : null}
      <div className="columns">
        <section>
          <h2>By day</h2>
          <Bars label="By day" bars={bars(linesOf(day.data, (k) => k).sort((a, b) => (a.name < b.name ? -1 : 1)))} />
        </section>
        <section>
          <h2>By model</h2>
          <Bars label="By model" bars={bars(linesOf(model.data, (k) => k || "other calls"))} />
        </section>
        <section>
          <h2>By workflow</h2>
          <Bars label="By workflow" bars={bars(linesOf(task.data, (k) => (k ? (slugs.get(k) ?? "removed tasks") : "agents, for no task")))} />
        </section>
      </div>
    </div>
  );
}
