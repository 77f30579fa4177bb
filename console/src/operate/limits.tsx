// Limits: bounds on the calls of actors and keys, and on what the namespace may have open.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { patch, remove } from "../api/client";
import type { Limit, ListLimits } from "../api/types";
import { Act, FormDialog, Text } from "../ui/act";
import { Table } from "../ui/filters";
import { count } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Status, usePageTitle, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";

/** bounds are what a limit bounds, in words. */
function bounds(l: Limit): string {
  return [
    l.maxConcurrent ? `${count(l.maxConcurrent)} at once` : "",
    l.maxRate ? `${count(l.maxRate)} in ${l.rateInterval ?? "1s"}` : "",
    Number(l.maxOpenRuns) ? `${count(l.maxOpenRuns)} open runs` : "",
    Number(l.maxPendingRuns) ? `${count(l.maxPendingRuns)} pending runs` : "",
    l.maxFanOut ? `${count(l.maxFanOut)} children at once` : "",
    Number(l.maxBytes) ? `${count(l.maxBytes)} bytes` : "",
    l.retention ? `kept for ${l.retention}` : "",
  ]
    .filter(Boolean)
    .join(", ");
}

/** pathOf keeps the slash of a name such as actor/http. */
function pathOf(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

function LimitForm({ of, onClose }: { of?: Limit; onClose: () => void }) {
  const queries = useQueryClient();
  const send = async (f: Record<string, string>) => {
    const name = of?.name ?? f.name ?? "";
    const body: Partial<Limit> =
      name === "namespace"
        ? { maxOpenRuns: f.open || "0", maxPendingRuns: f.pending || "0" }
        : { maxConcurrent: Number(f.concurrent || 0), maxRate: Number(f.rate || 0), ...(f.interval ? { rateInterval: f.interval } : {}) };
    await patch<Limit>(`/v1/limits/${pathOf(name)}?allowMissing=true`, body);
    await queries.invalidateQueries({ queryKey: ["limits"] });
  };
  return (
    <FormDialog title={of ? `Change ${of.name}` : "New limit"} submit="Set the limit" onClose={onClose} send={send}>
      {of ? null : <Text name="name" label="Name" required autoFocus placeholder="actor/http" about="actor/NAME, key/VALUE for calls with this concurrency key, or namespace." />}
      {of && of.name === "namespace" ? null : (
        <>
      <Text name="concurrent" label="Calls at once" type="number" min="0" value={of?.maxConcurrent ? String(of.maxConcurrent) : ""} />
      <Text name="rate" label="Calls in an interval" type="number" min="0" value={of?.maxRate ? String(of.maxRate) : ""} />
      <Text name="interval" label="The interval" value={of?.rateInterval} placeholder="60s" />
        </>
      )}
      {of && of.name !== "namespace" ? null : (
        <>
          <Text name="open" label="Open runs of the namespace" type="number" min="0" value={of?.maxOpenRuns} />
          <Text name="pending" label="Pending runs of the namespace" type="number" min="0" value={of?.maxPendingRuns} />
        </>
      )}
    </FormDialog>
  );
}

export default function LimitsPage() {
  usePageTitle("Limits");
  const queries = useQueryClient();
  const [editing, setEditing] = useState<Limit | "new" | undefined>();
  const list = usePages<ListLimits>(["limits"], "/v1/limits", {});
  const all = list.data?.pages.flatMap((p) => p.limits ?? []) ?? [];
  useShortcuts([{ keys: "n", does: "New limit", run: () => setEditing("new") }]);
  return (
    <>
      <div className="heading">
        <h1>Limits</h1>
        <Status>{list.isLoading ? "loading" : `${count(all.length)} shown`}</Status>
        <div className="buttons">
          <button type="button" className="primary" onClick={() => setEditing("new")}>
            New limit
          </button>
        </div>
      </div>
      {all.length > 0 ? (
        <Table label="Limits" head={["Limit", "Bounds", "Now", "Changed", "Do"]}>
          {all.map((l) => (
            <tr key={l.name}>
              <td data-name="Limit" className="name">
                <code>{l.name}</code> {l.warning ? <span className="small error-text">{l.warning}</span> : null}
              </td>
              <td data-name="Bounds">{bounds(l)}</td>
              <td data-name="Now">{[l.running ? `${count(l.running)} running` : "", Number(l.openRuns) ? `${count(l.openRuns)} open runs` : ""].filter(Boolean).join(", ")}</td>
              <td data-name="Changed">
                <When time={l.updateTime} />
              </td>
              <td data-name="Do">
                <div className="buttons">
                  <button type="button" onClick={() => setEditing(l)} aria-label={`Change ${l.name}`}>
                    Change
                  </button>
                  <Act
                    label="Delete…"
                    danger
                    ask={<p>{l.name} bounds nothing any more.</p>}
                    run={async () => {
                      await remove(`/v1/limits/${pathOf(l.name ?? "")}`);
                      await queries.invalidateQueries({ queryKey: ["limits"] });
                    }}
                  />
                </div>
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        <Empty title="No limit yet">
          <p>A limit bounds the calls of an actor or a key: how many at once, and how many in an interval.</p>
          <p className="buttons">
            <button type="button" className="primary" onClick={() => setEditing("new")}>
              Set the first limit
            </button>
          </p>
          <p>Or with the command line:</p>
          <Command>epigraph limits put actor/http --concurrent 5</Command>
        </Empty>
      ) : null}
      <More of={list} />
      {editing ? <LimitForm of={editing === "new" ? undefined : editing} onClose={() => setEditing(undefined)} /> : null}
    </>
  );
}
