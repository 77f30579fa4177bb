// The versions of a workflow, the difference of two of them, and its aliases.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, put, remove, requestId } from "../api/client";
import type { DiffWorkflow, ListVersions, Workflow } from "../api/types";
import { setQuery, useAddress } from "../router";
import { Act, FormDialog, Text } from "../ui/act";
import { Table } from "../ui/filters";
import { count } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Fault, When } from "../ui/parts";

function Diff({ slug, from, to }: { slug: string; from: string; to: string }) {
  const diff = useQuery({
    queryKey: ["workflow", slug, "diff", from, to],
    queryFn: ({ signal }) => get<DiffWorkflow>("/v1/workflows:diff", { from: `${slug}@${from}`, to: `${slug}@${to}` }, signal),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
  return (
    <section aria-label="Difference">
      <h2>
        From {from} to {to}
      </h2>
      <Fault error={diff.error} />
      {diff.data?.changes?.length ? (
        <ul className="plain changes">
          {diff.data.changes.map((c, i) => (
            <li key={`${c.path}-${i}`}>
              <span className="tag">{c.kind}</span> <code>{c.path}</code>
              {c.before ? <pre className="before">{c.before}</pre> : null}
              {c.after ? <pre className="after">{c.after}</pre> : null}
            </li>
          ))}
        </ul>
      ) : diff.isSuccess ? (
        <p className="muted">They mean the same.</p>
      ) : null}
    </section>
  );
}

/** weightsOf reads "1=90 2=10", or one version alone. */
function weightsOf(text: string): { version: string; weight: number }[] {
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((part) => {
      const [version = "", weight = "1"] = part.split("=");
      return { version, weight: Number(weight) };
    });
}

function Aliases({ workflow }: { workflow: Workflow }) {
  const queries = useQueryClient();
  const [setting, setSetting] = useState<string | undefined>();
  const again = () => queries.invalidateQueries({ queryKey: ["workflow", workflow.slug] });
  const now = workflow.aliases?.find((a) => a.name === setting);
  return (
    <section aria-label="Aliases">
      <h2>Aliases</h2>
      {workflow.aliases?.length ? (
        <ul className="plain">
          {workflow.aliases.map((a) => (
            <li key={a.name} className="buttons">
              <code>{a.name}</code> {a.versions?.map((v) => `${v.version}=${v.weight}`).join(" ")}
              <button type="button" onClick={() => setSetting(a.name)} aria-label={`Move ${a.name}`}>
                Move
              </button>
              <Act
                label={`Remove ${a.name}…`}
                danger
                ask={<p>What names this alias is refused from then on.</p>}
                run={async () => {
                  await remove(`/v1/workflows/${workflow.slug}/aliases/${a.name}`);
                  await again();
                }}
              />
            </li>
          ))}
        </ul>
      ) : (
        <p className="muted">An alias, such as prod, stands for one version, or for several by weight.</p>
      )}
      <p>
        <button type="button" onClick={() => setSetting("")}>
          New alias
        </button>
      </p>
      {setting !== undefined ? (
        <FormDialog
          title={setting ? `Move ${setting}` : "New alias"}
          submit="Set the alias"
          onClose={() => setSetting(undefined)}
          send={async (f) => {
            await put<Workflow>(`/v1/workflows/${workflow.slug}/aliases/${setting || f.name}`, { versions: weightsOf(f.versions ?? ""), requestId: requestId() });
            await again();
          }}
        >
          {setting ? null : <Text name="name" label="Name" required autoFocus placeholder="prod" />}
          <Text
            name="versions"
            label="Versions by weight"
            required
            value={now?.versions?.map((v) => `${v.version}=${v.weight}`).join(" ") ?? workflow.latestVersion}
            about="One version, or several such as 1=90 2=10."
          />
        </FormDialog>
      ) : null}
    </section>
  );
}

export function Versions({ workflow }: { workflow: Workflow }) {
  const { query } = useAddress();
  const slug = workflow.slug ?? "";
  const list = usePages<ListVersions>(["workflow", slug, "versions"], `/v1/workflows/${slug}/versions`, {});
  const versions = list.data?.pages.flatMap((p) => p.versions ?? []) ?? [];
  const to = query.get("to") || workflow.latestVersion || "1";
  const from = query.get("from") || String(Math.max(1, Number(to) - 1));
  const options = versions.map((v) => v.version ?? "");
  return (
    <div className="columns">
      <section>
        <h2>Versions</h2>
        <Table label="Versions" head={["Version", "Size", "Runs", "Published"]}>
          {versions.map((v) => (
            <tr key={v.version}>
              <td data-name="Version">
                <strong>{v.version}</strong> <span className="muted small">{v.label}</span>
              </td>
              <td data-name="Size">{count(v.size?.nodes)} nodes</td>
              <td data-name="Runs">{Number(v.history?.completed ?? 0) + Number(v.history?.failed ?? 0) || ""}</td>
              <td data-name="Published">
                <When time={v.createTime} /> <span className="small muted">{v.principal}</span>
              </td>
            </tr>
          ))}
        </Table>
        <More of={list} />
        <Aliases workflow={workflow} />
      </section>
      <div>
        {options.length > 1 ? (
          <>
            <div className="fields">
              {(["from", "to"] as const).map((name) => (
                <label key={name}>
                  {name === "from" ? "Compare" : "with"}
                  <select value={name === "from" ? from : to} onChange={(e) => setQuery({ [name]: e.target.value })}>
                    {options.map((o) => (
                      <option key={o} value={o}>
                        {o}
                      </option>
                    ))}
                  </select>
                </label>
              ))}
            </div>
            <Diff slug={slug} from={from} to={to} />
          </>
        ) : (
          <p className="muted">There is one version. A second one can be compared with it.</p>
        )}
      </div>
    </div>
  );
}
