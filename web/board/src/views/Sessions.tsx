// Sessions of end users: their tasks, what they were told and have not acknowledged, what they want to hear.

import type { FormEvent } from "react";
import { useState } from "react";
import { Link } from "wouter";
import { client, type Shapes, type Task } from "../api.ts";
import { useParam } from "../router.ts";
import { useMay, useRead } from "../state/reads.ts";
import { Act, act } from "../ui/act.tsx";
import { Ago, Empty, Loaded, Panel, StateBadge, Tag, TaskLink } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";
import { TaskProgress } from "../ui/tasks.tsx";
import { quoted, tasksAt } from "../words.ts";

const LOOKED_AT = 200;

export function Sessions() {
  const [session, choose] = useParam("session");
  return (
    <>
      <h1>Sessions</h1>
      <form className="filter" role="search" onSubmit={(event) => { event.preventDefault(); choose(String(new FormData(event.currentTarget).get("session")).trim()); }}>
        <input key={session} name="session" data-filter defaultValue={session} aria-label="Session" placeholder="The id of a session" spellCheck={false} autoComplete="off" />
        <button type="submit" className="primary">Show</button>
      </form>
      {session === "" ? <Lately choose={choose} /> : <One key={session} session={session} />}
    </>
  );
}

function Lately({ choose }: { choose: (session: string) => void }) {
  const read = useRead("sessions", ["lately"], () => client.page({ limit: LOOKED_AT }));
  return (
    <Panel title="Lately" aside={<span className="soft">of the newest {LOOKED_AT} tasks</span>}>
      <Loaded read={read}>
        {({ items }) => {
          const found = new Map<string, Task[]>();
          for (const task of items) if (task.session_id) found.set(task.session_id, [...(found.get(task.session_id) ?? []), task]);
          const columns: Column<[string, Task[]]>[] = [
            { head: "Session", grow: true, cell: ([id]) => <button type="button" className="quiet id" onClick={() => choose(id)}>{id}</button> },
            { head: "Tasks", num: true, cell: ([, tasks]) => tasks.length },
            { head: "Last", num: true, cell: ([, tasks]) => <Ago at={tasks[0]?.created_at} /> },
          ];
          return <Table label="Sessions lately" columns={columns} rows={[...found]} id={([id]) => id} empty={<>No task belongs to a session. <code>session_id</code> says whose one is.</>} />;
        }}
      </Loaded>
    </Panel>
  );
}

function One({ session }: { session: string }) {
  const read = useRead("sessions", ["tasks", session], () => client.page({ session_id: session, limit: 50 }));
  const columns: Column<Task>[] = [
    { head: "Status", cell: (task) => <StateBadge status={task.status} /> },
    { head: "Task", cell: (task) => <TaskLink id={task.id}>{task.type}</TaskLink> },
    { head: "Progress", grow: true, wide: true, cell: (task) => <TaskProgress task={task} /> },
    { head: "Age", num: true, cell: (task) => <Ago at={task.created_at} /> },
  ];
  return (
    <div className="columns">
      <div>
        <Panel title="Its tasks" aside={<Link href={tasksAt(`session:${quoted(session)}`)}>All of them</Link>}>
          <Loaded read={read}>{({ items }) => <Table label="Tasks of the session" columns={columns} rows={items} id={(task) => task.id} empty="This session has no task." />}</Loaded>
        </Panel>
      </div>
      <div>
        <Notices session={session} />
        <Wanted session={session} />
        <Token session={session} />
      </div>
    </div>
  );
}

function Notices({ session }: { session: string }) {
  const read = useRead("sessions", ["notices", session], () => client.notifications(session));
  const acts = useMay("act");
  return (
    <Panel title="Notifications" aside={<span className="soft">not acknowledged</span>}>
      <Loaded read={read}>
        {({ items, more }) => items.length === 0 ? <Empty>It has seen all of them.</Empty> : (
          <>
            <ul className="needs">
              {items.map((notice) => (
                <li key={notice.notification_id} className="notice">
                  <span><Tag tone={notice.type === "task_failed" ? "bad" : ""}>{notice.type.replace("task_", "")}</Tag> {notice.message} <TaskLink id={notice.task_id}>{notice.task_type}</TaskLink></span>
                  <span className="soft"><Ago at={notice.timestamp} /></span>
                </li>
              ))}
            </ul>
            {more ? <p className="soft">There are more behind these.</p> : null}
            {acts ? <footer><Act work={async () => { await client.acknowledge(session, items.map((one) => one.notification_id)); return "They are acknowledged."; }}>Acknowledge {items.length}</Act></footer> : null}
          </>
        )}
      </Loaded>
    </Panel>
  );
}

const PRIORITIES = ["critical", "high", "normal", "low"] as const;

function Wanted({ session }: { session: string }) {
  const read = useRead("sessions", ["wanted", session], () => client.preferences(session));
  const acts = useMay("act");
  return (
    <Panel title="Wants to hear of">
      <Loaded read={read}>
        {(told) => {
          const set = (change: Partial<Shapes["Preferences"]>) => void act(async () => { await client.setPreferences(session, { ...told, ...change }); return null; });
          const types = told.types ?? [];
          return (
            <div className="form">
              {(["task_completed", "task_failed", "task_overdue"] as const).map((type) => (
                <label key={type}>
                  <input type="checkbox" disabled={!acts} checked={types.includes(type)}
                    onChange={(event) => set({ types: event.target.checked ? [...types, type] : types.filter((one) => one !== type) })} />
                  {type.replace("task_", "")}
                </label>
              ))}
              <label>From priority
                <select disabled={!acts} value={told.min_priority ?? "low"} onChange={(event) => set({ min_priority: event.target.value as (typeof PRIORITIES)[number] })}>
                  {PRIORITIES.map((one) => <option key={one}>{one}</option>)}
                </select>
              </label>
              <label><input type="checkbox" disabled={!acts} checked={told.push ?? true} onChange={(event) => set({ push: event.target.checked })} />push it</label>
            </div>
          );
        }}
      </Loaded>
    </Panel>
  );
}

function Token({ session }: { session: string }) {
  const [token, put] = useState("");
  const may = useMay("enqueue");
  if (!may) return null;
  const make = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const user = String(new FormData(event.currentTarget).get("user")).trim();
    void act(async () => { put((await client.token(session, user ? { user_id: user } : {})).token); return null; });
  };
  return (
    <Panel title="Token for its end user">
      <form className="form" onSubmit={make}>
        <div className="row"><label>User <small>optional</small><input name="user" /></label><button type="submit">Sign one</button></div>
      </form>
      {token ? <><pre tabIndex={0} role="region" aria-label="Token">{token}</pre><p className="soft">It opens this session for twelve hours, also on <a href={`ask#token=${token}`}>the end users’ page</a>.</p></> : null}
    </Panel>
  );
}
