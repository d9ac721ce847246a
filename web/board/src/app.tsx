// The shell: who is here, where one can go, whether the log is heard.

import { Component, type ComponentType, lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import { Link, Route, Switch, useLocation } from "wouter";
import { isRefused, link, type Me } from "./api.ts";
import { useKeys } from "./keys.tsx";
import { heard } from "./state/clock.ts";
import { startLive, useConnection } from "./state/live.ts";
import { useHealth, useQueues, useRead, useWorkers, Who, whoAmI } from "./state/reads.ts";
import { keep, useSettings } from "./state/settings.ts";
import { Words } from "./ui/act.tsx";
import { Empty, Failed, Loaded } from "./ui/show.tsx";
import { Login } from "./views/Login.tsx";
import { Overview } from "./views/Overview.tsx";
import { Tasks } from "./views/Tasks.tsx";

interface Screen {
  path: string;
  name: string;
  view: ComponentType;
}

// Screens that are not opened at once are loaded when they are.
const SCREENS: readonly Screen[] = [
  { path: "/", name: "Overview", view: Overview },
  { path: "/tasks", name: "Tasks", view: Tasks },
  { path: "/failures", name: "Failures", view: lazy(async () => ({ default: (await import("./views/Failures.tsx")).Failures })) },
  { path: "/approvals", name: "Approvals", view: lazy(async () => ({ default: (await import("./views/Approvals.tsx")).Approvals })) },
  { path: "/queues", name: "Queues", view: lazy(async () => ({ default: (await import("./views/Queues.tsx")).Queues })) },
  { path: "/limits", name: "Limits", view: lazy(async () => ({ default: (await import("./views/Limits.tsx")).Limits })) },
  { path: "/workflows", name: "Workflows", view: lazy(async () => ({ default: (await import("./views/Workflows.tsx")).Workflows })) },
  { path: "/schedules", name: "Schedules", view: lazy(async () => ({ default: (await import("./views/Schedules.tsx")).Schedules })) },
  { path: "/types", name: "Types", view: lazy(async () => ({ default: (await import("./views/Types.tsx")).Types })) },
  { path: "/sessions", name: "Sessions", view: lazy(async () => ({ default: (await import("./views/Sessions.tsx")).Sessions })) },
  { path: "/workers", name: "Workers", view: lazy(async () => ({ default: (await import("./views/Workers.tsx")).Workers })) },
  { path: "/usage", name: "Usage", view: lazy(async () => ({ default: (await import("./views/Usage.tsx")).Usage })) },
  { path: "/webhooks", name: "Webhooks", view: lazy(async () => ({ default: (await import("./views/Webhooks.tsx")).Webhooks })) },
  { path: "/settings", name: "Settings", view: lazy(async () => ({ default: (await import("./views/Settings.tsx")).Settings })) },
];

const WorkflowView = lazy(async () => ({ default: (await import("./views/Workflows.tsx")).WorkflowView }));
const TaskView = lazy(async () => ({ default: (await import("./views/Task.tsx")).TaskView }));

export function App() {
  const me = useRead("once", ["me"], whoAmI);
  if (isRefused(me.error, 401)) return <Login />;
  return <Loaded read={me}>{(who) => <Who value={who}><Shell me={who} /></Who>}</Loaded>;
}

let started = false;

function Shell({ me }: { me: Me }) {
  useEffect(() => {
    if (started) return;
    started = true;
    startLive();
  }, []);
  const help = useKeys();
  const [open, setOpen] = useState(false);
  const [path] = useLocation();
  useEffect(() => setOpen(false), [path]);
  return (
    <div className="shell" data-open={open}>
      <a className="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>
        To the content
      </a>
      <header className="top">
        <button type="button" className="menu quiet" aria-label="Menu" aria-expanded={open} onClick={() => setOpen(!open)}>☰</button>
        <Link href="/" className="brand"><Mark />Outlast</Link>
        <Heart />
        <span className="gap" />
        <Connected />
        <Looks />
        {me.name === "anybody" ? null : <button type="button" className="quiet" onClick={logOut} title={`${me.role} ${me.name}`}>Log out</button>}
      </header>
      <nav className="rail" aria-label="Screens">
        {SCREENS.map(({ path: to, name }) => <Place key={to} to={to} name={name} path={path} />)}
        <a href="docs" className="place">API</a>
      </nav>
      <main id="main" tabIndex={-1}>
        {me.read_only ? <p className="banner">Read-only: you can look, and change nothing.</p> : null}
        <Caught key={path}>
          <Suspense fallback={null}>
            <Switch>
              {SCREENS.map(({ path: at, view: View }) => <Route key={at} path={at}><View /></Route>)}
              <Route path="/tasks/:id">{({ id }) => <TaskView key={id} id={id} />}</Route>
              <Route path="/workflows/:id">{({ id }) => <WorkflowView key={id} id={id} />}</Route>
              <Route><Empty>There is no such screen.</Empty></Route>
            </Switch>
          </Suspense>
        </Caught>
      </main>
      <Words />
      {help}
    </div>
  );
}

/** A screen that could not be loaded, because the server is away or another version by now, or that
 * has failed, leaves the others usable. */
class Caught extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: undefined as unknown };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    return error === undefined ? this.props.children : <Failed error={error} again={() => location.reload()} />;
  }
}

function Place({ to, name, path }: { to: string; name: string; path: string }) {
  const isHere = to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`);
  return <Link href={to} className="place" aria-current={isHere ? "page" : undefined}>{name}</Link>;
}

function Mark() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect className="mark" width="32" height="32" rx="8" />
      <circle cx="16" cy="16" r="8" fill="none" stroke="#fff" strokeWidth="3.2" strokeDasharray="36 15" strokeLinecap="round" transform="rotate(-60 16 16)" />
      <circle cx="16" cy="16" r="2.6" fill="#fff" />
    </svg>
  );
}

/** How the whole is, in one line. */
function Heart() {
  const health = useHealth();
  const queues = useQueues();
  const workers = useWorkers();
  useEffect(() => heard(health.data?.timestamp ?? null), [health.data]);
  if (health.error) return <span className="heart bad">The server does not answer</span>;
  if (!health.data || !workers.data || !queues.data) return null;
  const alive = workers.data.filter((worker) => worker.alive).length;
  const told = alive === 0 ? "No worker is running" : `${alive} ${alive === 1 ? "worker" : "workers"}`;
  const tone = health.data.status === "healthy" ? "" : "warn";
  return <Link href="/workers" className={`heart ${tone}`}>{health.data.status} · {told}</Link>;
}

const SAYS = { live: "live", connecting: "connecting", lost: "reconnecting", hidden: "paused" };

function Connected() {
  const connection = useConnection();
  return <span className={`live ${connection}`} role="status" data-live={connection}>{SAYS[connection]}</span>;
}

const NEXT = { system: "light", light: "dark", dark: "system" } as const;

function Looks() {
  const { theme, utc } = useSettings();
  return (
    <>
      <button type="button" className="quiet" onClick={() => keep({ utc: !utc })} aria-label={`Times are ${utc ? "UTC" : "local"}; change`}>
        {utc ? "UTC" : "local"}
      </button>
      <button type="button" className="quiet" onClick={() => keep({ theme: NEXT[theme] })} aria-label={`Theme: ${theme}; change`}>
        {theme === "dark" ? "☾" : theme === "light" ? "☀" : "◐"}
      </button>
    </>
  );
}

async function logOut(): Promise<void> {
  await link.call("post", "/api/v1/logout");
  location.reload();
}
