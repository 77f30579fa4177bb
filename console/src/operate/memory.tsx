// What the registry remembers beyond runs.
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, remove, requestId, send } from "../api/client";
import type { ListMemory, Memory, SearchMemory } from "../api/types";
import { Link, setQuery, useAddress } from "../router";
import { Act, Choice, FormDialog, listOf, Text } from "../ui/act";
import { Fact } from "../ui/facts";
import { useFeed } from "../ui/feed";
import { Committed, Pick, Table } from "../ui/filters";
import { count, short, word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Fault, Json, Status, usePageTitle, When } from "../ui/parts";
import { step, useShortcuts } from "../ui/shortcuts";

const kinds: [string, string][] = ["FACT", "PROCEDURE", "PREFERENCE"].map((k) => [`MEMORY_KIND_${k}`, k.toLowerCase()]);
const levels: [string, string][] = ["NAMESPACE", "USER", "EPIC", "WORKFLOW"].map((l) => [`MEMORY_LEVEL_${l}`, l.toLowerCase()]);

function scopeOf(m: Memory): string {
  return `${word(m.scope?.level)} ${m.scope?.subject ?? ""}`.trim();
}

function MemoryForm({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const write = async (f: Record<string, string>) => {
    const memory = { key: f.key, kind: f.kind, text: f.text, tags: listOf(f.tags), scope: { level: f.level, subject: f.subject } };
    await post("/v1/memory", { memory, requestId: requestId() });
    await queries.invalidateQueries({ queryKey: ["memory"] });
  };
  return (
    <FormDialog title="Remember something" submit="Remember it" onClose={onClose} send={write}>
      <Text name="text" label="Text" rows={3} required autoFocus />
      <Text name="key" label="Key" about="An entry with the same key and scope gives way." />
      <Choice name="kind" label="Kind" options={kinds} />
      <Choice name="level" label="Scope" options={levels} />
      <Text name="subject" label="Of whom" about="The user, the epic or the workflow; empty for the namespace." />
      <Text name="tags" label="Tags" />
    </FormDialog>
  );
}

/** save hands an export to the browser as a file. */
async function save() {
  const res = await send("/v1/memory:export", {});
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await res.blob());
  link.download = "memory.ndjson";
  link.click();
  URL.revokeObjectURL(link.href);
}

function Entry({ id, onClose }: { id: string; onClose: () => void }) {
  const queries = useQueryClient();
  const read = useQuery({ queryKey: ["memory", "entry", id], queryFn: ({ signal }) => get<Memory>(`/v1/memory/${id}`, {}, signal), retry: false });
  const m = read.data;
  return (
    <aside className="panel" aria-label="Entry">
      <header>
        <h2>{m?.key || "Entry"}</h2>
        <button type="button" className="quiet" onClick={onClose} aria-label="Close the entry">
          ✕
        </button>
      </header>
      <Fault error={read.error} />
      {m ? (
        <>
          <p className="prompt">{m.text}</p>
          <dl className="facts">
            <Fact name="Kind">{word(m.kind)}</Fact>
            <Fact name="Scope">{scopeOf(m)}</Fact>
            <Fact name="User">{m.userId}</Fact>
            <Fact name="From">{word(m.origin?.replace("MEMORY_ORIGIN_", ""))}</Fact>
            <Fact name="Source">{m.source?.startsWith("run_") ? <Link href={`/runs/${m.source}`}>{m.source}</Link> : m.source}</Fact>
            <Fact name="Confidence">{m.confidence}</Fact>
            <Fact name="Tags">{m.tags?.join(", ")}</Fact>
            <Fact name="Written">
              <When time={m.updateTime} />
            </Fact>
            <Fact name="Expires">{m.expireTime ? <When time={m.expireTime} /> : ""}</Fact>
          </dl>
          {m.value !== undefined && m.value !== null ? <Json value={m.value} label="Value" /> : null}
          <p className="buttons">
            <Act
              label="Delete…"
              danger
              ask={<p>Nothing is told of it any more.</p>}
              run={async () => {
                await remove(`/v1/memory/${id}?etag=${encodeURIComponent(m.etag ?? "")}`);
                await queries.invalidateQueries({ queryKey: ["memory", "list"] });
                onClose();
              }}
            />
          </p>
        </>
      ) : null}
    </aside>
  );
}

