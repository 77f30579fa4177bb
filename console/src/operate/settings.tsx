// What this tab and the server are.
import { useQuery } from "@tanstack/react-query";
import { ApiError, get } from "../api/client";
import { signOut, useSession } from "../api/session";
import { Fact } from "../ui/facts";
import { Fault, usePageTitle } from "../ui/parts";
import { type Theme, useTheme } from "../ui/theme";

interface Document {
  info?: { title?: string; version?: string };
}

/** rights are what a key may do, as far as a harmless request tells. */
const rights: [name: string, about: string, path: string][] = [
  ["run", "start runs, and read what there is", "/v1/runs?pageSize=1"],
  ["admin", "export the memory, and see who has searched it", "/v1/memory:reads?pageSize=1"],
];

function Rights() {
  const tried = useQuery({
    queryKey: ["settings", "rights"],
    queryFn: ({ signal }) =>
      Promise.all(
        rights.map(async ([, , path]) => {
          try {
            await get(path, {}, signal);
            return true;
          } catch (err) {
            if (err instanceof ApiError && err.status === 403) return false;
            throw err;
          }
        }),
      ),
    retry: false,
  });
  return (
    <>
      <Fault error={tried.error} />
      <ul>
        {rights.map(([name, about], i) => (
          <li key={name}>
            <code>{name}</code>: {about} <strong>{tried.data ? (tried.data[i] ? "yes" : "no") : ""}</strong>
          </li>
        ))}
      </ul>
    </>
  );
}

export default function SettingsPage() {
  usePageTitle("Settings");
  const session = useSession();
  const [theme, setTheme] = useTheme();
  const server = useQuery({ queryKey: ["settings", "server"], queryFn: ({ signal }) => get<Document>("/openapi.json", {}, signal), staleTime: 60_000 });
  return (
    <>
      <div className="heading">
        <h1>Settings</h1>
      </div>
      <div className="columns">
        <section>
          <h2>Server</h2>
          <Fault error={server.error} />
          <dl className="facts">
            <Fact name="Address">{location.origin}</Fact>
            <Fact name="API">{server.data?.info?.version ? `${server.data.info.title ?? ""} ${server.data.info.version}` : ""}</Fact>
            <Fact name="Namespace">{session.namespace || "that of the key, or default"}</Fact>
          </dl>
        </section>
        <section>
          <h2>Key</h2>
          {session.key ? (
            <p className="buttons">
              <span>A key is used in this tab.</span>
              <button type="button" onClick={signOut}>
                Forget the key
              </button>
            </p>
          ) : (
            <p>No key is used: the server lets this machine in without one.</p>
          )}
          <Rights />
        </section>
        <section>
          <h2>Look</h2>
          <fieldset className="choice">
            <legend>Colors</legend>
            {(["system", "light", "dark"] as Theme[]).map((t) => (
              <label key={t}>
                <input type="radio" name="theme" checked={theme === t} onChange={() => setTheme(t)} /> {t}
              </label>
            ))}
          </fieldset>
          <p className="small muted">The choice is kept in this browser.</p>
        </section>
      </div>
    </>
  );
}
