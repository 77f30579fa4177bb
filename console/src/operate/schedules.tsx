// Schedules: when they start runs next, and what became of the last times.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { post, remove, requestId } from "../api/client";
import type { ListSchedules, Schedule, TriggerSchedule } from "../api/types";
import { Link, useAddress } from "../router";
import { Act, Choice, FormDialog, Text } from "../ui/act";
import { Table } from "../ui/filters";
import { count, fullTime, word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, State, Status, usePageTitle, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";

const policies: [string, string][] = ["SKIP", "QUEUE_ONE", "QUEUE_ALL", "CANCEL_OTHER", "ALLOW"].map((p) => [`OVERLAP_POLICY_${p}`, p.toLowerCase().replaceAll("_", " ")]);

function ScheduleForm({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const send = async (f: Record<string, string>) => {
    const start: NonNullable<Schedule["start"]> = { workflow: f.workflow, userId: f.user };
    if (f.named) start.named = JSON.parse(f.named);
    const schedule = { id: f.id, cron: f.cron, timeZone: f.zone, overlap: f.overlap, note: f.note, start };
    await post<Schedule>("/v1/schedules", { schedule });
    await queries.invalidateQueries({ queryKey: ["schedules"] });
  };
  return (
    <FormDialog title="New schedule" submit="Create the schedule" onClose={onClose} send={send}>
      <Text name="id" label="Id" required autoFocus placeholder="nightly" />
      <Text name="cron" label="When (cron)" required placeholder="0 3 * * 1-5" about="minute, hour, day of month, month, day of week; or @daily, or @every 15m." />
      <Text name="zone" label="Time zone" placeholder="Europe/Berlin" about="Empty is UTC." />
      <Text name="workflow" label="Workflow" required placeholder="digest@prod" />
      <Text name="named" label="Inputs (JSON)" rows={2} placeholder='{"topic": "tea"}' />
      <Choice name="overlap" label="If a run is still open" options={policies} />
      <Text name="user" label="User" />
      <Text name="note" label="Note" />
    </FormDialog>
  );
}

function Row({ of, chosen }: { of: Schedule; chosen: boolean }) {
  const queries = useQueryClient();
  const again = () => queries.invalidateQueries({ queryKey: ["schedules"] });
  const call = async (verb: string, body: Record<string, unknown>) => {
    await post<Schedule | TriggerSchedule>(`/v1/schedules/${of.id}:${verb}`, body);
    await again();
  };
  const last = of.recent?.[0];
  return (
    <tr aria-selected={chosen}>
      <td data-name="State">
        <State of={of.paused ? "RUN_STATE_PAUSED" : "EPIC_STATE_ACTIVE"} />
      </td>
      <td data-name="Schedule" className="name">
        <strong>{of.id}</strong> <span className="muted small">{of.note}</span>{" "}
        <Link className="small" href={`/runs?schedule=${of.id}`}>
          runs
        </Link>
      </td>
      <td data-name="When">
        <code>{of.cron}</code> <span className="small muted">{of.timeZone || "UTC"}</span>
      </td>
      <td data-name="Starts">{of.start?.workflow || of.start?.graph?.name}</td>
      <td data-name="Next" title={of.nextTimes?.map(fullTime).join("\n")}>
        {of.paused ? "" : <When time={of.nextTimes?.[0]} />}
      </td>
      <td data-name="Last">
        {last ? (
          <>
            {last.runId ? <Link href={`/runs/${last.runId}`}>{word(last.result)}</Link> : word(last.result)} <When time={last.actualTime ?? last.scheduleTime} />
          </>
        ) : (
          ""
        )}
        {Number(of.skipped) > 0 ? <span className="small muted"> {count(of.skipped)} left out</span> : null}
      </td>
      <td data-name="Do">
        <div className="buttons">
          <Act label="Start now" run={() => call("trigger", { requestId: requestId() })} />
          {of.paused ? <Act label="Resume" run={() => call("resume", { note: of.note })} /> : <Act label="Pause" run={() => call("pause", { note: "paused in the console" })} />}
          <Act
            label="Delete…"
            danger
            disabled={Boolean(of.triggerId)}
            ask={<p>{of.id} starts nothing any more. Its runs stay.</p>}
            run={async () => {
              await remove(`/v1/schedules/${of.id}?etag=${encodeURIComponent(of.etag ?? "")}`);
              await again();
            }}
          />
        </div>
      </td>
    </tr>
  );
}

export default function SchedulesPage() {
  usePageTitle("Schedules");
  const { query } = useAddress();
  const [creating, setCreating] = useState(false);
  const list = usePages<ListSchedules>(["schedules"], "/v1/schedules", {});
  const all = list.data?.pages.flatMap((p) => p.schedules ?? []) ?? [];
  useShortcuts([{ keys: "n", does: "New schedule", run: () => setCreating(true) }]);
  return (
    <>
      <div className="heading">
        <h1>Schedules</h1>
        <Status>{list.isLoading ? "loading" : `${count(all.length)} shown`}</Status>
        <div className="buttons">
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            New schedule
          </button>
        </div>
      </div>
      {all.length > 0 ? (
        <Table label="Schedules" head={["State", "Schedule", "When", "Starts", "Next", "Last", "Do"]}>
          {all.map((s) => (
            <Row key={s.id} of={s} chosen={s.id === query.get("at")} />
          ))}
        </Table>
      ) : list.isSuccess ? (
        <Empty title="No schedule yet">
          <p>A schedule starts runs by the clock.</p>
          <p className="buttons">
            <button type="button" className="primary" onClick={() => setCreating(true)}>
              Create the first schedule
            </button>
          </p>
          <p>Or with the command line:</p>
          <Command>{"epigraph schedules create nightly --workflow digest@prod --cron '0 3 * * *'"}</Command>
        </Empty>
      ) : null}
      <More of={list} />
      {creating ? <ScheduleForm onClose={() => setCreating(false)} /> : null}
    </>
  );
}
