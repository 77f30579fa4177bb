// The audit log: who changed what, from where, and how it ended.
import { useMemo } from "react";
import type { ListAudit } from "../api/types";
import { Link, navigate, setQuery, useAddress } from "../router";
import { Committed, Table } from "../ui/filters";
import { count } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Status, usePageTitle, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { Need } from "./need";

const spans: Record<string, number> = { "1h": 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000 };
const fields = ["principal", "method", "resource"] as const;

function Day({ label, name, value }: { label: string; name: string; value: string }) {
  return (
    <label>
      {label}
      <input type="datetime-local" value={value} onChange={(e) => setQuery({ [name]: e.target.value })} />
    </label>
  );
}

/** timeOf reads a time of the address, which may be any text. */
function timeOf(text: string | null): string | undefined {
  const ms = Date.parse(text ?? "");
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString();
}

/** pageOf leads to what an entry is about, where there is a page of it. */
function pageOf(resource: string): string | undefined {
  if (resource.startsWith("run_")) return `/runs/${resource}`;
  if (resource.startsWith("ep_")) return `/epics/${resource}`;
  if (resource.startsWith("thr_")) return `/threads/${resource}`;
  return resource.startsWith("key_") ? "/keys" : undefined;
}

function Log() {
  const { query } = useAddress();
  const span = query.get("span") ?? "";
  const own = span === "own" || query.has("after") || query.has("before");
  const filter = useMemo(() => {
    const out: Record<string, string | undefined> = {};
    for (const name of fields) out[name] = query.get(name) ?? undefined;
    out.startTime = spans[span] ? new Date(Date.now() - spans[span]).toISOString() : timeOf(query.get("after"));
    out.endTime = spans[span] ? undefined : timeOf(query.get("before"));
    return out;
  }, [query, span]);
  const filtered = Object.values(filter).some(Boolean);
  const list = usePages<ListAudit>(["audit"], "/v1/audit", filter, true, 10_000);
  const entries = list.data?.pages.flatMap((p) => p.entries ?? []) ?? [];
  useShortcuts([{ keys: "/", does: "Filter by who called", run: () => document.getElementById("audit-principal")?.focus() }]);
  return (
    <>
      <section className="filters" aria-label="Filters">
        <div className="fields">
          <Committed label="Principal" name="principal" id="audit-principal" value={query.get("principal") ?? ""} placeholder="key:ci" />
          <Committed label="Method" name="method" value={query.get("method") ?? ""} placeholder="CancelRun" />
          <Committed label="Resource" name="resource" value={query.get("resource") ?? ""} placeholder="run_…" />
          <label>
            Time
            <select value={own ? "own" : span} onChange={(e) => setQuery({ span: e.target.value, after: "", before: "" })}>
              <option value="">any time</option>
              {Object.keys(spans).map((s) => (
                <option key={s} value={s}>
                  last {s}
                </option>
              ))}
              <option value="own">between…</option>
            </select>
          </label>
          {own ? (
            <>
              <Day label="From" name="after" value={query.get("after") ?? ""} />
              <Day label="Until" name="before" value={query.get("before") ?? ""} />
            </>
          ) : null}
          {query.size > 0 ? (
            <button type="button" className="quiet" onClick={() => navigate("/audit", "replace")}>
              Clear
            </button>
          ) : null}
        </div>
      </section>
      <Status>{list.isSuccess ? `${count(entries.length)}${list.hasNextPage ? "+" : ""} entries shown, newest first` : "loading"}</Status>
      {entries.length > 0 ? (
        <Table label="Audit log" head={["When", "Who", "Method", "About", "Outcome", "From"]}>
          {entries.map((e) => (
            <tr key={e.id}>
              <td data-name="When">
                <When time={e.time} />
              </td>
              <td data-name="Who">
                <button type="button" className="quiet inline" aria-label={`Only those of ${e.principal}`} onClick={() => setQuery({ principal: e.principal ?? "" })}>
                  {e.principal}
                </button>
                {e.runId ? (
                  <>
                    {" "}
                    <Link className="small" href={`/runs/${e.runId}`}>
                      in a run
                    </Link>
                  </>
                ) : null}
              </td>
              <td data-name="Method">
                <span title={e.method}>{e.method?.split("/").pop()}</span>
              </td>
              <td data-name="About" className="name">
                {pageOf(e.resource ?? "") ? <Link href={pageOf(e.resource ?? "") ?? ""}>{e.resource}</Link> : e.resource}
              </td>
              <td data-name="Outcome">
                <span className={e.code === "OK" ? "" : "error-text"}>{e.code}</span> {e.reason ? <code>{e.reason}</code> : null}
                {Number(e.leftOut) > 0 ? <span className="muted small"> {count(e.leftOut)} before it were left out</span> : null}
              </td>
              <td data-name="From">
                <span title={`${e.userAgent ?? ""} request ${e.requestId ?? ""}`}>{e.remote}</span>
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        filtered ? (
          <Empty title="No entry matches">
            <p>
              Take a filter away, or <Link href="/audit">see the whole log</Link>.
            </p>
          </Empty>
        ) : (
          <Empty title="Nothing was changed yet">
            <p>Every call that changes something has an entry here, and every call that was refused. Start a run, and its entry appears:</p>
            <Command>{"printf 'A -> B\\n' | epigraph run --actor template --with text='did {{ node }}'"}</Command>
          </Empty>
        )
      ) : null}
      <More of={list} />
    </>
  );
}

export default function AuditPage() {
  usePageTitle("Audit");
  return (
    <>
      <div className="heading">
        <h1>Audit</h1>
      </div>
      <Need scope="admin" what="the audit log">
        <Log />
      </Need>
    </>
  );
}