export default function MemoryPage() {
  usePageTitle("Memory");
  const { query } = useAddress();
  const [writing, setWriting] = useState(false);
  const text = query.get("q") ?? "";
  const kind = query.get("kind") ?? "";
  const level = query.get("level") ?? "";
  const subject = query.get("subject") ?? "";
  const chosen = query.get("entry") ?? "";
  const list = usePages<ListMemory>(["memory", "list"], "/v1/memory", { kinds: kind ? [kind] : [], "scope.level": level, "scope.subject": subject }, text === "");
  const search = useQuery({
    queryKey: ["memory", "list", "search", text, kind, level, subject],
    queryFn: ({ signal }) =>
      post<SearchMemory>("/v1/memory:search", { query: text, kinds: kind ? [kind] : [], scopes: level ? [{ level, subject }] : [], limit: 50 }, signal),
    enabled: text !== "",
    placeholderData: keepPreviousData,
  });
  const feed = useFeed({ kinds: ["memory_written", "memory_deleted"] }, [["memory", "list"]]);
  const rows = text ? (search.data?.matches ?? []).map((m) => m.memory ?? {}) : (list.data?.pages.flatMap((p) => p.memories ?? []) ?? []);
  const filtered = text !== "" || kind !== "" || level !== "" || subject !== "";
  useShortcuts([
    { keys: "j", does: "Next entry", run: () => step(1) },
    { keys: "k", does: "Previous entry", run: () => step(-1) },
    { keys: "/", does: "Search", run: () => document.getElementById("memory-search")?.focus() },
    { keys: "n", does: "Remember something", run: () => setWriting(true) },
    { keys: "Escape", does: "Close the entry", run: () => setQuery({ entry: "" }) },
  ]);
  return (
    <>
      <div className="heading">
        <h1>Memory</h1>
        <Status>
          {count(rows.length)}
          {list.hasNextPage ? "+" : ""} shown{feed === "broken" ? " · not live, connecting again" : ""}
        </Status>
        <div className="buttons">
          <Act label="Export" run={save} />
          <button type="button" className="primary" onClick={() => setWriting(true)}>
            Remember something
          </button>
        </div>
      </div>
      <section className="filters" aria-label="Filters">
        <div className="fields">
          <Committed label="Search by words" name="q" value={text} id="memory-search" />
          <Pick label="Kind" name="kind" value={kind} options={[["", "any"], ...kinds]} />
          <Pick label="Scope" name="level" value={level} options={[["", "any"], ...levels]} />
          <Committed label="Of whom" name="subject" value={subject} />
        </div>
      </section>
      <Fault error={search.error} />
      <div className="split">
        <div className="view">
          {rows.length > 0 ? (
            <Table label="Memory" head={["Kind", "Entry", "Scope", "Written"]}>
              {rows.map((m) => (
                <tr key={m.id} aria-selected={m.id === chosen}>
                  <td data-name="Kind">{word(m.kind)}</td>
                  <td data-name="Entry" className="name">
                    <button type="button" className="quiet inline" data-row onClick={() => setQuery({ entry: m.id ?? "" })}>
                      {short(m.text || m.key || m.id, 120)}
                    </button>
                    {m.tags?.map((t) => (
                      <span key={t} className="tag">
                        {t}
                      </span>
                    ))}
                  </td>
                  <td data-name="Scope">{scopeOf(m)}</td>
                  <td data-name="Written">
                    <When time={m.updateTime} />
                  </td>
                </tr>
              ))}
            </Table>
          ) : (text ? search.isSuccess : list.isSuccess) ? (
            <Empty title={filtered ? "Nothing of this is remembered" : "Nothing is remembered yet"}>
              <p>Agents write down what they learn, epics how they were completed, and people what they prefer.</p>
              <p className="buttons">
                <button type="button" className="primary" onClick={() => setWriting(true)}>
                  Remember the first thing
                </button>
              </p>
              <p>Or with the command line:</p>
              <Command>{"epigraph memory write 'Invoices go to the office in Bern'"}</Command>
            </Empty>
          ) : null}
          {text ? null : <More of={list} />}
        </div>
        {chosen ? <Entry key={chosen} id={chosen} onClose={() => setQuery({ entry: "" })} /> : null}
      </div>
      {writing ? <MemoryForm onClose={() => setWriting(false)} /> : null}
    </>
  );
}
