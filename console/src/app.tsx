// The frame of all pages: navigation, login, shortcuts, theme.
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ComponentType, useEffect, useMemo, useRef, useState } from "react";
import { ApiError } from "./api/client";
import { signOut, useSession } from "./api/session";
import { Login } from "./login";
import { Link, navigate, useAddress } from "./router";
import { RunsPage } from "./runs/list";
import { Dialog, Empty, Fault } from "./ui/parts";
import { allShortcuts, useShortcuts } from "./ui/shortcuts";
import { type Theme, useTheme } from "./ui/theme";

/** later is a page that is loaded when it is shown for the first time. React's lazy would wait 300 ms longer. */
function later<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  return function Later(props: P) {
    const [Page, setPage] = useState(() => loaded);
    const [error, setError] = useState<unknown>();
    useEffect(() => {
      if (Page) return;
      load().then((m) => {
        loaded = m.default;
        setPage(() => m.default);
      }, setError);
    }, [Page]);
    // A new version of the server has other files than this page knows of.
    if (error) return <Fault error={new Error("this page could not be loaded")} retry={() => location.reload()} />;
    return Page ? <Page {...props} /> : <p className="muted">Loading…</p>;
  };
}

const RunPage = later(() => import("./run/page"));
const PlaygroundPage = later(() => import("./playground/page"));

function newQueries() {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 2_000,
        refetchOnWindowFocus: true,
        // A refusal does not become an answer by asking again.
        retry: (failed, error) => failed < 3 && !(error instanceof ApiError && !error.passing),
        networkMode: "always",
      },
      mutations: { networkMode: "always" },
    },
  });
}

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
  const main = useRef<HTMLElement>(null);
  const [help, setHelp] = useState(false);
  const who = `${session.key} ${session.namespace}`;
  // What another key has shown is not shown to this one.
  const queries = useMemo(() => newQueries(), [who]);

  useShortcuts([
    { keys: "?", does: "List the shortcuts", run: () => setHelp(true) },
    ...places.map((p) => ({ keys: p.keys, does: `Go to ${p.name}`, run: () => navigate(p.path) })),
  ]);
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
          <QueryClientProvider key={who} client={queries}>
            <Page path={path} />
          </QueryClientProvider>
        )}
      </main>
      <footer>
        <a href="/openapi.json">API</a> <a href="/licenses.txt">Licenses</a>
      </footer>
      <Shortcuts open={help} onClose={() => setHelp(false)} />
    </>
  );
}
