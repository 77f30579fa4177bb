// What this tab and the server are.
import { useMe } from "../access/me";
import { logOut, signOut, useSession } from "../api/session";
import { Fact } from "../ui/facts";
import { useServer } from "../ui/server";
import { Fault, usePageTitle } from "../ui/parts";
import { type Theme, useTheme } from "../ui/theme";

export default function SettingsPage() {
  usePageTitle("Settings");
  const session = useSession();
  const [theme, setTheme] = useTheme();
  const server = useServer();
  const me = useMe();
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
            <Fact name="Version">{server.data?.version}</Fact>
            <Fact name="Namespace">{me.data?.namespace}</Fact>
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
          ) : me.data?.principal?.startsWith("user:") ? (
            <p className="buttons">
              <span>You are logged in.</span>
              <button type="button" onClick={() => void logOut()}>
                Log out
              </button>
            </p>
          ) : (
            <p>No key is used: the server lets this machine in without one.</p>
          )}
          <Fault error={me.error} />
          <dl className="facts">
            <Fact name="Recorded as">{me.data?.principal}</Fact>
            <Fact name="Role">{me.data?.role || (me.data ? "none" : "")}</Fact>
            <Fact name="Scopes">{me.data?.scopes?.join(", ")}</Fact>
          </dl>
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
