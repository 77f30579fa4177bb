// The API keys of the namespace: made, listed and revoked by those who administer it.
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { post, requestId } from "../api/client";
import type { CreateKey, Key, ListKeys } from "../api/types";
import { Act, Choice, FormDialog, Text } from "../ui/act";
import { Table } from "../ui/filters";
import { More, usePages } from "../ui/pages";
import { Command, Empty, State, useNow, usePageTitle, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { Need } from "./need";

const roles: [string, string][] = [
  ["viewer", "viewer: reads everything"],
  ["operator", "operator: reads, starts and steers runs"],
  ["approver", "approver: sees and answers questions"],
  ["admin", "admin: all of these, limits, prices, budgets and keys"],
  ["", "scopes, as chosen below"],
];
const scopes: [string, string][] = [
  ["read", "read"],
  ["run", "run (reads, too)"],
  ["worker", "worker"],
  ["approve", "approve"],
  ["admin", "admin"],
];

function KeyForm({ onClose, onMade }: { onClose: () => void; onMade: (made: CreateKey) => void }) {
  const queries = useQueryClient();
  const [id] = useState(requestId); // a form that is sent twice makes one key
  const send = async (f: Record<string, string>) => {
    const chosen = scopes.map(([s]) => s).filter((s) => f[`scope-${s}`] === "on");
    if (f.role && chosen.length > 0) throw new Error("a key has a role or scopes, not both: choose “scopes” as its role, or no scope");
    if (!f.role && chosen.length === 0) throw new Error("choose at least one scope");
    const body = {
      name: f.name,
      ...(f.role ? { role: f.role } : { scopes: chosen }),
      ...(f.expire ? { expireTime: new Date(f.expire).toISOString() } : {}),
      requestId: id,
    };
    onMade(await post<CreateKey>("/v1/keys", body));
    await queries.invalidateQueries({ queryKey: ["keys"] });
  };
  return (
    <FormDialog title="New key" submit="Create the key" onClose={onClose} send={send}>
      <Text name="name" label="Name" about="What the use of the key is recorded under. Keys that replace each other may share it." required autoFocus />
      <Choice name="role" label="Role" value="viewer" options={roles} />
      <fieldset className="choice">
        <legend>Scopes</legend>
        {scopes.map(([name, text]) => (
          <label key={name}>
            <input type="checkbox" name={`scope-${name}`} /> {text}
          </label>
        ))}
      </fieldset>
      <Text name="expire" label="Ends" about="Empty is never." type="datetime-local" />
    </FormDialog>
  );
}

function keyState(k: Key, now: number): string {
  if (k.revokeTime) return "revoked";
  return k.expireTime && Date.parse(k.expireTime) <= now ? "expired" : "open";
}

function Row({ of: k }: { of: Key }) {
  const queries = useQueryClient();
  const now = useNow();
  const state = keyState(k, now);
  return (
    <tr>
      <td data-name="State">
        <State of={state} />
      </td>
      <td data-name="Key" className="name">
        <strong>{k.name}</strong> <span className="muted small id">{k.id}</span>
      </td>
      <td data-name="May">{k.role || k.scopes?.join(", ")}</td>
      <td data-name="Made">
        <When time={k.createTime} /> {k.principal ? <span className="muted small">by {k.principal}</span> : null}
      </td>
      <td data-name="Used">{k.lastUseTime ? <When time={k.lastUseTime} /> : <span className="muted">never</span>}</td>
      <td data-name="Ends">
        {k.revokeTime ? (
          <>
            <When time={k.revokeTime} /> <span className="muted small">by {k.revokedBy}</span>
          </>
        ) : k.expireTime ? (
          <When time={k.expireTime} />
        ) : (
          <span className="muted">never</span>
        )}
      </td>
      <td data-name="Do">
        {state === "open" ? (
          <Act
            label="Revoke…"
            danger
            ask={
              <p>
                Calls with this key of <code>{k.name}</code> are refused within seconds. That cannot be taken back.
              </p>
            }
            run={async () => {
              await post<Key>(`/v1/keys/${k.id}:revoke`, {});
              await queries.invalidateQueries({ queryKey: ["keys"] });
            }}
          />
        ) : null}
      </td>
    </tr>
  );
}

function Keys() {
  const [form, setForm] = useState(false);
  const [made, setMade] = useState<CreateKey | undefined>();
  const list = usePages<ListKeys>(["keys"], "/v1/keys", {});
  const keys = list.data?.pages.flatMap((p) => p.keys ?? []) ?? [];
  useShortcuts([{ keys: "n", does: "New key", run: () => setForm(true) }]);
  return (
    <>
      {keys.length > 0 || made ? (
        <p className="buttons">
          <button type="button" className="primary" onClick={() => setForm(true)}>
            New key
          </button>
        </p>
      ) : null}
      {made ? (
        <div className="explain" role="status">
          {made.secret ? (
            <>
              <p>
                The secret of <strong>{made.key?.name}</strong> is shown this once. Copy it now: only its hash is kept.
              </p>
              <Command>{made.secret}</Command>
            </>
          ) : (
            <p>The key was made by an earlier request, which was told its secret.</p>
          )}
          <p className="buttons">
            <button type="button" onClick={() => setMade(undefined)}>
              Hide it
            </button>
          </p>
        </div>
      ) : null}
      {keys.length > 0 ? (
        <Table label="Keys" head={["State", "Key", "May", "Made", "Used", "Ends", "Do"]}>
          {keys.map((k) => (
            <Row key={k.id} of={k} />
          ))}
        </Table>
      ) : list.isSuccess ? (
        <Empty title="No key was made yet">
          <p>A key opens this namespace for a program or a person, as far as its role lets it. Keys of the configuration are not listed here.</p>
          <p className="buttons">
            <button type="button" className="primary" onClick={() => setForm(true)}>
              Create the first key
            </button>
          </p>
          <Command>epigraph keys create dashboard --role viewer</Command>
        </Empty>
      ) : null}
      <More of={list} />
      {form ? <KeyForm onClose={() => setForm(false)} onMade={setMade} /> : null}
    </>
  );
}

export default function KeysPage() {
  usePageTitle("Keys");
  return (
    <>
      <div className="heading">
        <h1>Keys</h1>
      </div>
      <Need scope="admin" what="the keys of the namespace">
        <Keys />
      </Need>
    </>
  );
}
