// The triggers of a workflow, and what they were told.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, requestId } from "../api/client";
import type { ListDeliveries, ListTriggers, Trigger, TriggerActivation, TriggerDelivery } from "../api/types";
import { Link } from "../router";
import { Act, FormDialog, Text } from "../ui/act";
import { Table } from "../ui/filters";
import { More, usePages } from "../ui/pages";
import { Command, Fault, Json, State, When } from "../ui/parts";

/** Secret is what a webhook proves itself with; it is shown once. */
function Secret({ trigger }: { trigger: Trigger }) {
  return trigger.secret ? (
    <div className="explain">
      <p>The secret of {trigger.name} is shown this once:</p>
      <Command>{trigger.secret}</Command>
    </div>
  ) : null;
}

const deliveryStates = ["received", "started", "refused", "failed"];

/** Deliveries are what triggers were told, and what became of it. No stream tells of them: they are read again. */
export function Deliveries({ triggers }: { triggers: Trigger[] }) {
  const queries = useQueryClient();
  const [of, setOf] = useState("");
  const [state, setState] = useState("");
  const query = { triggerId: of, state: state && `TRIGGER_DELIVERY_STATE_${state.toUpperCase()}` };
  const list = usePages<ListDeliveries>(["deliveries"], "/v1/trigger_deliveries", query, triggers.length > 0, 5_000);
  const mine = new Map(triggers.map((t) => [t.id, t.name]));
  const all = (list.data?.pages.flatMap((p) => p.deliveries ?? []) ?? []).filter((d) => mine.has(d.triggerId));
  return (
    <section aria-label="Deliveries">
      <h2>Deliveries</h2>
      <label className="small">
        Of{" "}
        <select value={of} onChange={(e) => setOf(e.target.value)}>
          <option value="">all triggers</option>
          {triggers.map((t) => (
            <option key={t.id} value={t.id}>
              {t.name}
            </option>
          ))}
        </select>
      </label>{" "}
      <label className="small">
        State{" "}
        <select value={state} onChange={(e) => setState(e.target.value)}>
          <option value="">any</option>
          {deliveryStates.map((s) => (
            <option key={s}>{s}</option>
          ))}
        </select>
      </label>
      {all.length > 0 ? (
        <Table label="Deliveries of triggers" head={["State", "Trigger", "Received", "Tries", "Run", "Do"]}>
          {all.map((d) => (
            <tr key={d.id}>
              <td data-name="State">
                <State of={d.state} reason={d.reason} />
              </td>
              <td data-name="Trigger">
                {mine.get(d.triggerId)} {d.message ? <span className="small muted">{d.message}</span> : null}
              </td>
              <td data-name="Received">
                <When time={d.receiveTime} />
              </td>
              <td data-name="Tries">
                {d.attempts ?? 0}
                {d.nextTime && !d.endTime ? (
                  <span className="small muted">
                    , next <When time={d.nextTime} />
                  </span>
                ) : null}
              </td>
              <td data-name="Run">{d.runId ? <Link href={`/runs/${d.runId}`}>{d.runId}</Link> : ""}</td>
              <td data-name="Do">
                <Act
                  label="Repeat"
                  run={async () => {
                    await post<TriggerDelivery>(`/v1/trigger_deliveries/${d.id}:repeat`, { requestId: requestId() });
                    await queries.invalidateQueries({ queryKey: ["deliveries"] });
                  }}
                />
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        <p className="muted">{state || of ? "No delivery matches." : "Nothing was delivered yet."}</p>
      ) : null}
      <More of={list} />
    </section>
  );
}

export function Triggers({ slug }: { slug: string }) {
  const queries = useQueryClient();
  const [activating, setActivating] = useState(false);
  const [made, setMade] = useState<Trigger[]>([]);
  const list = useQuery({
    queryKey: ["workflow", slug, "triggers"],
    queryFn: ({ signal }) => get<ListTriggers>("/v1/triggers", { workflow: slug, pageSize: 200 }, signal),
  });
  const triggers = list.data?.triggers ?? [];
  const again = () => queries.invalidateQueries({ queryKey: ["workflow", slug, "triggers"] });
  const on = triggers.some((t) => t.state === "TRIGGER_STATE_ACTIVE");
  return (
    <>
      <div className="buttons">
        <button type="button" onClick={() => setActivating(true)}>
          {on ? "Follow another reference" : "Turn the triggers on"}
        </button>
        {on ? (
          <Act
            label="Turn them off…"
            danger
            ask={<p>Nothing but a call starts the workflow then.</p>}
            run={async () => {
              await post<TriggerActivation>("/v1/triggers:deactivate", { workflow: slug });
              await again();
            }}
          />
        ) : null}
      </div>
      <Fault error={list.error} />
      {made.map((t) => (
        <Secret key={t.id} trigger={t} />
      ))}
      {triggers.length > 0 ? (
        <Table label="Triggers" head={["State", "Trigger", "Type", "Where", "Definition", "Do"]}>
          {triggers.map((t) => (
            <tr key={t.id}>
              <td data-name="State">
                <State of={t.state} reason={t.reason} />
              </td>
              <td data-name="Trigger">{t.name}</td>
              <td data-name="Type">{t.type}</td>
              <td data-name="Where">
                {t.path ? <code>{t.path}</code> : null} {t.scheduleId ? <Link href={`/schedules?at=${t.scheduleId}`}>schedule</Link> : null}
              </td>
              <td data-name="Definition">
                <details>
                  <summary>show</summary>
                  <Json value={t.definition} label={`Definition of ${t.name}`} />
                </details>
              </td>
              <td data-name="Do">
                {t.type === "webhook" ? (
                  <Act label="New secret…" ask={<p>The old secret is worth nothing then.</p>} run={async () => setMade([await post<Trigger>(`/v1/triggers/${t.id}:rotate`, {})])} />
                ) : null}
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        <>
          <p className="muted">No trigger was turned on. The definition names triggers; somebody turns them on:</p>
          <Command>{`epigraph triggers on ${slug}@prod`}</Command>
        </>
      ) : null}
      <Deliveries triggers={triggers} />
      {activating ? (
        <FormDialog
          title="Turn the triggers on"
          submit="Turn them on"
          onClose={() => setActivating(false)}
          send={async (f) => {
            const done = await post<TriggerActivation>("/v1/triggers:activate", { workflow: f.ref });
            setMade(done.triggers?.filter((t) => t.secret) ?? []);
            await again();
          }}
        >
          <Text name="ref" label="Reference that is followed" required value={slug} about="The name, a version such as NAME@2, or an alias such as NAME@prod." autoFocus />
        </FormDialog>
      ) : null}
    </>
  );
}
