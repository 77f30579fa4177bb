// What nodes can call.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { ListActors } from "../api/types";
import { useAddress } from "../router";
import { Committed, Table } from "../ui/filters";
import { count, word } from "../ui/format";
import { Fault, Json, Status, usePageTitle } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";

export default function ActorsPage() {
  usePageTitle("Actors");
  const { query } = useAddress();
  const text = query.get("q") ?? "";
  const list = useQuery({ queryKey: ["actors"], queryFn: ({ signal }) => get<ListActors>("/v1/actors", {}, signal) });
  const want = text.toLowerCase();
  const all = (list.data?.actors ?? []).filter((a) => !want || a.name?.toLowerCase().includes(want) || a.description?.toLowerCase().includes(want));
  useShortcuts([{ keys: "/", does: "Search", run: () => document.getElementById("actor-search")?.focus() }]);
  return (
    <>
      <div className="heading">
        <h1>Actors</h1>
        <Status>{list.isLoading ? "loading" : `${count(all.length)} shown`}</Status>
      </div>
      <section className="filters" aria-label="Filters">
        <div className="fields">
          <Committed label="Name or description has" name="q" value={text} id="actor-search" />
        </div>
      </section>
      <Fault error={list.error} retry={() => list.refetch()} />
      {all.length > 0 ? (
        <Table label="Actors" head={["Actor", "What it does", "Repeating it", "Arguments"]}>
          {all.map((a) => (
            <tr key={a.name}>
              <td data-name="Actor">
                <code>{a.name}</code> <span className="small muted">{a.version}</span>
              </td>
              <td data-name="About" className="name">
                {a.description} {a.unavailable ? <span className="error-text">Calls would fail: {a.unavailable}</span> : null}
              </td>
              <td data-name="Effect">{word(a.effect?.replace("EFFECT_", ""))}</td>
              <td data-name="Arguments">
                {a.argsSchema !== undefined && a.argsSchema !== null ? (
                  <details>
                    <summary>schema</summary>
                    <Json value={a.argsSchema} label={`Arguments of ${a.name}`} />
                  </details>
                ) : null}
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        <p className="muted">No actor has this in its name or description.</p>
      ) : null}
    </>
  );
}
