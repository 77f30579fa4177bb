// The frame of all pages: navigation, login, shortcuts, theme.
import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { signOut, useSession } from "./api/session";
import { Login } from "./login";
import { Link, navigate, useAddress } from "./router";
import { RunsPage } from "./runs/list";
import { Dialog, Empty } from "./ui/parts";
import { allShortcuts, useShortcuts } from "./ui/shortcuts";
import { type Theme, useTheme } from "./ui/theme";

const RunPage = lazy(() => import("./run/page"));
const PlaygroundPage = lazy(() => import("./playground/page"));

const places = [
  { path: "/runs", name: "Runs", keys: "g r" },
  { path: "/playground", name: "Playground", keys: "g p" },
];

function Page({ path }: { path: string }) {
  if (path === "/" || path === "/runs") return <RunsPage />;
  if (path === "/playground") return <PlaygroundPage />;
  const run = /^\/runs\/([^/]+)$/.exec(path);
  if (run?.[1]) return <RunPage key={run[1]} id={decodeURIComponent(run[1])} />;
  return (
    <Empty title="There is nothing here">
      <p>
        No page has the address <code>{path}</code>. <Link href="/runs">See the runs</Link>.
      </p>
    </Empty>
  );
}

function ThemeSwitch() {
  const [theme, setTheme] = useTheme();
  return (
    <select aria-label="Theme" value={theme} onChange={(e) => setTheme(e.target.value as Theme)}>
      <option value="system">system</option>
      <option value="light">light</option>
      <option value="dark">dark</option>
    </select>
  );
}

function Shortcuts({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog title="Shortcuts" open={open} onClose={onClose}>
      <dl className="shortcuts">
        {allShortcuts().map((s) => (
          <div key={s.keys}>
            <dt>
              {s.keys.split(" ").map((k) => (
                <kbd key={k}>{k}</kbd>
              ))}
            </dt>
            <dd>{s.does}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

export function App() {
  const { path } = useAddress();
  const session = useSession();
  const client = useQueryClient();
  const main = useRef<HTMLElement>(null);
  const [help, setHelp] = useState(false);
  const who = `${session.key} ${session.namespace}`;
  const before = useRef(who);

  useShortcuts([
    { keys: "?", does: "List the shortcuts", run: () => setHelp(true) },
    ...places.map((p) => ({ keys: p.keys, does: `Go to ${p.name}`, run: () => navigate(p.path) })),
  ]);
  useEffect(() => {
    // What another key has shown is not shown to this one.
    if (before.current !== who) client.clear();
    before.current = who;
  }, [who, client]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [path]);

  return (
    <>
      <a
        className="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header className="top">
        <Link href="/runs" className="brand">
          <img src="/favicon.svg" alt="" width="20" height="20" /> Epigraph
        </Link>
        <nav aria-label="Pages">
          {places.map((p) => (
            <Link key={p.path} href={p.path} aria-current={path === p.path || (path === "/" && p.path === "/runs") ? "page" : undefined}>
              {p.name}
            </Link>
          ))}
        </nav>
        <div className="tools">
          {session.namespace ? <span className="muted namespace">{session.namespace}</span> : null}
          <ThemeSwitch />
          <button type="button" className="quiet" onClick={() => setHelp(true)} aria-label="Shortcuts" title="Shortcuts (?)">
            ?
          </button>
          {session.key || session.namespace ? (
            <button type="button" className="quiet" onClick={signOut}>
              Sign out
            </button>
          ) : null}
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {session.refused ? (
          <Login why={session.refused} />
        ) : (
          <Suspense fallback={<p className="muted">Loading…</p>}>
            <Page path={path} />
          </Suspense>
        )}
      </main>
      <footer>
        <a href="/openapi.json">API</a> <a href="/licenses.txt">Licenses</a>
      </footer>
      <Shortcuts open={help} onClose={() => setHelp(false)} />
    </>
  );
}
