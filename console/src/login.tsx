// The form for a key, and the way to a login, shown when the server refuses a request without either.
import { type FormEvent, useEffect, useState } from "react";
import { currentSession, forget, signIn } from "./api/session";
import { usePageTitle } from "./ui/parts";
import type { Door } from "./ui/server";

/** useDoors asks where a browser may log in, with no credentials: those of this tab were refused. */
function useDoors(): Door[] {
  const [doors, setDoors] = useState<Door[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    fetch("/v1/info", { cache: "no-store", signal: stop.signal })
      .then((res) => (res.ok ? res.json() : {}))
      .then((info: { login?: Door[] }) => setDoors(info.login ?? []))
      .catch(() => undefined); // the key stays
    return () => stop.abort();
  }, []);
  return doors;
}

/** through is the address that logs in and comes back to this page. */
function through(door: Door): string {
  const back = location.pathname + location.search;
  return `${door.url}${door.url.includes("?") ? "&" : "?"}return_to=${encodeURIComponent(back)}`;
}

export function Login({ why }: { why: string }) {
  usePageTitle("Sign in");
  const [key, setKey] = useState("");
  const doors = useDoors();
  const [namespace, setNamespace] = useState(currentSession().namespace);
  const enter = (e: FormEvent) => {
    e.preventDefault();
    signIn(key.trim(), namespace.trim());
  };
  return (
    <form className="login" onSubmit={enter}>
      <h1>Sign in</h1>
      <p>{currentSession().key ? `The key was refused: ${why}.` : doors.length > 0 ? "This server wants to know who you are." : "This server wants an API key."}</p>
      {doors.map((door) => (
        <p key={door.url}>
          <a
            className="button"
            href={through(door)}
            onClick={forget /* a key of this tab would be shown in place of the session */}
          >
            {door.name ? `Log in with ${door.name}` : "Log in"}
          </a>
        </p>
      ))}
      <label>
        API key
        <input type="password" autoComplete="current-password" required value={key} onChange={(e) => setKey(e.target.value)} autoFocus />
      </label>
      <label>
        Namespace <span className="muted">(only if the key has none of its own)</span>
        <input value={namespace} onChange={(e) => setNamespace(e.target.value)} autoComplete="off" spellCheck={false} pattern="[a-z0-9\-]*" />
      </label>
      <button type="submit" className="primary">
        Sign in
      </button>
      <p className="muted small">The key stays in this tab, and is forgotten when the tab is closed.</p>
    </form>
  );
}
