// The frame of all pages: navigation, login, shortcuts, theme.
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ComponentType, useEffect, useMemo, useRef, useState } from "react";
import { may, type Scope, useMe } from "./access/me";
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
const EpicsPage = later(() => import("./epics/list"));
const EpicPage = later(() => import("./epics/page"));
const ThreadsPage = later(() => import("./threads/list"));
const WorkflowsPage = later(() => import("./workflows/list"));
const WorkflowPage = later(() => import("./workflows/page"));
const SchedulesPage = later(() => import("./operate/schedules"));
const LimitsPage = later(() => import("./operate/limits"));
const WorkersPage = later(() => import("./operate/workers"));
const ActorsPage = later(() => import("./operate/actors"));
const PricesPage = later(() => import("./operate/prices"));
const MemoryPage = later(() => import("./operate/memory"));
const WebhooksPage = later(() => import("./operate/webhooks"));
const ComparePage = later(() => import("./compare/page"));
const QuestionsPage = later(() => import("./questions/page"));
const KeysPage = later(() => import("./access/keys"));
const AuditPage = later(() => import("./access/audit"));
const SettingsPage = later(() => import("./operate/settings"));
const ThreadPage = later(() => import("./threads/page"));

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

interface Place {
  path: string;
  name: string;
  keys: string;
  Page: ComponentType;
  /** One is the page of one of what the list has. */
  One?: ComponentType<{ id: string }>;
  /** scope is what those have who see its link; all others are told on the page what they lack. */
  scope?: Scope;
  /** aside is a page to which others lead. */
  aside?: boolean;
}

const places: Place[] = [
  { path: "/runs", name: "Runs", keys: "g r", Page: RunsPage, One: RunPage },
  { path: "/questions", name: "Questions", keys: "g q", Page: QuestionsPage },
  { path: "/playground", name: "Playground", keys: "g p", Page: PlaygroundPage },
  { path: "/epics", name: "Epics", keys: "g e", Page: EpicsPage, One: EpicPage },
  { path: "/threads", name: "Threads", keys: "g t", Page: ThreadsPage, One: ThreadPage },
  { path: "/workflows", name: "Workflows", keys: "g w", Page: WorkflowsPage, One: WorkflowPage },
  { path: "/schedules", name: "Schedules", keys: "g s", Page: SchedulesPage },
  { path: "/limits", name: "Limits", keys: "g l", Page: LimitsPage },
  { path: "/workers", name: "Workers", keys: "g o", Page: WorkersPage },
  { path: "/actors", name: "Actors", keys: "g a", Page: ActorsPage },
  { path: "/prices", name: "Prices", keys: "g c", Page: PricesPage },
  { path: "/memory", name: "Memory", keys: "g m", Page: MemoryPage },
  { path: "/webhooks", name: "Webhooks", keys: "g h", Page: WebhooksPage },
  { path: "/keys", name: "Keys", keys: "g k", Page: KeysPage, scope: "admin" },
  { path: "/audit", name: "Audit", keys: "g u", Page: AuditPage, scope: "admin" },
  { path: "/compare", name: "Compare", keys: "g d", Page: ComparePage, aside: true },
  { path: "/settings", name: "Settings", keys: "g i", Page: SettingsPage },
];

/** placeOf is the page that has an address, with the name of the one thing that it is about. */
function placeOf(path: string): { place?: Place; id: string } {
  const [, first = "", id = "", ...more] = path.split("/");
  const place = path === "/" ? places[0] : places.find((p) => p.path === `/${first}`);
  return more.length > 0 || (id && !place?.One) ? { id: "" } : { place, id: decodeURIComponent(id) };
}

function Page({ path }: { path: string }) {
  const { place, id } = placeOf(path);
  if (place?.One && id) return <place.One key={id} id={id} />;
  if (place) return <place.Page />;
  return (
    <Empty title="There is nothing here">
      <p>
        No page has the address <code>{path}</code>. <Link href="/runs">See the runs</Link>.
      </p>
    </Empty>
  );
}

function Pages({ path }: { path: string }) {
  const me = useMe().data;
  const { place } = placeOf(path);
  return (
    <nav aria-label="Pages">
      {places
        .filter((p) => !p.aside && (!p.scope || may(me, p.scope)))
        .map((p) => (
          <Link key={p.path} href={p.path} aria-current={place === p ? "page" : undefined}>
            {p.name}
          </Link>
        ))}
    </nav>
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
        <QueryClientProvider key={who} client={queries}>
          <Pages path={path} />
        </QueryClientProvider>
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
