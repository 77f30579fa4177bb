// The list of threads: conversations with agents, and what agents keep while they work.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, requestId } from "../api/client";
import type { ListActors, ListThreads, Thread } from "../api/types";
import { Link, navigate, useAddress } from "../router";
import { Choice, FormDialog, Text } from "../ui/act";
import { Committed, Pick, Table } from "../ui/filters";
import { count, word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Status, usePageTitle, When } from "../ui/parts";
import { step, useShortcuts } from "../ui/shortcuts";

const lifetimes: [string, string][] = [
  ["", "any"],
  ["THREAD_LIFETIME_CONVERSATION", "conversation"],
  ["THREAD_LIFETIME_EPHEMERAL", "ephemeral"],
  ["THREAD_LIFETIME_RUN", "of a run"],
];

function ThreadForm({ onClose }: { onClose: () => void }) {
  const actors = useQuery({ queryKey: ["actors"], queryFn: ({ signal }) => get<ListActors>("/v1/actors", {}, signal), staleTime: 60_000 });
  const named = (actors.data?.actors ?? []).map((a) => a.name ?? "").filter((n) => n.startsWith("agent/"));
  const send = async (f: Record<string, string>) => {
    const thread = { agent: f.agent, title: f.title, key: f.key, userId: f.user };
    const made = await post<Thread>("/v1/threads", { thread, requestId: requestId() });
    navigate(`/threads/${made.id}`);
  };
  return (
    <FormDialog title="New conversation" submit="Begin" onClose={onClose} send={send}>
      {named.length > 0 ? (
        <Choice name="agent" label="Agent" options={named.map((n) => [n, n.slice("agent/".length)])} />
      ) : (
        <Text name="agent" label="Agent" required placeholder="agent/support" about="No agent has a name on this server: executor.actors.agents of the configuration gives it one." />
      )}
      <Text name="title" label="Title" autoFocus />
      <Text name="key" label="Key" placeholder="ann:desk" about="A name by which the conversation is found again. It may be empty." />
      <Text name="user" label="User" about="Whose conversation it is." />
    </FormDialog>
  );
}

export default function ThreadsPage() {
  usePageTitle("Threads");
  const { query } = useAddress();
  const [creating, setCreating] = useState(false);
  const agent = query.get("agent") ?? "";
  const key = query.get("key") ?? "";
  const lifetime = query.get("lifetime") ?? "";
  const parent = query.get("parent") ?? "";
  const list = usePages<ListThreads>(["threads"], "/v1/threads", { agent, keyPrefix: key, lifetime, parentId: parent });
  const threads = list.data?.pages.flatMap((p) => p.threads ?? []) ?? [];
  useShortcuts([
    { keys: "j", does: "Next thread", run: () => step(1) },
    { keys: "k", does: "Previous thread", run: () => step(-1) },
    { keys: "n", does: "New conversation", run: () => setCreating(true) },
  ]);
  return (
    <>
      <div className="heading">
        <h1>Threads</h1>
        <Status>{list.isLoading ? "loading" : `${count(threads.length)}${list.hasNextPage ? "+" : ""} shown`}</Status>
        <div className="buttons">
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            New conversation
          </button>
        </div>
      </div>
      <section className="filters" aria-label="Filters">
        <div className="fields">
          <Committed label="Agent" name="agent" value={agent} placeholder="agent/support" />
          <Committed label="Key begins with" name="key" value={key} placeholder="ann:" />
          <Pick label="Lifetime" name="lifetime" value={lifetime} options={lifetimes} />
          {parent ? <Committed label="Forks of" name="parent" value={parent} /> : null}
        </div>
      </section>
      {threads.length > 0 ? (
        <Table label="Threads" head={["Thread", "Agent", "Kept", "Items", "Last used"]}>
          {threads.map((t) => (
            <tr key={t.id}>
              <td data-name="Thread" className="name">
                <Link href={`/threads/${t.id}`} data-row>
                  {t.title || t.key || t.id}
                </Link>{" "}
                <span className="muted small id">{t.id}</span>
                {t.parentId ? (
                  <Link className="small" href={`/threads/${t.parentId}`}>
                    fork
                  </Link>
                ) : null}
              </td>
              <td data-name="Agent">{t.agent}</td>
              <td data-name="Kept">{word(t.lifetime)}</td>
              <td data-name="Items" className="number">
                {count(t.lastSequence)}
              </td>
              <td data-name="Used">
                <When time={t.useTime} />
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess && !list.isPlaceholderData ? (
        agent || key || lifetime || parent ? (
          <Empty title="No thread matches">
            <p>
              Take a filter away, or <Link href="/threads">see all threads</Link>.
            </p>
          </Empty>
        ) : (
          <Empty title="No thread yet">
            <p>A thread keeps what an agent said, heard and decided. Begin a conversation with an agent:</p>
            <p className="buttons">
              <button type="button" className="primary" onClick={() => setCreating(true)}>
                Begin a conversation
              </button>
            </p>
            <p>Or with the command line:</p>
            <Command>epigraph chat agent/support</Command>
          </Empty>
        )
      ) : null}
      <More of={list} />
      {creating ? <ThreadForm onClose={() => setCreating(false)} /> : null}
    </>
  );
}
