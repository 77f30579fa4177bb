// Webhooks: who calls in by triggers, and whom schedules tell of their runs.
import { Link } from "../router";
import type { ListSchedules, ListTriggers } from "../api/types";
import { Table } from "../ui/filters";
import { word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, State, usePageTitle } from "../ui/parts";
import { Deliveries } from "../workflows/triggers";

export default function WebhooksPage() {
  usePageTitle("Webhooks");
  const triggers = usePages<ListTriggers>(["webhooks", "triggers"], "/v1/triggers", { pageSize: 200 });
  const schedules = usePages<ListSchedules>(["webhooks", "schedules"], "/v1/schedules", { pageSize: 200 });
  const incoming = (triggers.data?.pages.flatMap((p) => p.triggers ?? []) ?? []).filter((t) => t.type === "webhook");
  const told = (schedules.data?.pages.flatMap((p) => p.schedules ?? []) ?? []).flatMap((s) => (s.start?.webhooks ?? []).map((w) => ({ schedule: s.id, ...w })));
  return (
    <>
      <div className="heading">
        <h1>Webhooks</h1>
      </div>
      <section>
        <h2>Called by others</h2>
        {incoming.length > 0 ? (
          <Table label="Called by others" head={["State", "Address", "Proof", "Workflow"]}>
            {incoming.map((t) => (
              <tr key={t.id}>
                <td data-name="State">
                  <State of={t.state} reason={t.reason} />
                </td>
                <td data-name="Address" className="name">
                  <code>/v1/hooks/…/{t.path}</code>
                </td>
                <td data-name="Proof">{t.signature}</td>
                <td data-name="Workflow">
                  <Link href={`/workflows/${t.workflow}?tab=triggers`}>{t.workflow}</Link>
                </td>
              </tr>
            ))}
          </Table>
        ) : triggers.isSuccess ? (
          <Empty title="No webhook takes calls">
            <p>A trigger of a workflow takes calls of other systems, each of which starts a run:</p>
            <Command>{"triggers: [{type: webhook, path: orders, signature: standard}]"}</Command>
            <p>
              Write it into the definition of <Link href="/workflows">a workflow</Link>, and turn its triggers on.
            </p>
          </Empty>
        ) : null}
        <More of={triggers} />
        {incoming.length > 0 ? <Deliveries triggers={incoming} /> : null}
      </section>
      <section>
        <h2>Told by schedules</h2>
        {told.length > 0 ? (
          <Table label="Told by schedules" head={["Address", "Of", "Schedule"]}>
            {told.map((w, i) => (
              <tr key={`${w.url}-${i}`}>
                <td data-name="Address" className="name">
                  <code>{w.url}</code>
                </td>
                <td data-name="Of">{w.events?.map((e) => word(e.replace("WEBHOOK_EVENT_", ""))).join(", ") || "ends of runs"}</td>
                <td data-name="Schedule">
                  <Link href={`/schedules?at=${w.schedule}`}>{w.schedule}</Link>
                </td>
              </tr>
            ))}
          </Table>
        ) : schedules.isSuccess ? (
          <p className="muted">No schedule tells a webhook. A start names the webhooks that are told what becomes of its run: --webhook URL. The page of a run lists its webhooks.</p>
        ) : null}
        <More of={schedules} />
      </section>
    </>
  );
}
